package dev.edgesdk.bench;

/** A fixed piece of work in whole numbers, about 5 ms on a fast core: how fast is the processor just now? */
final class Spin {
  private static final int ROUNDS = 3_000_000;
  static volatile long sink;

  private Spin() {}

  /** The least of three: what the processor can do, without interruptions. */
  static long probe() {
    long least = Long.MAX_VALUE;
    for (int i = 0; i < 3; i++) {
      long start = System.nanoTime();
      long x = 88172645463325252L;
      for (int round = 0; round < ROUNDS; round++) {
        x ^= x << 13;
        x ^= x >>> 7;
        x ^= x << 17;
      }
      sink = x;
      least = Math.min(least, System.nanoTime() - start);
    }
    return least;
  }
}
