package dev.edgesdk.bench;

import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Date;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TimeZone;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** Puts the processes together: {@code edgesdk.bench/1}. */
final class Report {
  static final String SCHEMA = "edgesdk.bench/1";
  private static final int FEWEST = 6;
  private static final double MOST_WAIT = 0.05;
  private static final double LEAST_FREQUENCY = 0.95;

  private final Options options;
  private final JSONObject device;
  private final JSONArray preflight;
  private final List<JSONObject> runs;
  private final JSONObject energy;
  private final List<JSONObject> marks = new ArrayList<>();
  private final Flags flags = new Flags();

  /**
   * Collects.
   *
   * @param device the schema's {@code device}, with {@code emulated} and {@code debuggable} beside it
   * @param runs what {@link ProcessRun#run} gave
   * @param energy what {@link ProcessRun#energy} gave; null when it wasn't asked for
   */
  Report(Options options, JSONObject device, JSONArray preflight, List<JSONObject> runs, JSONObject energy) {
    this.options = options;
    this.device = device;
    this.preflight = preflight;
    this.runs = runs;
    this.energy = energy;
  }

  static String utc(long millis) {
    SimpleDateFormat format = new SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss'Z'", Locale.ROOT);
    format.setTimeZone(TimeZone.getTimeZone("UTC"));
    return format.format(new Date(millis));
  }

  JSONObject make(String version, List<String> command, boolean adb) throws JSONException {
    boolean emulated = device.getBoolean("emulated");
    boolean debuggable = device.getBoolean("debuggable");
    if (emulated) {
      flags.add("EMULATED_TIMING", "This is an emulator.", null);
    }
    if (debuggable || !"user".equals(device.getJSONObject("device").getJSONObject("os").opt("build_type"))) {
      flags.add("DEBUG_BUILD", debuggable
          ? "The bench app is debuggable: its code is not optimized." : "Android itself is a debug build.", null);
    }
    preflightFlags();
    JSONArray processes = new JSONArray();
    int total = 0;
    for (JSONObject run : runs) {
      JSONObject process = run.getJSONObject("process");
      processes.put(process);
      total += process.getJSONObject("measure").getJSONArray("samples_ns").length();
      flag(process);
      JSONObject test = run.getJSONObject("self_test");
      if (test.getInt("calls") > 0 && !test.getBoolean("ok")) {
        flags.add("OUTPUT_MISMATCH", test.getString("text"), process.getInt("index"));
      }
      preflight.put(new JSONObject().put("check", "output_" + process.getInt("index"))
          .put("status", test.getInt("calls") == 0 ? "skipped" : test.getBoolean("ok") ? "pass" : "fail")
          .put("message", test.getString("text")));
    }
    if (total < FEWEST) {
      flags.add("TOO_FEW_SAMPLES", total + " samples; " + FEWEST + " are needed.", null);
    }
    JSONObject results = results();
    JSONObject first = runs.get(0);
    JSONObject target = new JSONObject().put("platform", "android").put("transport", adb ? "adb" : "local")
        .put("emulated", emulated).put("emulator", emulated ? device.getJSONObject("device").get("model") : JSONObject.NULL)
        .put("timing_valid", !flags.invalid() && !options.smoke()).put("serial_sha256_12", JSONObject.NULL)
        .put("runner", "app_activity");
    return new JSONObject()
        .put("schema", SCHEMA)
        .put("run_id", UUID.randomUUID().toString())
        .put("created_utc", utc(System.currentTimeMillis()))
        .put("tool", new JSONObject().put("name", "edgesdk-android-bench").put("version", version)
            .put("git_commit", JSONObject.NULL).put("git_dirty", JSONObject.NULL).put("command", new JSONArray(command)))
        .put("target", target)
        .put("device", device.getJSONObject("device"))
        .put("model", first.getJSONObject("model"))
        .put("runtime", first.getJSONObject("runtime"))
        .put("protocol", protocol())
        .put("preflight", preflight)
        .put("processes", processes)
        .put("results", results)
        .put("comparison", JSONObject.NULL)
        .put("validity", flags.validity())
        .put("artifacts", new JSONArray());
  }

  private JSONObject protocol() throws JSONException {
    return new JSONObject()
        .put("name", options.profile)
        .put("scenario", "single_stream")
        .put("streams", 1)
        .put("batch", 1)
        .put("processes", options.processes)
        .put("warmup", new JSONObject().put("min_s", options.smoke() ? 0 : Warmup.MIN_NS / 1e9)
            .put("min_iterations", options.smoke() ? 1 : Warmup.MIN_CALLS)
            .put("max_s", Warmup.MAX_NS / 1e9).put("tolerance", Warmup.TOLERANCE))
        .put("measure", new JSONObject().put("min_iterations", options.minIterations)
            .put("min_s", options.minSeconds).put("max_s", options.maxSeconds))
        .put("cooldown", new JSONObject().put("min_s", options.minCooldownSeconds)
            .put("max_s", options.maxCooldownSeconds))
        .put("input", new JSONObject().put("kind", "random").put("seed", options.seed).put("turns", Inputs.TURNS))
        .put("clocks", "default")
        .put("seed", options.seed);
  }

