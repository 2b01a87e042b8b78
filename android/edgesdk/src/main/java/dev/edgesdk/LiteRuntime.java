package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/**
 * PyTorch Mobile's Lite interpreter: {@code org.pytorch:pytorch_android_lite}. No longer developed; ExecuTorch is its
 * successor.
 *
 * <p>Its classes are named only in {@link LiteRunner} and those behind it, so this one loads without them.
 */
final class LiteRuntime extends EdgeRuntime {
  static final String PROBE = "org.pytorch.LiteModuleLoader";

  /** Found out once: a class whose initializer failed tells its reason only the first time. */
  private static final class Found {
    static final @Nullable String MISSING = absence(
        "PyTorch Mobile's Lite interpreter", PROBE,
        "PyTorch Mobile's native libraries libpytorch_jni_lite.so and libfbjni.so don't",
        new Start() {
          @Override
          public void run() {
            LiteRunner.start();
          }
        });
  }

  @Override
  public String name() {
    return "torchscript";
  }

  @Override
  public String suffix() {
    return ".ptl";
  }

  @Override
  public @Nullable String missing() {
    return Found.MISSING;
  }

  /** Empty: the engine doesn't tell it. */
  @Override
  public String version() {
    return "";
  }

  @Override
  String dependency() {
    return "org.pytorch:pytorch_android_lite";
  }

  @Override
  Runner load(ModelFile model, int threads) {
    return LiteRunner.load(model, threads);
  }
}
