package dev.edgesdk.bench;

import dev.edgesdk.EdgeBundle;
import dev.edgesdk.Manifest;
import dev.edgesdk.Runtimes;
import dev.edgesdk.SelfTest;
import dev.edgesdk.Session;
import dev.edgesdk.Tensor;
import dev.edgesdk.TensorSpec;
import dev.edgesdk.Variant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * One process of the protocol, §3 step 5: load, first inference, warm-up, measurement, memory, state. Apart from the
 * record of {@code processes} it says what was measured: the model, the engine, and whether its answers are right.
 */
final class ProcessRun {
  private static final long INNER_BELOW_NS = 200_000;
  private static final int MOST_SAMPLES = 20_000; // a report holds no more inline

  /** What the platform does: the app gives Android's, tests their own. */
  interface Platform {
    EdgeBundle open() throws Exception;

    JSONObject state() throws JSONException;

    int threads();

    boolean debuggable();

    Trace.Source trace();
  }

  private final Options options;
  private final Platform platform;
  private final JSONObject record = new JSONObject();
  private final JSONObject memory = new JSONObject();
  private List<Map<String, Tensor>> inputs;
  private Map<String, Tensor> outputs;
  private int turn;

  ProcessRun(Options options, Platform platform) {
    this.options = options;
    this.platform = platform;
  }

  /** Runs the whole; anything thrown means that there is no result. */
  JSONObject run(int index) throws Exception {
    record.put("index", index).put("order", index).put("variant", "A").put("exit_code", 0);
    record.put("started_utc", Report.utc(System.currentTimeMillis())).put("mono_start_ns", System.nanoTime());
    Proc.resetPeak();
    memory.put("baseline", Proc.memory());
    Session.Config config = Session.Config.DEFAULT.withThreads(threads());
    if (!options.variant.isEmpty()) {
      config = config.withVariant(options.variant);
    }
    long start = System.nanoTime();
    try (EdgeBundle bundle = platform.open(); Session session = bundle.session(config)) {
      long total = System.nanoTime() - start;
      // The file was written by the system moments or days ago: nothing tells whether its pages are in memory.
      record.put("load", new JSONObject().put("total_ns", total).put("page_cache", "unknown")
          .put("compile_cache", "unknown"));
      memory.put("after_load", Proc.memory());
      Proc.resetPeak();
      measure(session);
      SelfTest test = session.selfTest();
      return new JSONObject()
          .put("process", record)
          .put("self_test", new JSONObject().put("calls", test.calls()).put("ok", test.ok())
              .put("text", test.toString()))
          .put("model", model(session))
          .put("runtime", runtime(session));
    }
  }

  private int threads() {
    return options.threads > 0 ? options.threads : platform.threads();
  }

  private void measure(Session session) throws JSONException {
    inputs = Inputs.make(session.manifest().inputs(), options.seed);
    long start = System.nanoTime();
    outputs = session.run(inputs.get(0));
    record.put("first_inference_ns", System.nanoTime() - start);
    memory.put("after_first", Proc.memory());
    Proc.resetPeak();
    JSONArray spins = new JSONArray().put(Spin.probe());
    record.put("state_before", platform.state());
    Warmup warmup = new Warmup(options.smoke());
    while (!warmup.over()) {
      warmup.add(time(session, 1));
    }
    record.put("warmup", new JSONObject().put("iterations", warmup.count()).put("duration_ns", warmup.total())
        .put("converged", warmup.converged()).put("window", warmup.window()).put("tolerance", Warmup.TOLERANCE));
    double typical = warmup.typical();
    int inner = options.smoke() || typical >= INNER_BELOW_NS ? 1 : (int) Math.ceil(INNER_BELOW_NS / Math.max(1, typical));
    loop(session, inner, Math.max(1, typical * inner));
    record.put("state_after", platform.state());
    record.put("spin_probe_ns", spins.put(Spin.probe()));
    memory.put("end", Proc.memory());
    record.put("memory", memory);
  }

