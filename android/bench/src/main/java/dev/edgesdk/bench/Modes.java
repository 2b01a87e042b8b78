package dev.edgesdk.bench;

import java.util.Arrays;

/**
 * The gap test of §12: whether samples lie in two heaps, as those of two clusters or of two frequencies do. On the
 * logarithms of the sorted samples: the widest gap that has at least 5 % of them, and six, on either side; it counts when
 * it is wider than 3 % and than three times the interquartile range of either heap.
 */
final class Modes {
  private static final double LEAST = Math.log(1.03);
  private static final double SHARE = 0.05;
  private static final int FEWEST = 6;

  private Modes() {}

  /** How many times slower the upper heap's median is than the lower one's; 1 when there is one heap. */
  static double ratio(long[] sorted) {
    int n = sorted.length;
    int edge = Math.max(FEWEST, (int) Math.ceil(SHARE * n));
    int split = 0;
    double gap = 0;
    for (int i = edge; i <= n - edge; i++) {
      double here = Math.log(Math.max(1, sorted[i])) - Math.log(Math.max(1, sorted[i - 1]));
      if (here > gap) {
        gap = here;
        split = i;
      }
    }
    if (split == 0 || gap <= LEAST) {
      return 1;
    }
    long[] low = Arrays.copyOf(sorted, split);
    long[] high = Arrays.copyOfRange(sorted, split, n);
    boolean apart = gap > 3 * spread(low) && gap > 3 * spread(high);
    return apart ? Stats.percentile(high, 0.5) / Stats.percentile(low, 0.5) : 1;
  }

  private static double spread(long[] sorted) {
    return Math.log(Stats.percentile(sorted, 0.75)) - Math.log(Stats.percentile(sorted, 0.25));
  }
}
