package dev.edgesdk.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The evidence of §6 and §12 from traces of a simulated phone: 4 small cores at up to 1.8 GHz, 4 big ones at up to 2.8. */
final class TraceTest {
  private static final Options QUICK = BenchTest.options("profile", "quick");

  /** A phone whose big cores slow down, whose thread moves, and that others keep busy. */
  private static final class Phone implements Trace.Source {
    private final double slowFrom;
    private final int[] cpus;
    private final long waits;
    private int reads;
    private int stats;
    private long run;
    private long fast;
    private long slow;

    Phone(double slowFrom, long waits, int... cpus) {
      this.slowFrom = slowFrom;
      this.cpus = cpus;
      this.waits = waits;
    }

    /** Each mark is 100 ticks of 10 ms later. */
    @Override
    public String residency() {
      boolean cool = reads++ < slowFrom * Trace.MARKS;
      fast += cool ? 100 : 20;
      slow += cool ? 0 : 80;
      return "policy0\n300000 5\n1800000 " + 100 * reads + "\npolicy4\n1200000 " + slow + "\n2000000 0\n2800000 " + fast
          + "\n";
    }

    @Override
    public String stat() {
      int cpu = cpus[stats++ * cpus.length / (Trace.MARKS + 1)];
      StringBuilder fields = new StringBuilder("4711 (a (b) c) S");
      for (int i = 4; i <= 38; i++) {
        fields.append(i == 12 ? " 3" : " 0");
      }
      return fields.append(' ').append(cpu).append(" 0 0").toString();
    }

    @Override
    public String schedstat() {
      run += 1_000_000_000;
      return run + " " + (run / 1_000_000_000 - 1) * waits + " 77\n";
    }
  }

  private static JSONObject device() throws JSONException {
    JSONObject device = BenchTest.device(false, false, "user");
    JSONArray clusters = new JSONArray()
        .put(new JSONObject().put("id", 0).put("cpus", new JSONArray(List.of(4, 5, 6, 7))).put("mask", "f0")
            .put("max_freq_hz", 2_000_000_000L))
        .put(new JSONObject().put("id", 1).put("cpus", new JSONArray(List.of(0, 1, 2, 3))).put("mask", "0f"));
    device.getJSONObject("device").getJSONObject("cpu").put("clusters", clusters);
    return device;
  }

  /** A measurement of 5 s on that phone. */
  private static JSONObject run(Trace.Source phone, long[] samples) throws JSONException {
    JSONObject found = BenchTest.made(0, samples);
    JSONObject process = found.getJSONObject("process");
    Trace trace = new Trace(phone, 5e9);
    trace.begin();
    for (long passed = 0; passed < 5_000_000_000L; passed += 20_000_000) {
      trace.mark(passed);
    }
    trace.end(5_000_000_000L);
    trace.put(process, process.getJSONObject("measure"), 1000);
    return found;
  }

  private static JSONObject report(Trace.Source phone) throws Exception {
    return BenchTest.report(QUICK, device(), run(phone, BenchTest.steady(1, 400, 20_000_000)));
  }

  @Test
  void aSteadyPhoneHasNoFlag() throws Exception {
    JSONObject report = report(new Phone(2, 1_000_000, 4, 5, 7));
    assertEquals(Set.of(), BenchTest.codes(report));
    JSONObject measure = report.getJSONArray("processes").getJSONObject(0).getJSONObject("measure");
    assertEquals("[4,5,7]", measure.getJSONArray("cpus_seen").toString());
    assertEquals(1_000_000_000L, measure.getLong("cpu_time_ns"));
    assertEquals(0, measure.getLong("page_faults_major"));
    JSONArray series = report.getJSONObject("results").getJSONObject("thermal").getJSONArray("series");
    assertEquals(6, series.length(), "two states, four marks");
  }

  @Test
  void fallingFrequenciesAreFoundInTheLastThird() throws Exception {
    JSONObject report = report(new Phone(0.6, 0, 4));
    assertEquals(Set.of("FREQ_DROPPED"), BenchTest.codes(report));
    assertEquals("semivalid", report.getJSONObject("validity").getString("status"));
    String said = report.getJSONObject("results").getJSONObject("thermal").getJSONArray("evidence").getString(0);
    assertEquals("FREQ_DROPPED: policy4 ran at 2800 MHz in the first third, at 1520 MHz in the last.", said);
    assertEquals(Set.of(), BenchTest.codes(report(new Phone(0.6, 0, 2))), "the small cores kept their frequency");
  }

