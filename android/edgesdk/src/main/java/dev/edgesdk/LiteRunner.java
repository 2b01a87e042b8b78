package dev.edgesdk;

import org.jspecify.annotations.Nullable;
import org.pytorch.IValue;
import org.pytorch.LiteModuleLoader;
import org.pytorch.Module;
import org.pytorch.PyTorchAndroid;

/**
 * A file of the Lite interpreter. It reads inputs from the tensors' own memory; the engine makes its outputs anew in each
 * call, and they are copied once, into the caller's tensors.
 */
final class LiteRunner extends NativeRunner<Module> {
  private static final Pool POOL = new Pool("PyTorch");

  private final LiteInputs inputs;
  private final LiteOutputs outputs;

  private LiteRunner(ModelFile files, int threads) {
    super(files, threads, POOL);
    this.inputs = new LiteInputs(files.manifest.inputs().size());
    this.outputs = new LiteOutputs(files.manifest.outputs(), file);
  }

  /** Loads the native libraries: the class that stands for them does so when it is initialized. */
  static void start() {
    try {
      Class.forName("org.pytorch.LiteNativePeer", true, LiteRunner.class.getClassLoader());
    } catch (ClassNotFoundException other) {
      throw new IllegalStateException("the class org.pytorch.LiteNativePeer is absent", other);
    }
  }

  static LiteRunner load(ModelFile files, int threads) {
    PtlFile.check(files.buffer(), files.variant.file());
    LiteInputs.check(files.manifest.inputs());
    LiteOutputs.check(files.manifest.outputs());
    LiteRunner made = new LiteRunner(files, threads);
    made.open();
    return made;
  }

  @Override
  Module open() {
    try {
      return super.open();
    } catch (EdgeException ours) {
      throw ours;
    } catch (LinkageError | RuntimeException cause) {
      throw LiteErrors.load(file, cause);
    }
  }

  @Override
  Module load(String path, int threads, boolean resize) {
    if (resize && threads > 0) {
      PyTorchAndroid.setNumThreads(threads);
    }
    return LiteModuleLoader.load(path);
  }

  @Override
  void destroy(Module loaded) {
    loaded.destroy();
  }

  @Override
  void run(Tensor[] given, @Nullable Tensor[] into) {
    Module loaded = module();
    IValue[] values = inputs.bind(given);
    IValue result;
    try {
      result = loaded.forward(values);
    } catch (LinkageError | RuntimeException cause) {
      throw LiteErrors.run(file, given, cause);
    }
    outputs.take(result, into);
  }

  @Override
  void forget() {
    inputs.clear();
    outputs.clear();
  }
}
