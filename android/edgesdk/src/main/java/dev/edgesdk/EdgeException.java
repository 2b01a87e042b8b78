package dev.edgesdk;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Everything that can go wrong, in three sentences: what failed, why it usually does, what to do about it.
 *
 * <p>It is unchecked, since most causes (a damaged download, a wrong shape) can't be repaired where they show.
 */
public final class EdgeException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final String code;
  private final String message;
  private final String why;
  private final String fix;

  EdgeException(String code, String message, String why, String fix) {
    this(code, message, why, fix, null);
  }

  EdgeException(String code, String message, String why, String fix, @Nullable Throwable cause) {
    super(message + " " + why + " " + fix, cause);
    this.code = Objects.requireNonNull(code, "code == null");
    this.message = message;
    this.why = why;
    this.fix = fix;
  }

  /** A stable word in snake_case, equal in Python, Java and Swift: {@code bundle_corrupt}. */
  public String code() {
    return code;
  }

  /** One sentence that names what failed. */
  public String message() {
    return message;
  }

  /** The usual cause. */
  public String why() {
    return why;
  }

  /** What to do next. */
  public String fix() {
    return fix;
  }
}
