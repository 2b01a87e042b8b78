package dev.edgesdk;

import java.io.File;
import java.nio.FloatBuffer;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/** A call through {@link Session} against the bare engine's: 150,528 floats in, 12 out, next to nothing to compute. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.SampleTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
public class Overhead {
  /** The runtime, as the manifest names it. */
  @Param({"executorch", "onnx", "torchscript"})
  public String engine;

  private ModelFile files;
  private Session session;
  private Bare bare;
  private Map<String, Tensor> inputs;
  private Map<String, Tensor> outputs;

  /** Opens both; they must say the same. */
  @Setup
  public void open() throws Exception {
    try (EdgeBundle bundle = EdgeBundle.open(new File(System.getProperty("edgesdk.wide")))) {
      Manifest manifest = bundle.manifest();
      Variant variant = manifest.variants().stream().filter(v -> v.runtime().equals(engine)).findFirst().get();
      files = new ModelFile(bundle, variant);
      session = bundle.session(Session.Config.DEFAULT.withThreads(1).withVariant(variant.id()));
      Tensor x = Tensor.allocate(DType.FLOAT32, Bare.sizes(manifest.inputs().get(0)));
      float[] values = new float[x.size()];
      for (int i = 0; i < values.length; i++) {
        values[i] = i % 251 - 125;
      }
      x.data().asFloatBuffer().put(values);
      inputs = Collections.singletonMap(manifest.inputs().get(0).name(), x);
      outputs = Collections.singletonMap(
          manifest.outputs().get(0).name(), Tensor.allocate(DType.FLOAT32, Bare.sizes(manifest.outputs().get(0))));
      bare = Bare.of(files, values);
    }
    bare.run();
    session.run(inputs, outputs);
    FloatBuffer ours = outputs.values().iterator().next().data().asFloatBuffer();
    if (!ours.equals(bare.answer()) || ours.get(1) != -248) {
      throw new IllegalStateException("the two don't say the same");
    }
  }

  @TearDown
  public void close() {
    session.close();
    files.delete();
  }

  /** The engine as an app would call it. */
  @Benchmark
  public void bare() throws Exception {
    bare.run();
  }

  /** The same through this library. */
  @Benchmark
  public void session() {
    session.run(inputs, outputs);
  }
}
