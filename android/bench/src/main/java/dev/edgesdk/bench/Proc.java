package dev.edgesdk.bench;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.FileReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.json.JSONException;
import org.json.JSONObject;

/** What Linux says about this process. */
final class Proc {
  private static final String[][] MEMORY = {
    {"VmRSS", "rss_bytes"}, {"RssAnon", "rss_anon_bytes"}, {"RssFile", "rss_file_bytes"},
    {"VmSwap", "swap_bytes"}, {"VmHWM", "peak_rss_bytes"},
  };

  private Proc() {}

  /** Sets the peak back, so that each stage has its own. Not every kernel lets an app do it. */
  static boolean resetPeak() {
    try (FileOutputStream out = new FileOutputStream("/proc/self/clear_refs")) {
      out.write('5');
      return true;
    } catch (IOException denied) {
      return false;
    }
  }

  static JSONObject memory() throws JSONException {
    Map<String, String> status = status(new File("/proc/self/status"));
    JSONObject found = new JSONObject().put("source", "proc_status");
    for (String[] pair : MEMORY) {
      String value = status.get(pair[0]);
      if (value != null && value.endsWith("kB")) {
        found.put(pair[1], 1024 * Long.parseLong(value.substring(0, value.length() - 2).trim()));
      }
    }
    return found;
  }

  static Long involuntarySwitches() {
    String value = status(new File("/proc/self/status")).get("nonvoluntary_ctxt_switches");
    return value == null ? null : Long.valueOf(value);
  }

  private static Map<String, String> status(File file) {
    Map<String, String> found = new HashMap<>();
    try (BufferedReader in = new BufferedReader(new FileReader(file))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        int colon = line.indexOf(':');
        if (colon > 0) {
          found.put(line.substring(0, colon), line.substring(colon + 1).trim());
        }
      }
    } catch (IOException denied) {
      return found; // what is absent stays out of the report
    }
    return found;
  }

  /** Writes all or nothing. */
  static void write(File to, String text) throws IOException {
    File part = new File(to.getPath() + ".part");
    try (FileOutputStream out = new FileOutputStream(part)) {
      out.write(text.getBytes(StandardCharsets.UTF_8));
      out.getFD().sync();
    }
    if (!part.renameTo(to)) {
      throw new IOException(part + " can't be renamed to " + to.getName());
    }
  }

  static String readOrNull(File file) {
    try {
      return read(file);
    } catch (IOException denied) {
      return null;
    }
  }

  static String read(File file) throws IOException {
    StringBuilder text = new StringBuilder();
    try (BufferedReader in = new BufferedReader(new FileReader(file))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        text.append(line).append('\n');
      }
    }
    return text.toString();
  }
}
