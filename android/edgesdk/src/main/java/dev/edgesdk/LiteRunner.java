package dev.edgesdk;

import java.util.logging.Level;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;
import org.pytorch.IValue;
import org.pytorch.LiteModuleLoader;
import org.pytorch.Module;
import org.pytorch.PyTorchAndroid;

/**
 * A file of the Lite interpreter. It reads inputs from the tensors' own memory; the engine makes its outputs anew in each
 * call, and they are copied once, into the caller's tensors.
 */
final class LiteRunner extends Runner {
  private static final Logger LOG = Logger.getLogger("dev.edgesdk");

  /** The engine's pool of threads is one for the process, and a call that runs keeps a pointer into it. */
  private static final Object POOL = new Object();

  private static int poolThreads;
  private static int openModules;

  private final ModelFile files;
  private final String path;
  private final int threads;
  private final LiteInputs inputs;
  private final LiteOutputs outputs;
  private @Nullable Module module;
  private boolean used;

  private LiteRunner(ModelFile files, int threads) {
    this.files = files;
    this.path = files.file().getPath(); // the bundle may be closed when reset() loads it again
    this.threads = threads;
    this.inputs = new LiteInputs(files.manifest.inputs().size());
    this.outputs = new LiteOutputs(files.manifest.outputs(), files.variant.file());
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

  private Module open() {
    try {
      Module opened = load(path, threads);
      module = opened;
      return opened;
    } catch (LinkageError | RuntimeException cause) {
      throw LiteErrors.load(files.variant.file(), cause);
    }
  }

  /** The pool gets another size only while no module is loaded: it would be freed under those that run. */
  private static Module load(String path, int threads) {
    synchronized (POOL) {
      if (openModules == 0 && threads > 0) {
        PyTorchAndroid.setNumThreads(threads);
        poolThreads = threads;
      }
      Module made = LiteModuleLoader.load(path);
      openModules++;
      if (threads > 0 && threads != poolThreads) {
        LOG.log(
            Level.WARNING,
            "PyTorch keeps {0} threads, not {1}, as long as other sessions are open",
            new Object[] {poolThreads == 0 ? "its own number of" : String.valueOf(poolThreads), threads});
      }
      return made;
    }
  }

  private static void close(Module module) {
    synchronized (POOL) {
      module.destroy();
      openModules--;
    }
  }

  @Override
  void run(Tensor[] given, @Nullable Tensor[] into) {
    Module loaded = module == null ? open() : module;
    used = true;
    IValue[] values = inputs.bind(given);
    IValue result;
    try {
      result = loaded.forward(values);
    } catch (LinkageError | RuntimeException cause) {
      throw LiteErrors.run(files.variant.file(), given, cause);
    }
    outputs.take(result, into);
  }

  /** What a module keeps in its attributes can't be set back: load it again. */
  @Override
  void reset() {
    if (used) {
      close();
      open();
      used = false;
    }
  }

  @Override
  void close() {
    Module loaded = module;
    module = null;
    inputs.clear();
    outputs.clear();
    if (loaded != null) {
      close(loaded);
    }
  }
}
