package dev.edgesdk;

import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;
import org.pytorch.executorch.ExecutorchRuntimeException;

/** What ExecuTorch says, in sentences, with the codes of Python's {@code runtimes/_et_run.py}. */
final class EtErrors {
  private static final Pattern KERNEL = Pattern.compile("Missing operator: \\[\\d+\\] (\\S+)");
  private static final Pattern BACKEND = Pattern.compile("Backend (\\S+) is not registered");
  private static final String ANEW = "Build the bundle again: edgesdk package MODEL --runtime executorch";

  private EtErrors() {}

  static EdgeException load(String file, Throwable cause, String log) {
    if (cause instanceof LinkageError) {
      return EngineErrors.releases(
          "ExecuTorch",
          file,
          "Take one release of org.pytorch:executorch-android: the one that the manifest names, or a newer one.",
          cause);
    }
    int code = code(cause);
    Set<String> kernels = found(KERNEL, log);
    if (code == ExecutorchRuntimeException.OPERATOR_MISSING) {
      return new EdgeException(
          "unsupported_op",
          file + " needs operators that this library has no kernel for"
              + (kernels.isEmpty() ? "" : ": " + Words.join(kernels)) + ".",
          "It was made for another build of ExecuTorch.",
          ANEW,
          cause);
    }
    Set<String> backends = found(BACKEND, log);
    if (code == ExecutorchRuntimeException.NOT_FOUND && !backends.isEmpty()) {
      return new EdgeException(
          "backend_missing",
          file + " needs the delegate " + Words.join(backends) + ", which this library does not have.",
          "ExecuTorch is built with some delegates and without others.",
          "Run it on the device that it was made for, or package with --backend xnnpack.",
          cause);
    }
    switch (code) {
      case ExecutorchRuntimeException.INVALID_PROGRAM:
      case ExecutorchRuntimeException.INVALID_ARGUMENT:
      case ExecutorchRuntimeException.INVALID_STATE:
      case ExecutorchRuntimeException.INVALID_EXTERNAL_DATA:
        return bad(file, Words.line(cause), cause);
      case ExecutorchRuntimeException.MEMORY_ALLOCATION_FAILED:
      case ExecutorchRuntimeException.DELEGATE_MEMORY_ALLOCATION_FAILED:
        return EngineErrors.memory(file, cause);
      default:
        return new EdgeException(
            "load_failed",
            "ExecuTorch can't load " + file + ": " + Words.line(cause) + ".",
            "The file was made for another version or build of the engine.",
            ANEW,
            cause);
    }
  }

  static EdgeException noForward(String file, String[] methods) {
    return new EdgeException(
        "no_forward",
        file + " has no method 'forward'.",
        "Its methods are: " + Words.join(Arrays.asList(methods)) + ".",
        "Export the model with a method called forward.");
  }

  static EdgeException bad(String file, String problem, @Nullable Throwable cause) {
    return new EdgeException(
        "bad_pte",
        file + " can't be loaded as an ExecuTorch program.",
        "It is damaged, cut short, or another kind of file: " + problem + ".",
        "Copy the file again, or make it anew with 'edgesdk package'.",
        cause);
  }

  static EdgeException dtype(String what, TensorSpec spec) {
    return EngineErrors.dtype("ExecuTorch", what, spec, "float32, float64, float16, int64, int32, int8 and uint8");
  }

  static EdgeException unreadable(String dtype, Exception cause) {
    return new EdgeException(
        "dtype_unsupported",
        "ExecuTorch's Java library has no reader for outputs of " + dtype + ".",
        "Its field that holds them is gone: another release, or a shrinker that ran without our rules.",
        "Keep the rules of META-INF/proguard, or give the model an output of another dtype.",
        cause);
  }

  /** The engine's number; -1 when it gives none. */
  private static int code(Throwable cause) {
    return cause instanceof ExecutorchRuntimeException ? ((ExecutorchRuntimeException) cause).getErrorCode() : -1;
  }

  private static Set<String> found(Pattern pattern, String text) {
    Set<String> names = new LinkedHashSet<>();
    Matcher matcher = pattern.matcher(text);
    while (matcher.find()) {
      names.add(matcher.group(1));
    }
    return names;
  }
}
