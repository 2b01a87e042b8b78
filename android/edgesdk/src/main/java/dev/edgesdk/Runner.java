package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/** A loaded file. Not thread-safe; {@link Session} checks names, dtypes and shapes first and holds a lock. */
abstract class Runner {
  /**
   * Runs once.
   *
   * @param inputs in the order of the signature
   * @param outputs in the order of the signature; the engine writes into those that are there, and makes those that are
   *     null
   */
  abstract void run(Tensor[] inputs, @Nullable Tensor[] outputs);

  /** Forgets the state that earlier calls left behind. Most engines keep none. */
  void reset() {}

  /** Frees native memory. Not used afterwards. */
  abstract void close();
}
