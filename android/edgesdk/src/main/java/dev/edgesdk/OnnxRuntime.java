package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/**
 * ONNX Runtime: {@code com.microsoft.onnxruntime:onnxruntime-android}, or {@code :onnxruntime} on a desktop.
 *
 * <p>Its classes are named only in {@link OrtRunner}, so this one loads without them.
 */
final class OnnxRuntime extends EdgeRuntime {
  static final String PROBE = "ai.onnxruntime.OrtEnvironment";

  /** Found out once: a class whose initializer failed tells its reason only the first time. */
  private static final class Found {
    static final @Nullable String MISSING = absence(
        "ONNX Runtime", PROBE, "ONNX Runtime's native library doesn't",
        new Start() {
          @Override
          public void run() {
            OrtRunner.version();
          }
        });
  }

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
    return Found.MISSING;
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