  /** The flags of one process. */
  private void flag(JSONObject process) throws JSONException {
    int index = process.getInt("index");
    JSONObject measure = process.getJSONObject("measure");
    Stats stats = new Stats(longs(measure.getJSONArray("samples_ns")));
    if (!process.getJSONObject("warmup").getBoolean("converged")) {
      flags.add("WARMUP_NOT_CONVERGED", "15 s were not enough.", index);
    }
    if (measure.getInt("iterations") < options.minIterations) {
      flags.add("MIN_ITERATIONS_NOT_MET", measure.getInt("iterations") + " of " + options.minIterations + ".", index);
    }
    if (measure.getLong("duration_ns") < options.minSeconds * 1e9) {
      flags.add("MIN_DURATION_NOT_MET", measure.getLong("duration_ns") / 1e9 + " s of " + options.minSeconds + ".", index);
    }
    if (stats.n() >= FEWEST) {
      double drift = stats.driftPercent();
      String drifted = String.format(Locale.ROOT, "%+.1f %% over the run.", drift);
      if (drift > 2) {
        flags.addSign("LATENCY_DRIFT", drifted, index);
      } else if (drift < -2) {
        flags.add("LATENCY_DRIFT", drifted, index); // late warm-up, not throttling
      }
      if ((stats.percentile(0.75) - stats.percentile(0.25)) / stats.median() > 0.10) {
        flags.add("NOISY_WITHIN", "The interquartile range is more than 10 % of the median.", index);
      }
      double ratio = Modes.ratio(stats.sorted);
      if (ratio > 1) {
        flags.add("BIMODAL", String.format(Locale.ROOT, "Two heaps of samples, one %.2f times the other.", ratio), index);
      }
    }
    trace(process, measure, index);
    JSONArray spin = process.optJSONArray("spin_probe_ns");
    if (spin != null && spin.length() == 2 && spin.getLong(1) > 1.10 * spin.getLong(0)) {
      flags.add("SPIN_PROBE_SLOW", spin.getLong(1) + " ns after, " + spin.getLong(0) + " ns before.", index);
    }
    if (process.has("cooldown_timeout")) {
      flags.add("COOLDOWN_TIMEOUT", "The device did not cool down in time.", index);
      process.remove("cooldown_timeout");
    }
    state(process.optJSONObject("state_before"), index);
    state(process.optJSONObject("state_after"), index);
  }

  private void preflightFlags() throws JSONException {
    for (int i = 0; i < preflight.length(); i++) {
      JSONObject check = preflight.getJSONObject(i);
      boolean warned = check.getString("status").equals("warn");
      if (warned && check.getString("check").equals("load_average")) {
        flags.add("BACKGROUND_LOAD", "The load average was " + check.get("value") + " before the run.", null);
      }
      if (warned && check.getString("check").equals("screen_on")) {
        flags.add("SCREEN_OFF", "The screen was off.", null);
      }
    }
  }

  /** Cores, frequencies and neighbours while samples were taken; what {@link Trace} left beside the record goes away. */
  private void trace(JSONObject process, JSONObject measure, int index) throws JSONException {
    TreeMap<Integer, String> policies = Trace.policies(
        device.getJSONObject("device").getJSONObject("cpu").getJSONArray("clusters"));
    Set<String> used = new TreeSet<>();
    JSONArray cpus = measure.optJSONArray("cpus_seen");
    for (int i = 0; cpus != null && i < cpus.length(); i++) {
      String policy = policies.get(cpus.getInt(i));
      if (policy != null) {
        used.add(policy);
      }
    }
    if (used.size() > 1) {
      flags.add("MIGRATED_CLUSTER", "The thread ran on cores " + cpus + ", which are of " + used.size() + " kinds.", index);
    }
    double wait = process.optDouble("wait_share", 0);
    if (wait > MOST_WAIT && !flags.has("BACKGROUND_LOAD")) {
      flags.add("BACKGROUND_LOAD", String.format(
          Locale.ROOT, "The thread waited %.0f %% of its time for a core that others had.", 100 * wait), index);
    }
    if (measure.optLong("page_faults_major", 0) > 0) {
      flags.add("MAJOR_FAULTS", measure.getLong("page_faults_major") + " pages came from the disk.", index);
    }
    JSONObject memory = process.getJSONObject("memory");
    if (memory.getJSONObject("end").optLong("swap_bytes", 0) > memory.getJSONObject("baseline").optLong("swap_bytes", 0)) {
      flags.add("SWAP_USED", "Memory of the process was swapped out.", index);
    }
    JSONArray states = process.optJSONArray("marks");
    if (states != null && states.length() == 4) {
      for (int i = 0; i < 4; i++) {
        marks.add(states.getJSONObject(i));
      }
      for (String policy : used.isEmpty() && !policies.isEmpty() ? Collections.singleton(fastest()) : used) {
        frequency(policy, states, index);
      }
    }
    process.remove("marks");
    process.remove("wait_share");
  }

