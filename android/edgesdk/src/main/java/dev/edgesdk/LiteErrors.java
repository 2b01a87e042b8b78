package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/** What the Lite interpreter says, in sentences, with the codes of Python's {@code runtimes/torchscript.py}. */
final class LiteErrors {
  private static final String ANEW = "Build the bundle again: edgesdk package MODEL --runtime torchscript";

  private LiteErrors() {}

  static EdgeException load(String file, Throwable cause) {
    String text = String.valueOf(cause.getMessage());
    if (cause instanceof LinkageError) {
      return EngineErrors.releases(
          "PyTorch Mobile",
          file,
          "Take one release of org.pytorch:pytorch_android_lite, and no other library with org.pytorch's classes.",
          cause);
    }
    if (text.contains("ops cannot be found") || text.contains("Unknown builtin")) {
      int open = text.indexOf('{');
      int close = text.indexOf('}', open + 1);
      String names = open < 0 || close < 0 ? Words.line(cause) : text.substring(open + 1, close).trim();
      return new EdgeException(
          "unsupported_op",
          file + " needs operators that this library lacks: " + names.replaceAll(",\\s*$", "") + ".",
          "It was made for a newer release, or for another build, of PyTorch Mobile.",
          "Take org.pytorch:pytorch_android_lite:2.1.0 or newer, or package for executorch.",
          cause);
    }
    if (text.contains("Lite Interpreter version number does not match")) {
      return new EdgeException(
          "bytecode_too_new",
          file + " has a bytecode version that this library doesn't read.",
          Words.line(cause) + ".",
          "Take a newer org.pytorch:pytorch_android_lite, or package with an older bytecode version.",
          cause);
    }
    if (text.contains("not enough memory") || text.contains("can't allocate memory")) {
      return EngineErrors.memory(file, cause);
    }
    return bad(file, Words.line(cause), cause);
  }

  static EdgeException full(String file) {
    return new EdgeException(
        "full_torchscript",
        file + " is a full TorchScript archive without Lite bytecode.",
        "It was saved with torch.jit.save; the Lite interpreter needs _save_for_lite_interpreter.",
        "Package it: edgesdk package " + file + " --runtime torchscript");
  }

  static EdgeException bad(String file, String problem, @Nullable Throwable cause) {
    return new EdgeException(
        "not_torchscript_lite",
        file + " can't be loaded as a TorchScript Lite file.",
        "It is damaged, cut short, or another kind of file: " + problem + ".",
        ANEW,
        cause);
  }

  static EdgeException run(String file, Tensor[] given, Throwable cause) {
    String text = String.valueOf(cause.getMessage());
    int quantized = text.indexOf("Could not run 'quantized::");
    if (quantized >= 0) {
      int end = text.indexOf('\'', quantized + 15);
      return new EdgeException(
          "quantized_without_stubs",
          text.substring(quantized + 15, end) + " got float data: the model was made int8 without QuantStub and DeQuantStub.",
          "Eager-mode quantization only replaces layers; without stubs nothing turns the input into int8.",
          "Package the float model instead, with --quantize static-int8 --calibration PATH: it needs no stubs.",
          cause);
    }
    return EngineErrors.run("PyTorch", file, given, said(text), cause);
  }

  /** The line that tells the most: the last one with an error in it, after the model's call stack, before the engine's. */
  private static String said(String text) {
    String best = "";
    int stack = text.indexOf("Exception raised from");
    for (String line : (stack > 0 ? text.substring(0, stack) : text).trim().split("\n")) {
      boolean telling = line.contains("Error") || line.contains("Expected");
      best = telling || best.isEmpty() ? line.trim() : best;
    }
    best = best.length() > 300 ? best.substring(0, 300) : best;
    return best.endsWith(".") ? best.substring(0, best.length() - 1) : best;
  }

  static EdgeException dtype(String what, TensorSpec spec) {
    return EngineErrors.dtype("PyTorch Mobile", what, spec, "float32, float64, int64, int32, int8 and uint8");
  }
}
