package dev.edgesdk;

import ai.onnxruntime.OnnxJavaType;
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtSession;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import org.pytorch.executorch.EValue;
import org.pytorch.executorch.Module;

/**
 * What a call of {@link Session} costs beyond the same call of the bare engine, from reused buffers to reused buffers.
 *
 * <p>Both take turns in short rounds, so that a busy machine slows both; the smallest of the rounds' medians counts.
 */
final class Overhead {
  private static final int ROUNDS = 40;
  private static final int CALLS = 400;

  private interface Call {
    void run() throws Exception;
  }

  private Overhead() {}

  /** Argument: a bundle with one input x and one output. */
  public static void main(String[] arguments) throws Exception {
    File file = new File(arguments[0]);
    System.out.println("engine       bare µs  session µs  overhead µs  bare B/call  session B/call");
    for (String engine : new String[] {"executorch", "onnx"}) {
      try (EdgeBundle bundle = EdgeBundle.open(file)) {
        for (Variant variant : bundle.manifest().variants()) {
          if (variant.runtime().equals(engine)) {
            measure(bundle, variant);
          }
        }
      }
    }
    System.exit(0); // the engine's own thread would keep the process
  }

  private static void measure(EdgeBundle bundle, Variant variant) throws Exception {
    TensorSpec in = bundle.manifest().inputs().get(0);
    TensorSpec out = bundle.manifest().outputs().get(0);
    Tensor x = Tensor.allocate(in.dtype(), sizes(in));
    Tensor y = Tensor.allocate(out.dtype(), sizes(out));
    ModelFile files = new ModelFile(bundle, variant);
    Session.Config config = Session.Config.DEFAULT.withThreads(1).withVariant(variant.id());
    try (Session session = bundle.session(config)) {
      Map<String, Tensor> inputs = Collections.singletonMap(in.name(), x);
      Map<String, Tensor> outputs = Collections.singletonMap(out.name(), y);
      Call wrapped = () -> session.run(inputs, outputs);
      Call bare = variant.runtime().equals("onnx")
          ? onnx(files, in.name(), out.name(), sizes(in), sizes(out))
          : executorch(files, sizes(in), sizes(out));
      report(variant.runtime(), bare, wrapped);
    } finally {
      files.delete();
    }
  }

  private static long[] sizes(TensorSpec spec) {
    return spec.shape().stream().mapToLong(Dim::max).toArray();
  }

  private static FloatBuffer floats(long[] shape) {
    return org.pytorch.executorch.Tensor.allocateFloatBuffer((int) org.pytorch.executorch.Tensor.numel(shape));
  }

  private static Call executorch(ModelFile files, long[] in, long[] out) {
    Module module = Module.load(files.file().getPath(), Module.LOAD_MODE_MMAP, 1);
    EValue[] inputs = {EValue.from(org.pytorch.executorch.Tensor.fromBlob(floats(in), in))};
    FloatBuffer answer = floats(out);
    return () -> {
      EValue[] found = module.forward(inputs);
      answer.clear();
      found[0].toTensor().copyDataInto(answer);
    };
  }

  private static Call onnx(ModelFile files, String x, String y, long[] in, long[] out) throws Exception {
    OrtEnvironment environment = OrtEnvironment.getEnvironment();
    OrtSession session;
    try (OrtSession.SessionOptions options = new OrtSession.SessionOptions()) {
      options.setIntraOpNumThreads(1);
      session = environment.createSession(files.file().getPath(), options);
    }
    Map<String, OnnxTensor> inputs = Collections.singletonMap(x, OnnxTensor.createTensor(environment, floats(in), in));
    Tensor answer = Tensor.allocate(DType.FLOAT32, out);
    Map<String, OnnxTensor> outputs = Collections.singletonMap(
        y, OnnxTensor.createTensor(environment, answer.data(), out, OnnxJavaType.FLOAT));
    return () -> session.run(inputs, Collections.emptySet(), outputs).close();
  }

  private static void report(String engine, Call bare, Call wrapped) throws Exception {
    for (int i = 0; i < 20; i++) { // both compiled
      round(bare);
      round(wrapped);
    }
    double least = Double.MAX_VALUE;
    double most = Double.MAX_VALUE;
    double[] gaps = new double[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
      double one = round(bare);
      double other = round(wrapped);
      least = Math.min(least, one);
      most = Math.min(most, other);
      gaps[i] = other - one;
    }
    Arrays.sort(gaps);
    System.out.printf("%-10s %9.2f %11.2f %12.2f %12d %15d   (median of the rounds' gaps: %.2f)%n",
        engine, least, most, most - least, bytes(bare), bytes(wrapped), gaps[ROUNDS / 2]);
  }

  /** The median time of a call, in microseconds. */
  private static double round(Call call) throws Exception {
    long[] times = new long[CALLS];
    for (int i = 0; i < CALLS; i++) {
      long begin = System.nanoTime();
      call.run();
      times[i] = System.nanoTime() - begin;
    }
    Arrays.sort(times);
    return times[CALLS / 2] / 1e3;
  }

  private static long bytes(Call call) throws Exception {
    com.sun.management.ThreadMXBean threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    long id = Thread.currentThread().getId();
    long before = threads.getThreadAllocatedBytes(id);
    for (int i = 0; i < 1000; i++) {
      call.run();
    }
    return (threads.getThreadAllocatedBytes(id) - before) / 1000;
  }
}
