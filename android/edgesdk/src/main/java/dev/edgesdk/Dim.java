package dev.edgesdk;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** One dimension of a shape: a size, or any size from {@link #min()} to {@link #max()}. */
public final class Dim {
  static final long LARGEST = Integer.MAX_VALUE;
  private static final Pattern RANGE = Pattern.compile("(0|[1-9][0-9]{0,9})\\.\\.([1-9][0-9]{0,9})");

  private final long min;
  private final long max;
  private final boolean dynamic;
  private final @Nullable String symbol;

  private Dim(long min, long max, boolean dynamic, @Nullable String symbol) {
    this.min = min;
    this.max = max;
    this.dynamic = dynamic;
    this.symbol = symbol;
  }

  /** The form of the manifest: a whole number, or {@code "1..8"}. */
  static Dim read(@Nullable Object value, @Nullable String symbol, String path) {
    if (value instanceof Long && (Long) value >= 0 && (Long) value <= LARGEST) {
      return new Dim((Long) value, (Long) value, false, symbol);
    }
    Matcher range = RANGE.matcher(value instanceof String ? (String) value : "");
    if (!range.matches()) {
      throw new BadField("'" + path + "' is neither a size nor a range: " + value);
    }
    return new Dim(Long.parseLong(range.group(1)), Long.parseLong(range.group(2)), true, symbol);
  }

  /** The smallest size. */
  public long min() {
    return min;
  }

  /** The largest size. */
  public long max() {
    return max;
  }

  /** Whether the size can differ from call to call. */
  public boolean dynamic() {
    return dynamic;
  }

  /** Dimensions of one model that carry the same symbol always have the same size. */
  public @Nullable String symbol() {
    return symbol;
  }

  boolean takes(long size) {
    return size >= min && size <= max;
  }

  /** {@code 3}, or {@code 1..8}. */
  @Override
  public String toString() {
    return dynamic ? min + ".." + max : Long.toString(min);
  }
}
