package dev.edgesdk;

import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Which entry names are safe on every file system that a bundle may be unpacked on. */
final class Names {
  static final int LONGEST = 255;
  private static final Pattern PART = Pattern.compile("[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*");
  private static final Pattern DEVICE =
      Pattern.compile("(con|prn|aux|nul|com[0-9]|lpt[0-9])(\\..*)?", Pattern.CASE_INSENSITIVE);

  private Names() {}

  /** Null for a safe name, else the reason it is refused. */
  static @Nullable String unsafe(String name) {
    int length = name.codePointCount(0, name.length());
    if (length == 0 || length > LONGEST) {
      return "has " + length + " characters, not 1 to " + LONGEST;
    }
    for (String part : name.split("/", -1)) {
      if (!PART.matcher(part).matches()) {
        return "has a part that is empty, starts with a dot, or holds another character than A-Z a-z 0-9 _ . @ + -";
      }
      if (part.endsWith(".")) {
        return "has a part that ends with a dot";
      }
      if (DEVICE.matcher(part).matches()) {
        return "has a part that is a device's name on Windows";
      }
    }
    return null;
  }

  /** A sentence about two names that can't lie side by side: equal but for case, or one the folder of the other. */
  static @Nullable String clash(List<String> names) {
    Map<String, String> seen = new HashMap<>();
    for (String name : names) {
      String other = seen.put(name.toLowerCase(Locale.ROOT), name);
      if (other != null) {
        return "the entries '" + other + "' and '" + name + "' can't lie side by side";
      }
    }
    for (Map.Entry<String, String> entry : seen.entrySet()) {
      String low = entry.getKey();
      for (int slash = low.indexOf('/'); slash >= 0; slash = low.indexOf('/', slash + 1)) {
        String folder = seen.get(low.substring(0, slash));
        if (folder != null) {
          return "the entries '" + folder + "' and '" + entry.getValue() + "' can't lie side by side";
        }
      }
    }
    return null;
  }
}
