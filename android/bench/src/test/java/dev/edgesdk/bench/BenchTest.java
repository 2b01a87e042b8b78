package dev.edgesdk.bench;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.networknt.schema.JsonSchema;
import com.networknt.schema.JsonSchemaFactory;
import com.networknt.schema.SpecVersion;
import dev.edgesdk.EdgeBundle;
import java.io.File;
import java.io.InputStream;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;
import org.junit.jupiter.api.Test;

/** The protocol, without a phone: real bundles and a real engine on this machine; the report is checked by the schema. */
final class BenchTest {
  private static final File ROOT = new File(System.getProperty("edgesdk.root", "../.."));
  private static final File BUNDLES = new File(System.getProperty("edgesdk.bundles", "../edgesdk/target/bundles"));

  static Options options(String... pairs) {
    Map<String, String> given = new HashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      given.put(pairs[i], pairs[i + 1]);
    }
    return Options.of(given);
  }

  /** This machine in place of a phone. */
  private static final class Desk implements ProcessRun.Platform {
    private final String bundle;

    Desk(String bundle) {
      this.bundle = bundle;
    }

    @Override
    public EdgeBundle open() {
      return EdgeBundle.open(new File(BUNDLES, bundle + ".edge"));
    }

    @Override
    public JSONObject state() throws JSONException {
      return state(0);
    }

    static JSONObject state(int thermal) throws JSONException {
      return new JSONObject().put("t_ns", System.nanoTime()).put("thermal_status", thermal)
          .put("freq_cap_hz", new JSONObject().put("policy4", 2_000_000_000L));
    }

    @Override
    public int threads() {
      return 1;
    }

    @Override
    public boolean debuggable() {
      return false;
    }

    @Override
    public Trace.Source trace() {
      return new Trace.Source() {
        @Override
        public String residency() {
          return null;
        }

        @Override
        public String stat() {
          return Proc.readOrNull(new File("/proc/thread-self/stat"));
        }

        @Override
        public String schedstat() {
          return Proc.readOrNull(new File("/proc/thread-self/schedstat"));
        }
      };
    }
  }

  static JSONObject device(boolean emulated, boolean debuggable, String build) throws JSONException {
    JSONObject cluster = new JSONObject().put("id", 0).put("cpus", new JSONArray(List.of(4, 5))).put("mask", "30")
        .put("max_freq_hz", 2_000_000_000L);
    JSONObject device = new JSONObject().put("manufacturer", "Example").put("model", "Desk")
        .put("os", new JSONObject().put("name", "Android").put("version", "15").put("build_type", build))
        .put("abi", "x86_64").put("memory_total_bytes", 1L << 33)
        .put("cpu", new JSONObject().put("count", 8).put("clusters", new JSONArray().put(cluster)));
    return new JSONObject().put("device", device).put("emulated", emulated).put("debuggable", debuggable);
  }

  static JSONObject report(Options options, JSONObject device, JSONObject... runs) throws Exception {
    JSONArray preflight = new JSONArray().put(new JSONObject().put("check", "emulator").put("status", "pass"));
    return report(options, device, preflight, null, runs);
  }

  static JSONObject report(
      Options options, JSONObject device, JSONArray preflight, JSONObject energy, JSONObject... runs) throws Exception {
    JSONObject report = new Report(options, device, preflight, List.of(runs), energy).make("0.1.0", List.of("am start"), true);
    assertEquals(List.of(), faults(report.toString()));
    return report;
  }

  static List<String> faults(String json) throws Exception {
    try (InputStream in = BenchTest.class.getResourceAsStream("/edgesdk.bench.1.schema.json")) {
      ObjectNode rules = (ObjectNode) new ObjectMapper().readTree(in);
      rules.remove("$id"); // a name, where the validator wants an address
      JsonSchema schema = JsonSchemaFactory.getInstance(SpecVersion.VersionFlag.V202012).getSchema(rules);
      JsonNode document = new ObjectMapper().readTree(json);
      List<String> found = new ArrayList<>();
      schema.validate(document).forEach(fault -> found.add(fault.getMessage()));
      return found;
    }
  }

  static Set<String> codes(JSONObject report) throws JSONException {
    JSONArray flags = report.getJSONObject("validity").getJSONArray("flags");
    Set<String> found = new TreeSet<>();
    for (int i = 0; i < flags.length(); i++) {
      found.add(flags.getJSONObject(i).getString("code"));
    }
    return found;
  }

  /** A process as a phone would record it, with these samples. */
  static JSONObject made(int index, long[] samples) throws JSONException {
    JSONObject memory = new JSONObject();
    for (String stage : new String[] {"baseline", "after_load", "after_first", "end"}) {
      memory.put(stage, new JSONObject().put("source", "proc_status").put("rss_bytes", 50_000_000)
          .put("peak_rss_bytes", 60_000_000));
    }
    long total = 0;
    for (long one : samples) {
      total += one;
    }
    JSONObject process = new JSONObject().put("index", index).put("order", index).put("variant", "A")
        .put("exit_code", 0).put("load", new JSONObject().put("total_ns", 1).put("page_cache", "unknown"))
        .put("first_inference_ns", 500_000_000)
        .put("warmup", new JSONObject().put("iterations", 9).put("duration_ns", 9).put("converged", true))
        .put("measure", new JSONObject().put("iterations", samples.length).put("duration_ns", total)
            .put("inner_loops", 1).put("samples_ns", new JSONArray(samples)))
        .put("memory", memory).put("state_before", Desk.state(0)).put("state_after", Desk.state(0))
        .put("spin_probe_ns", new JSONArray().put(100).put(101));
    JSONObject tensor = new JSONObject().put("name", "x").put("dtype", "float32").put("shape", new JSONArray().put(1));
    return new JSONObject().put("process", process)
        .put("self_test", new JSONObject().put("calls", 1).put("ok", true).put("text", "ok"))
        .put("model", new JSONObject().put("name", "m").put("format", "pte").put("sha256", "0").put("size_bytes", 1)
            .put("precision", "none").put("inputs", new JSONArray().put(tensor)).put("outputs", new JSONArray()))
        .put("runtime", new JSONObject().put("name", "executorch").put("version", "1").put("build_type", "release")
            .put("backend", "xnnpack").put("threads", 2).put("load_mode", "mmap"));
  }

  static long[] steady(int seed, int count, long around) {
    Random random = new Random(seed);
    long[] samples = new long[count];
    for (int i = 0; i < count; i++) {
      samples[i] = around + (long) (random.nextGaussian() * around * 0.005);
    }
    return samples;
  }

  @Test
  void aRealSmokeRunIsAReportThatClaimsNoTiming() throws Exception {
    for (String bundle : new String[] {"picture", "tokens", "several"}) {
      Options options = options("profile", "smoke");
      JSONObject run = new ProcessRun(options, new Desk(bundle)).run(0);
      JSONObject report = report(options, device(false, false, "user"), run);
      assertEquals(bundle, report.getJSONObject("model").getString("name"));
      assertFalse(report.getJSONObject("target").getBoolean("timing_valid"));
      assertTrue(codes(report).contains("TOO_FEW_SAMPLES"));
      assertTrue(run.getJSONObject("self_test").getBoolean("ok"));
      JSONObject measure = report.getJSONArray("processes").getJSONObject(0).getJSONObject("measure");
      assertTrue(measure.getLong("cpu_time_ns") >= 0, "the system's clock ticks more slowly than three calls take");
      assertTrue(measure.getJSONArray("cpus_seen").length() >= 1);
      assertTrue(report.getJSONObject("results").getJSONObject("latency").isNull("p90_ns"));
    }
  }

  @Test
  void twoQuickProcessesOnAPhoneAreValid() throws Exception {
    JSONObject report = report(options("profile", "quick"), device(false, false, "user"),
        made(0, steady(1, 400, 20_000_000)), made(1, steady(2, 400, 20_000_000)));
    assertEquals(Set.of(), codes(report));
    assertEquals("valid", report.getJSONObject("validity").getString("status"));
    assertTrue(report.getJSONObject("target").getBoolean("timing_valid"));
    JSONObject latency = report.getJSONObject("results").getJSONObject("latency");
    assertEquals(20e6, latency.getDouble("p50_ns"), 1e5);
    assertTrue(latency.getDouble("p99_ns") > latency.getDouble("p90_ns"));
    assertTrue(latency.isNull("p999_ns"), "too few samples for it");
    assertTrue(latency.isNull("p50_ci95_ns"), "two processes give no interval");
  }

  @Test
  void pitfall_b_01_theFirstRunIsApart() throws Exception {
    JSONObject report = report(options(), device(false, false, "user"), made(0, steady(1, 100, 10_000_000)));
    JSONObject results = report.getJSONObject("results");
    assertTrue(results.getJSONObject("latency").getDouble("max_ns") < 20e6);
    assertEquals(490e6, results.getJSONObject("load").getDouble("startup_overhead_ns"), 1e6);
  }

  @Test
  void pitfall_b_04_aDebugBuildIsInvalid() throws Exception {
    for (boolean debuggable : new boolean[] {true, false}) {
      JSONObject report = report(options(), device(false, debuggable, debuggable ? "user" : "eng"),
          made(0, steady(1, 400, 20_000_000)));
      assertTrue(codes(report).contains("DEBUG_BUILD"));
      assertEquals("invalid", report.getJSONObject("validity").getString("status"));
      assertFalse(report.getJSONObject("target").getBoolean("timing_valid"));
    }
  }

  @Test
  void anEmulatorIsInvalid() throws Exception {
    JSONObject report = report(options(), device(true, false, "user"), made(0, steady(1, 400, 20_000_000)));
    assertEquals(Set.of("EMULATED_TIMING"), codes(report));
    assertEquals("invalid", report.getJSONObject("validity").getString("status"));
  }

  @Test
  void wrongAnswersAreInvalid() throws Exception {
    JSONObject run = made(0, steady(1, 400, 20_000_000));
    run.getJSONObject("self_test").put("ok", false).put("text", "error 3 of 0.1");
    assertTrue(codes(report(options(), device(false, false, "user"), run)).contains("OUTPUT_MISMATCH"));
  }

  @Test
  void pitfall_b_02_heatIsEvidence() throws Exception {
    JSONObject hot = made(0, steady(1, 400, 20_000_000));
    hot.getJSONObject("process").put("state_after", Desk.state(2)).put("spin_probe_ns",
        new JSONArray().put(100).put(120)).put("cooldown_timeout", true);
    hot.getJSONObject("process").getJSONObject("state_after").getJSONObject("freq_cap_hz").put("policy4", 1_000_000_000L);
    JSONObject report = report(options(), device(false, false, "user"), hot);
    assertEquals(Set.of("THERMAL_STATUS_NONZERO", "SPIN_PROBE_SLOW", "FREQ_CAPPED", "COOLDOWN_TIMEOUT"), codes(report));
    assertEquals("semivalid", report.getJSONObject("validity").getString("status"));
    assertTrue(report.getJSONObject("results").getJSONObject("thermal").getBoolean("throttled"));
    assertEquals(2, report.getJSONObject("results").getJSONObject("thermal").getInt("status_max"));
  }

  @Test
  void aTrendIsFoundAndSteadyNoiseIsNone() {
    long[] rising = new long[200];
    for (int i = 0; i < rising.length; i++) {
      rising[i] = 1_000_000 + 500 * i;
    }
    assertEquals(100 * 99_500 / 1_049_750.0, new Stats(rising).driftPercent(), 0.8);
    assertEquals(0, new Stats(steady(3, 400, 1_000_000)).driftPercent(), 1);
  }

  @Test
  void percentilesAreNumpysAndStatedOnlyWithEnoughSamples() {
    Stats five = new Stats(new long[] {50, 10, 40, 20, 30});
    assertEquals(30, five.median());
    assertEquals(46, five.percentile(0.9), 1e-9);
    assertEquals(10, five.mad(), 1e-9);
    assertNull(five.interval(0.5));
    int[][] least = {{6, 50}, {36, 90}, {72, 95}, {368, 99}};
    for (int[] one : least) {
      assertNotNull(new Stats(steady(1, one[0], 1_000_000)).interval(one[1] / 100.0), one[0] + " samples");
      assertNull(new Stats(steady(1, one[0] - 1, 1_000_000)).interval(one[1] / 100.0), one[0] - 1 + " samples");
    }
    assertNotNull(new Stats(steady(1, 3688, 1_000_000)).interval(0.999));
  }

  @Test
  void warmUpEndsWhenTwoWindowsAgreeTwiceAndNotBefore() {
    Warmup warm = new Warmup(false);
    int calls = 0;
    while (!warm.over()) {
      warm.add(20_000_000 + (calls < 60 ? 1_000_000 * (60 - calls) : 0));
      calls++;
    }
    assertTrue(warm.converged());
    assertTrue(calls > 60, "not on the slope: " + calls);
    assertTrue(calls < 120, "soon after it: " + calls);
    Warmup wild = new Warmup(false);
    for (calls = 0; !wild.over(); calls++) {
      wild.add((long) (5e7 * Math.pow(1.01, calls)));
    }
    assertFalse(wild.converged());
  }

  @Test
  void optionsThatAreNotPossibleAreNamed() {
    String message = assertThrows(IllegalArgumentException.class, () -> options("thread", "2")).getMessage();
    assertTrue(message.contains("thread") && message.contains("threads"), message);
    assertThrows(IllegalArgumentException.class, () -> options("threads", "many"));
    assertThrows(IllegalArgumentException.class, () -> options("threads", "4294967297"));
    assertThrows(IllegalArgumentException.class, () -> options("profile", "standard"));
  }

  @Test
  void inputsAreSeededAndNeverZeros() throws Exception {
    try (EdgeBundle bundle = EdgeBundle.open(new File(BUNDLES, "picture.edge"))) {
      byte[] first = Inputs.make(bundle.manifest().inputs(), 1).get(0).get("input").bytes();
      assertArrayEquals(first, Inputs.make(bundle.manifest().inputs(), 1).get(0).get("input").bytes());
      float[] floats = Inputs.make(bundle.manifest().inputs(), 2).get(7).get("input").floats();
      int zeros = 0;
      for (float one : floats) {
        zeros += one == 0 ? 1 : 0;
      }
      assertTrue(zeros < 5);
    }
  }

  @Test
  void theSchemaIsTheSharedOne() throws Exception {
    File shared = new File(ROOT, "../shared/schemas/edgesdk.bench.1.schema.json");
    if (shared.isFile()) {
      assertEquals(Files.readString(shared.toPath()), Files.readString(
          new File("src/test/resources/edgesdk.bench.1.schema.json").toPath()));
    }
  }
}
