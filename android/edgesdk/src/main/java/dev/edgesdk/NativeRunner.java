package dev.edgesdk;

import java.util.logging.Level;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;

/**
 * A model that an engine holds in native memory, where the engine has one pool of threads for the process.
 *
 * @param <M> the engine's own class for a loaded model
 */
abstract class NativeRunner<M> extends Runner {
  private static final Logger LOG = Logger.getLogger("dev.edgesdk");

  /**
   * An engine's threads. Loaded models keep pointers into the pool: it gets another size only while there are none, or it
   * would be freed under them.
   */
  static final class Pool {
    private final String engine;
    private int threads;
    private int models;

    Pool(String engine) {
      this.engine = engine;
    }
  }

  final String file;
  private final ModelFile files;
  private final int threads;
  private final Pool pool;
  private @Nullable M module;
  private boolean used;

  NativeRunner(ModelFile files, int threads, Pool pool) {
    this.file = files.variant.file();
    this.files = files;
    this.threads = threads;
    this.pool = pool;
  }

  /**
   * Loads the file.
   *
   * @param resize whether the engine's pool shall get that many threads now; 0 threads: as many as the engine likes
   */
  abstract M load(String path, int threads, boolean resize);

  /** What else must be done before the first call; it may fail. */
  void ready(M loaded) {}

  abstract void destroy(M loaded);

  /** Lets go of what belongs to a loaded model. */
  abstract void forget();

  /** Loads, or loads again: the file may have to be written again, too. */
  M open() {
    M loaded = pooled(files.file().getPath());
    try {
      ready(loaded);
    } catch (LinkageError | RuntimeException cause) {
      release(loaded);
      throw cause;
    }
    module = loaded;
    used = false;
    return loaded;
  }

  private M pooled(String path) {
    synchronized (pool) {
      boolean first = pool.models == 0;
      M loaded = load(path, first ? threads : pool.threads, first);
      pool.threads = first ? threads : pool.threads;
      pool.models++;
      if (threads > 0 && threads != pool.threads) {
        LOG.log(
            Level.WARNING,
            "{0} keeps {1} threads, not {2}, as long as other sessions are open",
            new Object[] {
              pool.engine, pool.threads == 0 ? "its own number of" : String.valueOf(pool.threads), threads
            });
      }
      return loaded;
    }
  }

  private void release(M loaded) {
    synchronized (pool) {
      destroy(loaded);
      pool.models--;
    }
  }

  /** The model, for a call that may change what it keeps. */
  final M module() {
    M loaded = module == null ? open() : module;
    used = true;
    return loaded;
  }

  /** What a model keeps between calls can't be set back: load it again. */
  @Override
  final void reset() {
    if (used) {
      close();
      open();
    }
  }

  @Override
  final void close() {
    M loaded = module;
    module = null;
    forget();
    if (loaded != null) {
      release(loaded);
    }
  }
}
