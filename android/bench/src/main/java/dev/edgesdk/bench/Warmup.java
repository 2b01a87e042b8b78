package dev.edgesdk.bench;

import java.util.Arrays;

/** When a model is warm: the rule of the protocol, §4. The first call of all is not counted. */
final class Warmup {
  static final double TOLERANCE = 0.02;
  static final long MIN_NS = 1_000_000_000L;
  static final long MAX_NS = 15_000_000_000L;
  static final int MIN_CALLS = 10;
  private static final int FIRST = 5;
  private static final double WINDOW_NS = 0.25e9;

  private final boolean once;
  private long[] times = new long[64];
  private int count;
  private int window;
  private int quiet;
  private long total;
  private double before = -1;

  /** @param once one call is enough: the smoke profile */
  Warmup(boolean once) {
    this.once = once;
  }

  /** Adds a call's time. */
  void add(long ns) {
    if (count == times.length) {
      times = Arrays.copyOf(times, 2 * count);
    }
    times[count++] = ns;
    total += ns;
    if (count == FIRST) {
      double typical = Math.max(1, Stats.median(times, 0, FIRST));
      window = (int) Math.max(5, Math.min(100, Math.ceil(WINDOW_NS / typical)));
    }
    if (window > 0 && count > FIRST && (count - FIRST) % window == 0) {
      double now = Stats.median(times, count - window, count);
      quiet = before > 0 && Math.abs(now / before - 1) < TOLERANCE ? quiet + 1 : 0;
      before = now;
    }
  }

  boolean converged() {
    return once ? count >= 1 : quiet >= 2 && total >= MIN_NS && count >= MIN_CALLS;
  }

  boolean over() {
    return converged() || total >= MAX_NS;
  }

  int count() {
    return count;
  }

  int window() {
    return window;
  }

  long total() {
    return total;
  }

  /** The median of the last calls. */
  double typical() {
    return count == 0 ? 0 : Stats.median(times, Math.max(0, count - Math.max(5, window)), count);
  }
}
