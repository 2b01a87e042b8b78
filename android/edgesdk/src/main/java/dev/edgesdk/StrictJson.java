package dev.edgesdk;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * JSON as bundles hold it: nothing ambiguous or oversized. The rules are those of Python's {@code bundle/_json.py}.
 *
 * <p>{@code org.json} takes unquoted keys, comments, octal numbers and repeated keys, differs between Android and the
 * desktop, and is an empty shell in an app's local unit tests; so the reader that checks also builds the values: {@code
 * Map}, {@code List}, {@code String}, {@code Long}, {@code Double}, {@code Boolean}, null.
 */
final class StrictJson {
  static final int MAX_DEPTH = 32;
  private static final int MOST_DIGITS = 20;

  private final String text;
  private int at;

  private StrictJson(String text) {
    this.text = text;
  }

  /**
   * Reads one document.
   *
   * @throws BadField no UTF-8, no JSON, a key twice, a number outside the 64-bit or the finite double range, nesting
   *     deeper than {@link #MAX_DEPTH}, half a surrogate pair
   */
  static @Nullable Object decode(byte[] data) {
    String text;
    try {
      text = StandardCharsets.UTF_8.newDecoder()
          .onMalformedInput(CodingErrorAction.REPORT)
          .onUnmappableCharacter(CodingErrorAction.REPORT)
          .decode(ByteBuffer.wrap(data))
          .toString();
    } catch (CharacterCodingException cause) {
      throw new BadField("it is no UTF-8 text");
    }
    StrictJson reader = new StrictJson(text);
    Object value = reader.value(1);
    reader.space();
    if (reader.at != text.length()) {
      throw reader.bad("something follows the document");
    }
    return value;
  }

  /** A value that is a member of {@code depth - 1} others. */
  private @Nullable Object value(int depth) {
    if (depth > MAX_DEPTH + 1) {
      throw new BadField("it is nested deeper than " + MAX_DEPTH + " levels");
    }
    space();
    char first = peek();
    switch (first) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return string();
      case 't':
        return word("true", Boolean.TRUE);
      case 'f':
        return word("false", Boolean.FALSE);
      case 'n':
        return word("null", null);
      default:
        return number();
    }
  }

  private Map<String, Object> object(int depth) {
    Map<String, Object> found = new LinkedHashMap<>();
    at++;
    space();
    if (peek() == '}') {
      at++;
      return Collections.unmodifiableMap(found);
    }
    while (true) {
      space();
      if (peek() != '"') {
        throw bad("a key is no string");
      }
      String key = string();
      space();
      expect(':');
      if (found.containsKey(key)) {
        throw new BadField("a key stands twice in one object");
      }
      found.put(key, value(depth + 1));
      space();
      if (peek() == '}') {
        at++;
        return Collections.unmodifiableMap(found);
      }
      expect(',');
    }
  }

  private List<Object> array(int depth) {
    List<Object> found = new ArrayList<>();
    at++;
    space();
    if (peek() == ']') {
      at++;
      return Collections.unmodifiableList(found);
    }
    while (true) {
      found.add(value(depth + 1));
      space();
      if (peek() == ']') {
        at++;
        return Collections.unmodifiableList(found);
      }
      expect(',');
    }
  }

  private String string() {
    StringBuilder found = new StringBuilder();
    at++;
    while (true) {
      char c = peek();
      at++;
      if (c == '"') {
        checkPairs(found);
        return found.toString();
      }
      if (c < ' ') {
        throw bad("a string holds a control character");
      }
      found.append(c == '\\' ? escaped() : c);
    }
  }

  private char escaped() {
    char c = peek();
    at++;
    int place = "\"\\/bfnrt".indexOf(c);
    if (place >= 0) {
      return "\"\\/\b\f\n\r\t".charAt(place);
    }
    if (c != 'u' || at + 4 > text.length()) {
      throw bad("an escape is unknown");
    }
    int code = 0;
    for (int end = at + 4; at < end; at++) {
      char hex = text.charAt(at);
      int digit = hex < 128 ? Character.digit(hex, 16) : -1;
      if (digit < 0) {
        throw bad("an escape is unknown");
      }
      code = code * 16 + digit;
    }
    return (char) code;
  }

  private static void checkPairs(CharSequence found) {
    for (int i = 0; i < found.length(); i++) {
      if (!Character.isSurrogate(found.charAt(i))) {
        continue;
      }
      boolean pair = i + 1 < found.length()
          && Character.isSurrogatePair(found.charAt(i), found.charAt(i + 1));
      if (!pair) {
        throw new BadField("a string holds half a surrogate pair");
      }
      i++;
    }
  }

  private Object number() {
    int start = at;
    skip('-');
    if (!skip('0')) {
      digits();
    }
    boolean whole = true;
    if (skip('.')) {
      digits();
      whole = false;
    }
    if (skip('e') || skip('E')) {
      if (!skip('+')) {
        skip('-');
      }
      digits();
      whole = false;
    }
    String number = text.substring(start, at);
    if (whole) { // no conditional expression: it would make a double of either
      return whole(number);
    }
    return real(number);
  }

  private static Long whole(String number) {
    try {
      long value = number.length() > MOST_DIGITS ? Long.MIN_VALUE : Long.parseLong(number);
      if (value != Long.MIN_VALUE) { // the range is symmetric, as in Python
        return value;
      }
    } catch (NumberFormatException cause) {
      // said below
    }
    throw new BadField("a whole number is outside the 64-bit range");
  }

  private static Double real(String number) {
    double value = Double.parseDouble(number);
    if (Double.isInfinite(value)) {
      throw new BadField("a number is outside the range of a double");
    }
    return value;
  }

  private void digits() {
    int start = at;
    while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
      at++;
    }
    if (at == start) {
      throw bad("a value is no JSON");
    }
  }

  private @Nullable Object word(String word, @Nullable Object value) {
    if (!text.startsWith(word, at)) {
      throw bad("a value is no JSON");
    }
    at += word.length();
    return value;
  }

  private boolean skip(char c) {
    boolean there = at < text.length() && text.charAt(at) == c;
    at += there ? 1 : 0;
    return there;
  }

  private void expect(char c) {
    if (!skip(c)) {
      throw bad("'" + c + "' is missing");
    }
  }

  private void space() {
    while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
  }

  private char peek() {
    if (at >= text.length()) {
      throw bad("it ends too early");
    }
    return text.charAt(at);
  }

  private BadField bad(String problem) {
    return new BadField(problem + ", at character " + at);
  }
}
