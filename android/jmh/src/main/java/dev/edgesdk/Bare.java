package dev.edgesdk;

import ai.onnxruntime.OnnxJavaType;
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtSession;
import java.nio.FloatBuffer;
import java.util.Collections;
import java.util.Map;
import org.pytorch.IValue;
import org.pytorch.LiteModuleLoader;
import org.pytorch.executorch.EValue;

/** What an app without this library would write by hand, as well as it can be written: one input, one output. */
interface Bare {
  /** Runs once; the answer is in {@link #answer()}. */
  void run() throws Exception;

  /** Where the answer lies. */
  FloatBuffer answer();

  /** The engine itself, of the runtime that the variant names, with one thread. */
  static Bare of(ModelFile files, float[] x) throws Exception {
    long[] in = sizes(files.manifest.inputs().get(0));
    long[] out = sizes(files.manifest.outputs().get(0));
    FloatBuffer given = Tensor.allocate(DType.FLOAT32, in).data().asFloatBuffer();
    given.put(x).rewind();
    Tensor answer = Tensor.allocate(DType.FLOAT32, out);
    switch (files.variant.runtime()) {
      case "executorch":
        return executorch(files, given, in, answer.data().asFloatBuffer());
      case "torchscript":
        return torchscript(files, given, in, answer.data().asFloatBuffer());
      default:
        return onnx(files, given, in, answer);
    }
  }

  static long[] sizes(TensorSpec spec) {
    return spec.shape().stream().mapToLong(Dim::max).toArray();
  }

  private static Bare executorch(ModelFile files, FloatBuffer x, long[] in, FloatBuffer answer) {
    org.pytorch.executorch.Module module = org.pytorch.executorch.Module.load(
        files.file().getPath(), org.pytorch.executorch.Module.LOAD_MODE_MMAP, 1);
    EValue[] inputs = {EValue.from(org.pytorch.executorch.Tensor.fromBlob(x, in))};
    return made(answer, () -> module.forward(inputs)[0].toTensor().copyDataInto(answer));
  }

  private static Bare torchscript(ModelFile files, FloatBuffer x, long[] in, FloatBuffer answer) {
    org.pytorch.PyTorchAndroid.setNumThreads(1);
    org.pytorch.Module module = LiteModuleLoader.load(files.file().getPath());
    IValue[] inputs = {IValue.from(org.pytorch.Tensor.fromBlob(x, in))};
    return made(answer, () -> answer.put(module.forward(inputs).toTensor().getDataAsFloatArray()));
  }

  private static Bare onnx(ModelFile files, FloatBuffer x, long[] in, Tensor answer) throws Exception {
    OrtEnvironment environment = OrtEnvironment.getEnvironment();
    OrtSession session;
    try (OrtSession.SessionOptions options = new OrtSession.SessionOptions()) {
      options.setIntraOpNumThreads(1);
      session = environment.createSession(files.file().getPath(), options);
    }
    Map<String, OnnxTensor> inputs = Collections.singletonMap(
        session.getInputNames().iterator().next(), OnnxTensor.createTensor(environment, x, in));
    Map<String, OnnxTensor> outputs = Collections.singletonMap(
        session.getOutputNames().iterator().next(),
        OnnxTensor.createTensor(environment, answer.data(), answer.shape(), OnnxJavaType.FLOAT));
    return made(
        answer.data().asFloatBuffer(), () -> session.run(inputs, Collections.emptySet(), outputs).close());
  }

  /** A call. */
  interface Call {
    /** Runs once. */
    void run() throws Exception;
  }

  private static Bare made(FloatBuffer answer, Call call) {
    return new Bare() {
      @Override
      public void run() throws Exception {
        answer.clear();
        call.run();
      }

      @Override
      public FloatBuffer answer() {
        answer.clear();
        return answer;
      }
    };
  }
}
