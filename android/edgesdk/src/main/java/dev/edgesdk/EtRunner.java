package dev.edgesdk;

import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.pytorch.executorch.EValue;
import org.pytorch.executorch.ExecuTorchRuntime;
import org.pytorch.executorch.Module;

/**
 * A program of ExecuTorch. It reads inputs from the tensors' own memory; outputs lie in the program's memory and are
 * copied once, into the caller's tensors.
 */
final class EtRunner extends NativeRunner<Module> {
  private static final Pool POOL = new Pool("ExecuTorch");

  private final EtInputs inputs;
  private final EtOutputs outputs;

  private EtRunner(ModelFile files, int threads) {
    super(files, threads, POOL);
    this.inputs = new EtInputs(files.manifest.inputs().size());
    this.outputs = new EtOutputs(files.manifest.outputs(), file);
  }

  /** Loads the native library, and calls it: classes and library of two releases fail here, not at the first model. */
  static void start() {
    ExecuTorchRuntime.getRuntime();
    backends();
  }

  /** The delegates that the library has; null in releases that don't tell. */
  static @Nullable List<String> backends() {
    try {
      String[] names = ExecuTorchRuntime.getRegisteredBackends();
      return names == null ? null : Arrays.asList(names);
    } catch (NoSuchMethodError older) {
      return null;
    }
  }

  static EtRunner load(ModelFile files, int threads) {
    PteFile.check(files.buffer(), files.variant.file());
    EtInputs.check(files.manifest.inputs());
    EtOutputs.check(files.manifest.outputs());
    EtRunner made = new EtRunner(files, threads);
    made.open();
    return made;
  }

  @Override
  Module open() {
    String[] before = EtLog.lines();
    try {
      return super.open();
    } catch (EdgeException ours) {
      throw ours;
    } catch (LinkageError | RuntimeException cause) {
      throw EtErrors.load(file, cause, EtLog.since(before));
    }
  }

  /** The engine sets its pool in each call; with the size that it has, nothing happens to it. */
  @Override
  Module load(String path, int threads, boolean resize) {
    return Module.load(path, Module.LOAD_MODE_MMAP, threads);
  }

  @Override
  void ready(Module loaded) {
    String[] methods = loaded.getMethods();
    if (!Arrays.asList(methods).contains("forward")) {
      throw EtErrors.noForward(file, methods);
    }
    loaded.loadMethod("forward");
  }

  @Override
  void destroy(Module loaded) {
    loaded.destroy();
  }

  @Override
  void run(Tensor[] given, @Nullable Tensor[] into) {
    Module loaded = module();
    EValue[] values = inputs.bind(given);
    try {
      outputs.take(loaded.forward(values), into); // the next call overwrites them
    } catch (EdgeException ours) {
      throw ours;
    } catch (LinkageError | RuntimeException cause) {
      throw EngineErrors.run("ExecuTorch", file, given, Words.line(cause), cause);
    }
  }

  @Override
  void forget() {
    inputs.clear();
    outputs.clear();
  }
}