  /** Nothing but the clock and the engine: samples go into arrays that are there already. */
  private void loop(Session session, int inner, double typical) throws JSONException {
    int room = (int) Math.min(MOST_SAMPLES, Math.max(2.0 * options.minIterations, 4e9 * options.minSeconds / typical));
    long[] samples = new long[Math.max(room, options.minIterations)];
    long[] starts = new long[samples.length];
    Long switches = Proc.involuntarySwitches();
    double expected = Math.min(
        1e9 * options.maxSeconds, Math.max(1e9 * options.minSeconds, typical * options.minIterations));
    Trace trace = new Trace(platform.trace(), expected);
    trace.begin();
    long begin = System.nanoTime();
    long end = begin;
    int count = 0;
    while (count < samples.length
        && (count < options.minIterations || end - begin < options.minSeconds * 1e9)
        && end - begin < options.maxSeconds * 1e9) {
      starts[count] = end - begin;
      samples[count++] = time(session, inner);
      end = System.nanoTime();
      trace.mark(end - begin); // not within a sample
    }
    trace.end(end - begin);
    Long after = Proc.involuntarySwitches();
    JSONObject measure = new JSONObject()
        .put("iterations", count)
        .put("duration_ns", end - begin)
        .put("inner_loops", inner)
        .put("samples_ns", new JSONArray(Arrays.copyOf(samples, count)))
        .put("starts_ns", new JSONArray(Arrays.copyOf(starts, count)));
    if (switches != null && after != null) {
      measure.put("ctx_switches_involuntary", after - switches);
    }
    trace.put(record, measure, begin);
    record.put("measure", measure);
  }

  /** A run apart, for its energy: as long an idle time, then inferences; no timing of it is used. */
  JSONObject energy() throws Exception {
    Session.Config config = Session.Config.DEFAULT.withThreads(threads());
    if (!options.variant.isEmpty()) {
      config = config.withVariant(options.variant);
    }
    try (EdgeBundle bundle = platform.open(); Session session = bundle.session(config)) {
      inputs = Inputs.make(session.manifest().inputs(), options.seed);
      outputs = session.run(inputs.get(0));
      JSONObject found = new JSONObject().put("idle_before", platform.state());
      Thread.sleep(1000L * options.energySeconds);
      found.put("idle_after", platform.state()).put("load_before", platform.state());
      long end = System.nanoTime() + 1_000_000_000L * options.energySeconds;
      long count = 0;
      do {
        time(session, 1);
        count++;
      } while (System.nanoTime() < end);
      return found.put("load_after", platform.state()).put("inferences", count);
    }
  }

  /** One sample: the mean of {@code inner} calls, in nanoseconds. */
  private long time(Session session, int inner) {
    long start = System.nanoTime();
    for (int i = 0; i < inner; i++) {
      session.run(inputs.get(turn), outputs);
      turn = turn + 1 == inputs.size() ? 0 : turn + 1;
    }
    return (System.nanoTime() - start) / inner;
  }

  private JSONObject model(Session session) throws JSONException {
    Manifest manifest = session.manifest();
    Variant variant = session.variant();
    JSONArray in = new JSONArray();
    for (TensorSpec spec : manifest.inputs()) {
      in.put(tensor(spec.name(), inputs.get(0).get(spec.name())));
    }
    JSONArray out = new JSONArray();
    for (TensorSpec spec : manifest.outputs()) {
      out.put(tensor(spec.name(), outputs.get(spec.name())));
    }
    String file = variant.file();
    return new JSONObject()
        .put("name", manifest.name())
        .put("format", file.substring(file.lastIndexOf('.') + 1))
        .put("sha256", variant.sha256())
        .put("size_bytes", variant.size())
        .put("precision", variant.quantization())
        .put("inputs", in)
        .put("outputs", out)
        .put("provenance", new JSONObject().put("bundle_version", manifest.version()).put("variant", variant.id()));
  }

  private static JSONObject tensor(String name, Tensor tensor) throws JSONException {
    return new JSONObject().put("name", name).put("dtype", tensor.dtype().word())
        .put("shape", new JSONArray(tensor.shape()));
  }

  private JSONObject runtime(Session session) throws JSONException {
    Variant variant = session.variant();
    String version = Runtimes.find(variant.runtime()).version();
    return new JSONObject()
        .put("name", variant.runtime())
        .put("version", version.isEmpty() ? "unknown" : version)
        .put("build_type", platform.debuggable() ? "debug" : "release")
        .put("backend", variant.backend() == null ? "cpu" : variant.backend())
        .put("threads", threads())
        .put("affinity_mask", JSONObject.NULL)
        .put("load_mode", "mmap")
        .put("options", new JSONObject());
  }
}
