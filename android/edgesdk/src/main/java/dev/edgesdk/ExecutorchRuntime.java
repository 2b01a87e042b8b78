package dev.edgesdk;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * ExecuTorch: {@code org.pytorch:executorch-android}.
 *
 * <p>Its classes are named only in {@link EtRunner} and those behind it, so this one loads without them.
 */
final class ExecutorchRuntime extends EdgeRuntime {
  static final String PROBE = "org.pytorch.executorch.Module";

  /** Found out once: a class whose initializer failed tells its reason only the first time. */
  private static final class Found {
    static final @Nullable String MISSING = absence(
        "ExecuTorch", PROBE, "ExecuTorch's native libraries libexecutorch.so and libfbjni.so don't",
        new Start() {
          @Override
          public void run() {
            EtRunner.start();
          }
        });
    static final @Nullable List<String> BACKENDS = MISSING == null ? EtRunner.backends() : null;
  }

  @Override
  public String name() {
    return "executorch";
  }

  @Override
  public String suffix() {
    return ".pte";
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
    return "org.pytorch:executorch-android";
  }

  @Override
  boolean has(String backend) {
    List<String> registered = Found.BACKENDS;
    switch (backend) {
      case "portable":
        return true;
      case "xnnpack": // every build of the library has it; the older ones don't list what they have
        return registered == null || registered.contains("XnnpackBackend");
      case "vulkan":
        return registered != null && registered.contains("VulkanBackend");
      default:
        return false;
    }
  }

  @Override
  Runner load(ModelFile model, int threads) {
    return EtRunner.load(model, threads);
  }
}
