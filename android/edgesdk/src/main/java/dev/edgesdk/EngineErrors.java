package dev.edgesdk;

import java.util.ArrayList;
import java.util.List;

/** Sentences that are the same for several engines. */
final class EngineErrors {
  private EngineErrors() {}

  /** Classes, native library and this library don't belong together. */
  static EdgeException releases(String engine, String file, String fix, Throwable cause) {
    return new EdgeException(
        "load_failed",
        engine + " can't load " + file + ": " + Words.line(cause) + ".",
        "Its Java classes and its native library, or this library, are of different releases.",
        fix,
        cause);
  }

  static EdgeException memory(String file, Throwable cause) {
    return new EdgeException(
        "out_of_memory",
        "There is not enough memory to load " + file + ".",
        "The engine needs room for weights and activations (" + Words.line(cause) + ").",
        "Close other sessions, or package a smaller or quantized model.",
        cause);
  }

  static EdgeException run(String engine, String file, Tensor[] given, String said, Throwable cause) {
    List<String> shapes = new ArrayList<>();
    for (Tensor tensor : given) {
      shapes.add(tensor.toString());
    }
    return new EdgeException(
        "run_failed",
        file + " did not run on " + Words.join(shapes) + ".",
        engine + " reports: " + said + ".",
        "Give shapes and dtypes as the signature says; a size that varies must be packaged so: "
            + "--input 'NAME=float32[1..8,3,224,224]'.",
        cause);
  }

  static EdgeException dtype(String engine, String what, TensorSpec spec, String known) {
    return new EdgeException(
        "dtype_unsupported",
        engine + "'s Java library has no " + what + " of " + spec.dtype() + ", as '" + spec.name() + "' is.",
        "It knows " + known + ".",
        "Give the model inputs and outputs of another dtype, or package with --runtime onnx.");
  }

  static EdgeException outputs(String problem) {
    return new EdgeException(
        "wrong_outputs",
        problem + ".",
        "The file in the bundle is not the one that the manifest describes.",
        Errors.AGAIN);
  }

  static EdgeException size(TensorSpec spec, long[] shape, Tensor given) {
    return new EdgeException(
        "run_failed",
        "Output '" + spec.name() + "' has the shape " + Words.shape(shape) + ", its tensor is " + given + ".",
        "The outputs' sizes follow from those of the inputs.",
        "Give a tensor of that shape, or call run(inputs).");
  }
}
