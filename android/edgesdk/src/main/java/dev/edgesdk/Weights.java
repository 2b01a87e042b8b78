package dev.edgesdk;

/** The fixed-point weights of one axis: which samples make each output, and how much of each. */
final class Weights {
  static final int BITS = 32 - 8 - 2;

  /** The first sample of each output. */
  final int[] first;
  /** The weights of each output. */
  final int[][] k;

  private Weights(int count) {
    first = new int[count];
    k = new int[count][];
  }

  /**
   * The weights of the outputs {@code from} to {@code from + count} of an axis from {@code n} to {@code m} samples. All
   * in double precision, in the order of Pillow's own steps.
   */
  static Weights of(Filter filter, int n, int m, int from, int count) {
    Weights made = new Weights(count);
    if (n == m) {
      for (int i = 0; i < count; i++) {
        made.first[i] = from + i;
        made.k[i] = new int[] {1 << BITS};
      }
    } else if (filter == Filter.NEAREST) {
      made.pick(n, m, from);
    } else {
      for (int i = 0; i < count; i++) {
        made.weigh(filter, n, m, from + i, i);
      }
    }
    return made;
  }

  /** A running sum, whose rounding decides ties. */
  private void pick(int n, int m, int from) {
    double scale = (double) n / m;
    double at = scale * 0.5;
    for (int x = 0; x < from + first.length; x++) {
      if (x >= from) {
        first[x - from] = (int) at;
        k[x - from] = new int[] {1 << BITS};
      }
      at += scale;
    }
  }

  private void weigh(Filter filter, int n, int m, int x, int into) {
    double scale = (double) n / m;
    double width = Math.max(scale, 1);
    double reach = filter.support * width;
    double centre = (x + 0.5) * scale;
    int start = Math.max(0, (int) (centre - reach + 0.5));
    int end = Math.min(n, (int) (centre + reach + 0.5));
    double[] raw = new double[Math.max(0, end - start)];
    double total = 0;
    for (int i = 0; i < raw.length; i++) {
      raw[i] = filter.at((start + i - centre + 0.5) * (1 / width));
      total += raw[i];
    }
    int[] fixed = new int[raw.length];
    for (int i = 0; i < raw.length; i++) {
      double w = (total != 0 ? raw[i] / total : raw[i]) * (1 << BITS);
      fixed[i] = (int) (w >= 0 ? w + 0.5 : w - 0.5);
    }
    first[into] = start;
    k[into] = fixed;
  }

  /** The first sample that any output needs. */
  int begin() {
    int least = Integer.MAX_VALUE;
    for (int one : first) {
      least = Math.min(least, one);
    }
    return least;
  }

  /** The sample behind the last one that any output needs. */
  int end() {
    int most = 0;
    for (int i = 0; i < first.length; i++) {
      most = Math.max(most, first[i] + k[i].length);
    }
    return most;
  }

  /** Whether each output is one sample as it is. */
  boolean picks() {
    for (int[] one : k) {
      if (one.length != 1 || one[0] != 1 << BITS) {
        return false;
      }
    }
    return true;
  }

  static byte round(int sum) {
    int value = sum >> BITS;
    return (byte) (value < 0 ? 0 : Math.min(value, 255));
  }
}