  @Test
  void aThreadThatMovedToAnotherKindOfCoreIsFound() throws Exception {
    JSONObject report = report(new Phone(2, 0, 4, 4, 4, 1));
    assertEquals(Set.of("MIGRATED_CLUSTER"), BenchTest.codes(report));
    assertEquals("valid", report.getJSONObject("validity").getString("status"), "a warning, as §12 has it");
  }

  @Test
  void neighboursAreFoundByWaitingAndByTheLoadAverage() throws Exception {
    assertEquals(Set.of("BACKGROUND_LOAD"), BenchTest.codes(report(new Phone(2, 100_000_000, 4))));
    JSONArray busy = new JSONArray();
    dev.edgesdk.bench.Phone.load(busy, "5.01 2.00 1.00 3/700 4711\n", 8);
    assertEquals("warn", busy.getJSONObject(0).getString("status"));
    JSONObject run = run(new Phone(2, 0, 4), BenchTest.steady(1, 400, 20_000_000));
    assertEquals(Set.of("BACKGROUND_LOAD"), BenchTest.codes(BenchTest.report(QUICK, device(), busy, null, run)));
    JSONArray calm = new JSONArray();
    dev.edgesdk.bench.Phone.load(calm, "0.50 2.00 1.00 3/700 4711\n", 8);
    dev.edgesdk.bench.Phone.load(calm, null, 8);
    assertEquals("pass", calm.getJSONObject(0).getString("status"));
    assertEquals("skipped", calm.getJSONObject(1).getString("status"));
  }

  @Test
  void twoHeapsAreFoundAndNoiseIsNone() throws Exception {
    Random random = new Random(5);
    long[] two = new long[400];
    for (int i = 0; i < two.length; i++) {
      two[i] = (long) ((random.nextInt(4) == 0 ? 26e6 : 20e6) * (1 + 0.004 * random.nextGaussian()));
    }
    JSONObject report = BenchTest.report(QUICK, device(), run(new Phone(2, 0, 4), two));
    assertTrue(BenchTest.codes(report).contains("BIMODAL"), BenchTest.codes(report).toString());
    Arrays.sort(two);
    assertEquals(1.3, Modes.ratio(two), 0.01);
    int alarms = 0;
    for (int trial = 0; trial < 2000; trial++) {
      long[] one = new long[32 + random.nextInt(400)];
      double width = 0.002 + 0.1 * random.nextDouble();
      for (int i = 0; i < one.length; i++) { // with the tail that latencies have
        double tail = random.nextInt(20) == 0 ? random.nextDouble() : 0;
        one[i] = (long) (20e6 * Math.exp(width * random.nextGaussian() + tail));
      }
      Arrays.sort(one);
      alarms += Modes.ratio(one) > 1 ? 1 : 0;
    }
    assertTrue(alarms <= 20, alarms + " of 2000 unimodal runs were called bimodal");
    assertEquals(1, Modes.ratio(new long[] {5, 5, 5}));
    assertEquals(1, Modes.ratio(new long[0]));
  }

  /** A drift upwards is a sign of throttling, one downwards a warm-up that was too short. */
  @Test
  void driftsAreToldApart() throws Exception {
    long[] rising = new long[400];
    for (int i = 0; i < rising.length; i++) {
      rising[i] = 20_000_000 + 4000L * i;
    }
    JSONObject up = BenchTest.report(QUICK, device(), BenchTest.made(0, rising));
    assertEquals(Set.of("LATENCY_DRIFT"), BenchTest.codes(up));
    assertEquals("semivalid", up.getJSONObject("validity").getString("status"));
    long[] falling = new long[400];
    for (int i = 0; i < falling.length; i++) {
      falling[i] = rising[399 - i];
    }
    JSONObject down = BenchTest.report(QUICK, device(), BenchTest.made(0, falling));
    assertEquals("valid", down.getJSONObject("validity").getString("status"));
  }

