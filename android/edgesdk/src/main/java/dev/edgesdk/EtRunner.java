package dev.edgesdk;

import java.util.Arrays;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;
import org.pytorch.executorch.EValue;
import org.pytorch.executorch.ExecuTorchRuntime;
import org.pytorch.executorch.Module;

/**
 * A program of ExecuTorch. It reads inputs from the tensors' own memory; outputs lie in the program's memory and are
 * copied once, into the caller's tensors.
 */
final class EtRunner extends Runner {
  private static final Logger LOG = Logger.getLogger("dev.edgesdk");

  /** The engine's pool of threads is one for the process, and loaded programs keep pointers into it. */
  private static final Object POOL = new Object();

  private static int poolThreads;
  private static int openModules;

  private final ModelFile files;
  private final String path;
  private final int threads;
  private final EtInputs inputs;
  private final EtOutputs outputs;
  private @Nullable Module module;
  private boolean used;

  private EtRunner(ModelFile files, int threads) {
    this.files = files;
    this.path = files.file().getPath(); // the bundle may be closed when reset() loads it again
    this.threads = threads;
    this.inputs = new EtInputs(files.manifest.inputs().size());
    this.outputs = new EtOutputs(files.manifest.outputs(), files.variant.file());
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

  private Module open() {
    String[] before = EtLog.lines();
    Module opened = null;
    try {
      opened = load(path, threads);
      if (!Arrays.asList(opened.getMethods()).contains("forward")) {
        throw EtErrors.noForward(files.variant.file(), opened.getMethods());
      }
      opened.loadMethod("forward");
      module = opened;
      return opened;
    } catch (LinkageError | RuntimeException cause) {
      if (opened != null) {
        close(opened);
      }
      throw cause instanceof EdgeException
          ? (EdgeException) cause
          : EtErrors.load(files.variant.file(), cause, EtLog.since(before));
    }
  }

  /** The pool gets another size only while no program is loaded: it would be freed under those that are. */
  private static Module load(String path, int threads) {
    synchronized (POOL) {
      int size = openModules == 0 ? threads : poolThreads;
      Module made = Module.load(path, Module.LOAD_MODE_MMAP, size);
      poolThreads = size;
      openModules++;
      if (size != threads) {
        LOG.log(
            Level.WARNING,
            "ExecuTorch keeps {0} threads, not {1}, as long as other sessions are open",
            new Object[] {size == 0 ? "its own number of" : String.valueOf(size), threads});
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
    EValue[] values = inputs.bind(given);
    try {
      outputs.take(loaded.forward(values), into); // the next call overwrites them
    } catch (EdgeException ours) {
      throw ours;
    } catch (LinkageError | RuntimeException cause) {
      throw EtErrors.run(files.variant.file(), given, cause);
    }
  }

  /** A program's mutable buffers live as long as its module: load it again. */
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
