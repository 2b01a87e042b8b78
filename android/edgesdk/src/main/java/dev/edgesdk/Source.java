package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/** What the model came from. */
public final class Source {
  private final String format;
  private final @Nullable String sha256;
  private final @Nullable String gitCommit;
  private final boolean pickle;

  private Source(String format, @Nullable String sha256, @Nullable String gitCommit, boolean pickle) {
    this.format = format;
    this.sha256 = sha256;
    this.gitCommit = gitCommit;
    this.pickle = pickle;
  }

  static Source read(Fields fields) {
    return new Source(
        fields.text("format", TextRule.WORD),
        fields.textOrNull("sha256", TextRule.SHA256),
        fields.textOrNull("git_commit", TextRule.COMMIT),
        fields.flag("pickle", false));
  }

  /** The kind of file: {@code exported_program}. */
  public String format() {
    return format;
  }

  /** Of the file, in hex. */
  public @Nullable String sha256() {
    return sha256;
  }

  /** The commit of the work tree that the file lay in. */
  public @Nullable String gitCommit() {
    return gitCommit;
  }

  /** Whether a pickle was executed to read it. */
  public boolean pickle() {
    return pickle;
  }
}
