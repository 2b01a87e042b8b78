package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/**
 * ONNX Runtime: {@code com.microsoft.onnxruntime:onnxruntime-android}, or {@code :onnxruntime} on a desktop.
 *
 * <p>Its classes are named only in {@link OrtRunner}, so this one loads without them.
 */
final class OnnxRuntime extends EdgeRuntime {
  static final String PROBE = "ai.onnxruntime.OrtEnvironment";

  @Override
  public String name() {
    return "onnx";
  }

  @Override
  public String suffix() {
    return ".onnx";
  }

  @Override
  public @Nullable String missing() {
    try {
      Class.forName(PROBE, false, OnnxRuntime.class.getClassLoader());
    } catch (ClassNotFoundException cause) {
      return "ONNX Runtime is not in the app: the class " + PROBE + " is absent.";
    }
    try {
      OrtRunner.version();
      return null;
    } catch (LinkageError | RuntimeException cause) {
      Throwable root = cause;
      while (root.getCause() != null) {
        root = root.getCause();
      }
      return "ONNX Runtime's native library doesn't load here (os.arch " + System.getProperty("os.arch") + "): "
          + root.getMessage() + ".";
    }
  }

  @Override
  public String version() {
    return OrtRunner.version();
  }

  @Override
  String dependency() {
    return "com.microsoft.onnxruntime:onnxruntime-android";
  }

  @Override
  Runner load(ModelFile model, int threads) {
    return OrtRunner.load(model, threads);
  }
}
