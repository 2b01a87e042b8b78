package dev.edgesdk.bench;

import java.io.File;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * What the system says while samples are taken: the core, the time that each cluster spent at each frequency, how long
 * the thread waited for a core. Read between samples, at most {@link #MARKS} times, and understood afterwards. Only the
 * calling thread is looked at: the engine's own threads run beside it.
 */
final class Trace {
  static final int MARKS = 25;

  /** Where the system's texts come from: {@code /proc} and {@code /sys}, or a test's recording. */
  interface Source {
    /** {@code time_in_state} of every policy, as {@link Trace#residency(File)} gives it; null when not for apps. */
    String residency();

    /** {@code /proc/thread-self/stat}; null when not for apps. */
    String stat();

    /** {@code /proc/thread-self/schedstat}; null when not for apps. */
    String schedstat();
  }

  private final Source source;
  private final double every;
  private final long[] times = new long[MARKS + 1];
  private final String[] residencies = new String[MARKS + 1];
  private final String[] stats = new String[MARKS + 1];
  private String schedBefore;
  private String schedAfter;
  private int count;

  /** For a measurement that is expected to take so long. */
  Trace(Source source, double expectedNs) {
    this.source = source;
    this.every = Math.max(1, expectedNs / (MARKS - 1));
  }

  /** Between two samples. */
  void mark(long passedNs) {
    if (count < MARKS && passedNs >= count * every) {
      add(passedNs);
    }
  }

  void begin() {
    schedBefore = source.schedstat();
    add(0);
  }

  void end(long passedNs) {
    add(passedNs);
    schedAfter = source.schedstat();
  }

  private void add(long passedNs) {
    times[count] = passedNs;
    residencies[count] = source.residency();
    stats[count++] = source.stat();
  }

  /** Into {@code measure}: cores and processor time; and beside it what {@link Report} makes flags of. */
  void put(JSONObject record, JSONObject measure, long startNs) throws JSONException {
    Set<Integer> cpus = new TreeSet<>();
    for (int i = 0; i < count; i++) {
      int cpu = cpu(stats[i]);
      if (cpu >= 0) {
        cpus.add(cpu);
      }
    }
    if (!cpus.isEmpty()) {
      measure.put("cpus_seen", new JSONArray(cpus));
    }
    long[] before = numbers(schedBefore);
    long[] after = numbers(schedAfter);
    if (before.length >= 2 && after.length >= 2) {
      measure.put("cpu_time_ns", after[0] - before[0]);
      double busy = Math.max(1, after[0] - before[0]);
      record.put("wait_share", (after[1] - before[1]) / (busy + after[1] - before[1]));
    }
    long faults = majorFaults(stats[count - 1]) - majorFaults(stats[0]);
    if (majorFaults(stats[0]) >= 0 && faults >= 0) {
      measure.put("page_faults_major", faults);
    }
    record.put("marks", marks(startNs));
  }

  /** The states at the beginning, at a third, at two thirds and at the end; nothing when frequencies are hidden. */
  private JSONArray marks(long startNs) throws JSONException {
    JSONArray found = new JSONArray();
    for (int third = 0; third <= 3 && residencies[0] != null; third++) {
      int best = 0;
      for (int i = 1; i < count; i++) {
        double wanted = times[count - 1] * third / 3.0;
        best = Math.abs(times[i] - wanted) < Math.abs(times[best] - wanted) ? i : best;
      }
      if (residencies[best] != null) {
        found.put(new JSONObject().put("t_ns", startNs + times[best]).put("time_in_state", parse(residencies[best])));
      }
    }
    return found.length() == 4 ? found : new JSONArray();
  }

  /** The policies' tables, each under a line with its name. */
  static String residency(File cpufreq) {
    File[] policies = cpufreq.listFiles((folder, name) -> name.startsWith("policy"));
    if (policies == null) {
      return null;
    }
    Arrays.sort(policies);
    StringBuilder text = new StringBuilder();
    for (File policy : policies) {
      String table = Proc.readOrNull(new File(policy, "stats/time_in_state"));
      if (table != null) {
        text.append(policy.getName()).append('\n').append(table);
      }
    }
    return text.length() == 0 ? null : text.toString();
  }

  static JSONObject parse(String residency) throws JSONException {
    JSONObject found = new JSONObject();
    JSONObject table = new JSONObject();
    for (String line : residency.split("\n")) {
      if (line.startsWith("policy")) {
        table = new JSONObject();
        found.put(line.trim(), table);
      } else {
        long[] pair = numbers(line);
        if (pair.length == 2) {
          table.put(String.valueOf(pair[0]), pair[1]);
        }
      }
    }
    return found;
  }

  /** The mean frequency in kHz that a policy had between two marks, weighted by time; 0 when no time passed. */
  static double meanKilohertz(JSONObject before, JSONObject after) throws JSONException {
    double weighted = 0;
    double total = 0;
    JSONArray names = after.names();
    for (int i = 0; names != null && i < names.length(); i++) {
      String frequency = names.getString(i);
      long ticks = after.getLong(frequency) - before.optLong(frequency, 0);
      weighted += (double) ticks * Long.parseLong(frequency);
      total += ticks;
    }
    return total <= 0 ? 0 : weighted / total;
  }

  /** Clusters by the policy that they belong to, which has the number of its first core. */
  static TreeMap<Integer, String> policies(JSONArray clusters) throws JSONException {
    TreeMap<Integer, String> found = new TreeMap<>();
    for (int i = 0; i < clusters.length(); i++) {
      JSONArray cpus = clusters.getJSONObject(i).getJSONArray("cpus");
      for (int c = 0; c < cpus.length(); c++) {
        found.put(cpus.getInt(c), "policy" + cpus.getInt(0));
      }
    }
    return found;
  }

  /** Field 39: the core that the thread ran on last; −1 when it isn't told. */
  static int cpu(String stat) {
    return (int) field(stat, 39);
  }

  static long majorFaults(String stat) {
    return field(stat, 12);
  }

  /** The name in the second field may hold anything, so fields are counted from behind it. */
  private static long field(String stat, int number) {
    int close = stat == null ? -1 : stat.lastIndexOf(')');
    if (close < 0) {
      return -1;
    }
    String[] fields = stat.substring(close + 1).trim().split("\\s+");
    return fields.length <= number - 3 ? -1 : Long.parseLong(fields[number - 3]);
  }

  private static long[] numbers(String text) {
    String[] words = text == null ? new String[0] : text.trim().split("\\s+");
    long[] found = new long[words.length];
    for (int i = 0; i < found.length; i++) {
      try {
        found[i] = Long.parseLong(words[i]);
      } catch (NumberFormatException other) {
        return new long[0];
      }
    }
    return found;
  }
}
