package dev.edgesdk;

import java.util.regex.Pattern;

/** What a string of the manifest may be. Lengths count characters of Unicode, as Python does. */
enum TextRule {
  TEXT(0, 1024, "[^\\x00-\\x1f\\x7f]*", "text without control characters"),
  NAME(1, 1024, "[^\\x00-\\x1f\\x7f]*", "text without control characters"),
  LABEL(0, 1024, "[^\\x00-\\x08\\x0a-\\x1f\\x7f]*", "text without control characters"),
  TENSOR(1, 255, "[^\\x00-\\x1f\\x7f]+", "text without control characters"),
  WORD(1, 128, "[A-Za-z0-9][A-Za-z0-9_.+-]*", "a word of A-Z a-z 0-9 _ . + -"),
  ENTRY(1, 255, "(?s).*", "the name of an entry"),
  SHA256(64, 64, "[0-9a-f]{64}", "a SHA-256 in hex"),
  CRC32(8, 8, "[0-9a-f]{8}", "a CRC-32 in hex"),
  COMMIT(7, 64, "[0-9a-f]{7,64}", "a commit in hex"),
  AXIS(1, 2, "[0-9]{1,2}", "the number of a dimension");

  private final int least;
  private final int most;
  private final Pattern pattern;
  private final String what;

  TextRule(int least, int most, String pattern, String what) {
    this.least = least;
    this.most = most;
    this.pattern = Pattern.compile(pattern);
    this.what = what;
  }

  String check(String value, String path) {
    int length = value.codePointCount(0, value.length());
    if (length < least || length > most) {
      throw new BadField("'" + path + "' has " + length + " characters, not " + least + " to " + most);
    }
    if (!pattern.matcher(value).matches()) {
      throw new BadField("'" + path + "' should be " + what);
    }
    return value;
  }
}