  private String fastest() throws JSONException {
    JSONArray clusters = device.getJSONObject("device").getJSONObject("cpu").getJSONArray("clusters");
    return "policy" + clusters.getJSONObject(0).getJSONArray("cpus").getInt(0); // they come with the fastest first
  }

  private void frequency(String policy, JSONArray states, int index) throws JSONException {
    JSONObject[] tables = new JSONObject[4];
    for (int i = 0; i < 4; i++) {
      tables[i] = states.getJSONObject(i).getJSONObject("time_in_state").optJSONObject(policy);
      if (tables[i] == null) {
        return;
      }
    }
    double first = Trace.meanKilohertz(tables[0], tables[1]);
    double last = Trace.meanKilohertz(tables[2], tables[3]);
    if (first > 0 && last > 0 && last < LEAST_FREQUENCY * first && !flags.has("FREQ_DROPPED")) {
      flags.add("FREQ_DROPPED", String.format(Locale.ROOT, "%s ran at %.0f MHz in the first third, at %.0f MHz in the last.",
          policy, first / 1000, last / 1000), index);
    }
  }

  private void state(JSONObject state, int index) throws JSONException {
    if (state == null) {
      return;
    }
    if (state.optInt("thermal_status", 0) > 0 && !flags.has("THERMAL_STATUS_NONZERO")) {
      flags.add("THERMAL_STATUS_NONZERO", "Status " + state.getInt("thermal_status") + ".", index);
    }
    JSONObject caps = state.optJSONObject("freq_cap_hz");
    JSONObject most = maxHz();
    for (int i = 0; caps != null && caps.names() != null && i < caps.names().length(); i++) {
      String cluster = caps.names().getString(i);
      if (caps.getLong(cluster) < most.optLong(cluster) && !flags.has("FREQ_CAPPED")) {
        flags.add("FREQ_CAPPED", cluster + " may run at " + caps.getLong(cluster) + " Hz only.", index);
      }
    }
    if (state.optBoolean("charging") && !flags.has("CHARGING")) {
      flags.add("CHARGING", "The device hangs on a charger.", index);
    }
    if (!state.isNull("battery_level_pct") && state.optDouble("battery_level_pct", 100) < 25 && !flags.has("LOW_BATTERY")) {
      flags.add("LOW_BATTERY", "Below 25 %.", index);
    }
  }

  private JSONObject maxHz() throws JSONException {
    JSONObject found = new JSONObject();
    JSONArray clusters = device.getJSONObject("device").getJSONObject("cpu").getJSONArray("clusters");
    for (int i = 0; i < clusters.length(); i++) {
      JSONObject cluster = clusters.getJSONObject(i);
      found.put("policy" + cluster.getJSONArray("cpus").getInt(0), cluster.opt("max_freq_hz"));
    }
    return found;
  }

  static long[] longs(JSONArray array) throws JSONException {
    long[] found = new long[array.length()];
    for (int i = 0; i < found.length; i++) {
      found[i] = array.getLong(i);
    }
    return found;
  }

  private JSONObject results() throws JSONException {
    Results results = new Results(runs);
    if (results.betweenCv() != null && results.betweenCv() > 0.05) {
      flags.add("NOISY_BETWEEN", "The processes differ by more than 5 %.", null);
    }
    Double p99 = results.percentile(0.99);
    if (p99 != null && p99 > 2 * results.all.median()) {
      flags.add("TAIL_HEAVY", "p99 is more than twice p50.", null);
    }
    return new JSONObject()
        .put("latency", results.latency())
        .put("throughput_ips", 1e9 / Math.max(1, results.all.mean()))
        .put("offline_throughput_ips", JSONObject.NULL)
        .put("load", results.load())
        .put("memory", results.memory())
        .put("energy", energy == null ? JSONObject.NULL : Energy.of(energy))
        .put("thermal", results.thermal(flags, marks))
        .put("concurrency", new JSONArray())
        .put("accuracy", JSONObject.NULL)
        .put("profile", JSONObject.NULL);
  }
}
