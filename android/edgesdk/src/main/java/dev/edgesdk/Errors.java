package dev.edgesdk;

import java.io.File;
import java.io.IOException;
import org.jspecify.annotations.Nullable;

/** The sentences of the bundle's errors, in one place. Codes are those of Python's {@code bundle/_errors.py}. */
final class Errors {
  static final String AGAIN =
      "Get the file again from where it was made, or build it again with: edgesdk package MODEL";

  private Errors() {}

  static EdgeException missing(File file, String problem, @Nullable Throwable cause) {
    return new EdgeException(
        "bundle_missing",
        file + " " + problem + ".",
        "A bundle is one file that ends in .edge.",
        "Check the path.",
        cause);
  }

  static EdgeException corrupt(File file, String problem) {
    return corrupt(
        file,
        problem,
        "The download or copy stopped half-way, or the file is of another kind.");
  }

  static EdgeException corrupt(File file, String problem, String why) {
    return new EdgeException(
        "bundle_corrupt", file + " is no readable bundle: " + problem + ".", why, AGAIN);
  }

  static EdgeException layout(File file, String problem) {
    return new EdgeException(
        "bundle_layout",
        file + " is not laid out as its manifest prescribes: " + problem + ".",
        "Bytes were damaged or changed, or the file was packed by another program than edgesdk.",
        AGAIN);
  }

  static EdgeException invalid(String where, String problem) {
    return new EdgeException(
        "manifest_invalid",
        "The manifest of " + where + " can't be used: " + problem + ".",
        "It breaks a rule or a limit of edgesdk.bundle/1.",
        "Build the bundle again with: edgesdk package MODEL");
  }

  static EdgeException mismatch(File file, String entry) {
    return new EdgeException(
        "hash_mismatch",
        file + ": the bytes of '" + entry + "' are not those that the manifest names.",
        "The file was damaged on the way, or somebody changed it.",
        AGAIN);
  }

  static EdgeException signature(File file, SignatureState state, String problem) {
    return new EdgeException(
        "signature_" + state.word(),
        file + " is not trusted: " + problem + ".",
        "It was changed after signing, or comes from somebody else.",
        "Get it from its maker, or pin the maker's own key (KEY.pub).");
  }

  /** A file can't be written. A full disk has no exception of its own in Java 8: the system's words tell it apart. */
  static EdgeException unwritable(File file, IOException cause) {
    String text = String.valueOf(cause.getMessage());
    boolean full = text.contains("ENOSPC") || text.contains("No space left") || text.contains("EDQUOT");
    return new EdgeException(
        full ? "disk_full" : "not_writable",
        file + " can't be written: " + text + ".",
        full
            ? "The disk or the quota is full."
            : "The folder is missing or may not be written to.",
        full ? "Free some space." : "Choose another folder.",
        cause);
  }
}
