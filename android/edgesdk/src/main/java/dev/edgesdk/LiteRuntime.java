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
    static final @Nullable String MISSING = look();

    private static @Nullable String look() {
      try {
        Class.forName(PROBE, false, LiteRuntime.class.getClassLoader());
      } catch (ClassNotFoundException cause) {
        return "PyTorch Mobile's Lite interpreter is not in the app: the class " + PROBE + " is absent.";
      }
      try {
        LiteRunner.start();
        return null;
      } catch (LinkageError | RuntimeException cause) {
        Throwable root = cause;
        while (root.getCause() != null) {
          root = root.getCause();
        }
        return "PyTorch Mobile's native libraries libpytorch_jni_lite.so and libfbjni.so don't load here (os.arch "
            + System.getProperty("os.arch") + "): " + Words.line(root) + ".";
      }
    }
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
