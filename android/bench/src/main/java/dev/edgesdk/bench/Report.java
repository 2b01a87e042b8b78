package dev.edgesdk.bench;

import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.List;
import java.util.Locale;
import java.util.TimeZone;
import java.util.UUID;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** Puts the processes together: {@code edgesdk.bench/1}. */
final class Report {
  static final String SCHEMA = "edgesdk.bench/1";
  private static final int FEWEST = 6;

  private final Options options;
  private final JSONObject device;
  private final JSONArray preflight;
  private final List<JSONObject> runs;
  private final Flags flags = new Flags();

  /**
   * Collects.
   *
   * @param device the schema's {@code device}, with {@code emulated} and {@code debuggable} beside it
   * @param runs what {@link ProcessRun#run} gave
   */
  Report(Options options, JSONObject device, JSONArray preflight, List<JSONObject> runs) {
    this.options = options;
    this.device = device;
    this.preflight = preflight;
    this.runs = runs;
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
      if (Math.abs(drift) > 2) {
        flags.add("LATENCY_DRIFT", String.format(Locale.ROOT, "%+.1f %% over the run.", drift), index);
      }
      if ((stats.percentile(0.75) - stats.percentile(0.25)) / stats.median() > 0.10) {
        flags.add("NOISY_WITHIN", "The interquartile range is more than 10 % of the median.", index);
      }
    }
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
        .put("energy", JSONObject.NULL)
        .put("thermal", results.thermal(flags))
        .put("concurrency", new JSONArray())
        .put("accuracy", JSONObject.NULL)
        .put("profile", JSONObject.NULL);
  }
}
