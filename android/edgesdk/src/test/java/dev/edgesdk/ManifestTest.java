package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** A manifest with every value replaced by odd ones: Java takes what Python takes, and refuses what Python refuses. */
final class ManifestTest {
  @Test
  void pythonAndJavaAgreeOnEveryField() throws IOException {
    List<Object> cases = Made.list(Made.json(new File(Made.BUNDLES, "manifests.json")));
    Map<String, Object> good = Made.map(Made.map(cases.get(0)).get("document"));
    assertEquals("", verdict(good));
    List<String> wrong = new ArrayList<>();
    int taken = 0;
    for (Object one : cases.subList(1, cases.size())) {
      Map<String, Object> test = Made.map(one);
      String wanted = (String) test.get("code");
      String got = verdict(edited(good, Made.list(test.get("way")), 0, test.get("odd")));
      taken += wanted.isEmpty() ? 1 : 0;
      if (!wanted.equals(got)) {
        wrong.add(test.get("way") + " = " + test.get("odd") + ": Python '" + wanted + "', Java '" + got + "'");
      }
    }
    assertEquals(List.of(), wrong);
    assertTrue(cases.size() > 3000 && taken > 100, cases.size() + " cases, of which " + taken + " are taken");
  }

  private static Object edited(Object value, List<Object> way, int depth, Object odd) {
    if (depth == way.size()) {
      return odd;
    }
    String key = (String) way.get(depth);
    boolean remove = depth == way.size() - 1 && "removed".equals(odd);
    if (value instanceof List) {
      List<Object> copy = new ArrayList<>(Made.list(value));
      int index = Integer.parseInt(key);
      if (remove) {
        copy.remove(index);
      } else {
        copy.set(index, edited(copy.get(index), way, depth + 1, odd));
      }
      return copy;
    }
    Map<String, Object> copy = new LinkedHashMap<>(Made.map(value));
    if (remove) {
      copy.remove(key);
    } else {
      copy.put(key, edited(copy.get(key), way, depth + 1, odd));
    }
    return copy;
  }

  private static String verdict(Object document) {
    try {
      Rules.check(Manifest.parse(Made.utf8(text(document)), "it"));
      return "";
    } catch (BadField bad) {
      return "manifest_invalid";
    } catch (EdgeException error) {
      return error.code();
    }
  }

  /** JSON again, so that the test takes the way that a file takes. */
  private static String text(Object value) {
    StringBuilder out = new StringBuilder();
    if (value instanceof Map) {
      for (Map.Entry<String, Object> entry : Made.map(value).entrySet()) {
        out.append(out.length() == 0 ? "" : ",");
        out.append(text(entry.getKey())).append(':').append(text(entry.getValue()));
      }
      return "{" + out + "}";
    }
    if (value instanceof List) {
      for (Object one : Made.list(value)) {
        out.append(out.length() == 0 ? "" : ",").append(text(one));
      }
      return "[" + out + "]";
    }
    if (!(value instanceof String)) {
      return String.valueOf(value);
    }
    for (char c : ((String) value).toCharArray()) {
      out.append(c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
    }
    return "\"" + out + "\"";
  }
}