  @Test
  void hiddenFilesLeaveTheFiguresOut() throws Exception {
    Trace.Source nothing = new Trace.Source() {
      @Override
      public String residency() {
        return null;
      }

      @Override
      public String stat() {
        return null;
      }

      @Override
      public String schedstat() {
        return null;
      }
    };
    JSONObject report = report(nothing);
    assertEquals(Set.of(), BenchTest.codes(report));
    JSONObject measure = report.getJSONArray("processes").getJSONObject(0).getJSONObject("measure");
    assertFalse(measure.has("cpus_seen") || measure.has("cpu_time_ns") || measure.has("page_faults_major"));
  }

  @Test
  void tablesAreReadFromTheFilesOfEachPolicy(@TempDir Path folder) throws Exception {
    assertNull(Trace.residency(folder.toFile()));
    for (String policy : new String[] {"policy4", "policy0"}) {
      Path stats = Files.createDirectories(folder.resolve(policy + "/stats"));
      Files.writeString(stats.resolve("time_in_state"), "300000 17\n1800000 4\n");
    }
    Files.createDirectories(folder.resolve("policy7"));
    JSONObject found = Trace.parse(Trace.residency(folder.toFile()));
    assertEquals(2, found.length());
    assertEquals(17, found.getJSONObject("policy4").getLong("300000"));
    assertEquals(900_000, Trace.meanKilohertz(
        new JSONObject("{'300000': 10, '1800000': 5}"), new JSONObject("{'300000': 13, '1800000': 7}")), 1);
    assertTrue(Trace.cpu(Files.readString(Path.of("/proc/thread-self/stat"))) >= 0);
    assertTrue(new File("/proc/thread-self/schedstat").isFile());
  }

  private static JSONObject state(double seconds, double microampereHours, boolean charging) throws JSONException {
    return new JSONObject().put("t_ns", (long) (seconds * 1e9)).put("charge_uah", (int) microampereHours)
        .put("voltage_uv", 4_000_000).put("charging", charging);
  }

  private static JSONObject energy(double seconds, double idleLoss, double loadLoss, boolean charging)
      throws JSONException {
    return new JSONObject()
        .put("idle_before", state(0, 3_000_000, charging)).put("idle_after", state(seconds, 3_000_000 - idleLoss, false))
        .put("load_before", state(seconds, 3_000_000 - idleLoss, false))
        .put("load_after", state(2 * seconds, 3_000_000 - idleLoss - loadLoss, false))
        .put("inferences", 30_000L);
  }

  @Test
  void energyIsWhatTheBatteryLostBeyondAnIdleRun() throws Exception {
    JSONObject run = run(new Phone(2, 0, 4), BenchTest.steady(1, 400, 20_000_000));
    JSONArray none = new JSONArray();
    JSONObject found = BenchTest.report(QUICK, device(), none, energy(600, 25_000, 150_000, false), run)
        .getJSONObject("results").getJSONObject("energy");
    assertEquals("charge_counter", found.getString("method"));
    assertEquals(0.15 * 3600 * 4 / 600, found.getDouble("mean_power_w"), 1e-9); // 150 mAh at 4 V in 600 s
    assertEquals(0.025 * 3600 * 4 / 600, found.getDouble("idle_power_w"), 1e-9);
    assertEquals(0.125 * 3600 * 4 / 30_000, found.getDouble("energy_per_inference_j"), 1e-9);
    assertEquals("± 0.00048 J per inference: one step of 1 mAh over 30000 inferences.", found.getString("resolution_note"));
    List<String> why = new ArrayList<>();
    for (JSONObject one : new JSONObject[] {
        energy(600, 25_000, 25_500, false), energy(600, 25_000, 150_000, true), energy(60, 2500, 15_000, false)}) {
      JSONObject block = Energy.of(one);
      assertTrue(block.isNull("energy_per_inference_j"));
      why.add(block.getString("resolution_note"));
    }
    assertTrue(why.get(0).contains("below one step") && why.get(1).contains("charger") && why.get(2).contains("600 s"),
        why.toString());
    JSONObject without = energy(600, 1, 2, false);
    without.getJSONObject("load_after").remove("charge_uah");
    assertTrue(Energy.of(without).getString("resolution_note").contains("no charge counter"));
  }
}
