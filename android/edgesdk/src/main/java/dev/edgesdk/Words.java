package dev.edgesdk;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/** Small helpers for sentences. */
final class Words {
  private Words() {}

  static String join(Iterable<?> parts) {
    StringBuilder text = new StringBuilder();
    for (Object part : parts) {
      text.append(text.length() == 0 ? "" : ", ").append(part);
    }
    return text.toString();
  }

  /** The known words nearest to a mistyped one: {@code Did you mean 'scores'? Known: boxes, scores.} */
  static String nearest(String word, Collection<String> known) {
    List<String> names = new ArrayList<>(known);
    Collections.sort(names);
    String best = null;
    int least = Math.max(1, word.length() / 2) + 1;
    for (String name : names) {
      int distance = distance(word.toLowerCase(Locale.ROOT), name.toLowerCase(Locale.ROOT));
      if (distance < least) {
        least = distance;
        best = name;
      }
    }
    return (best == null ? "" : "Did you mean '" + best + "'? ")
        + "Known: " + (names.isEmpty() ? "none" : join(names)) + ".";
  }

  /** A shape as messages show it: {@code [1, 3, 224, 224]}. */
  static String shape(long[] shape) {
    return Arrays.toString(shape);
  }

  /** The first line of what a failure says, without its full stop. */
  static String line(Throwable cause) {
    String text = String.valueOf(cause.getMessage()).trim();
    int end = text.indexOf('\n');
    text = end < 0 ? text : text.substring(0, end);
    return text.endsWith(".") ? text.substring(0, text.length() - 1) : text;
  }

  /** Levenshtein's. Long words are cut: a hint needn't cost seconds. */
  private static int distance(String a, String b) {
    a = a.substring(0, Math.min(64, a.length()));
    b = b.substring(0, Math.min(64, b.length()));
    int[] row = new int[b.length() + 1];
    for (int j = 0; j < row.length; j++) {
      row[j] = j;
    }
    for (int i = 1; i <= a.length(); i++) {
      int corner = row[0];
      row[0] = i;
      for (int j = 1; j < row.length; j++) {
        int change = corner + (a.charAt(i - 1) == b.charAt(j - 1) ? 0 : 1);
        corner = row[j];
        row[j] = Math.min(change, 1 + Math.min(row[j], row[j - 1]));
      }
    }
    return row[b.length()];
  }
}
