package dev.edgesdk.bench;

import java.util.Arrays;

/** The statistics of the protocol, §4 and §11. Samples are never dropped. */
final class Stats {
  final long[] order;
  final long[] sorted;

  Stats(long[] samples) {
    order = samples.clone();
    sorted = samples.clone();
    Arrays.sort(sorted);
  }

  int n() {
    return sorted.length;
  }

  /** By linear interpolation, as numpy has it. */
  double percentile(double p) {
    return percentile(sorted, p);
  }

  static double percentile(long[] sorted, double p) {
    double at = p * (sorted.length - 1);
    int low = (int) Math.floor(at);
    int high = Math.min(low + 1, sorted.length - 1);
    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
  }

  double median() {
    return percentile(0.5);
  }

  static double median(long[] values, int from, int to) {
    long[] part = Arrays.copyOfRange(values, from, to);
    Arrays.sort(part);
    return percentile(part, 0.5);
  }

  double mean() {
    double sum = 0;
    for (long one : sorted) {
      sum += one;
    }
    return sum / n();
  }

  double stdev() {
    double mean = mean();
    double sum = 0;
    for (long one : sorted) {
      sum += (one - mean) * (one - mean);
    }
    return n() < 2 ? 0 : Math.sqrt(sum / (n() - 1));
  }

  /** The median distance from the median. */
  double mad() {
    double median = median();
    double[] distances = new double[n()];
    for (int i = 0; i < distances.length; i++) {
      distances[i] = Math.abs(sorted[i] - median);
    }
    Arrays.sort(distances);
    double at = 0.5 * (distances.length - 1);
    int low = (int) at;
    return (distances[low] + distances[(int) Math.ceil(at)]) / 2;
  }

  /** How many lie beyond so many interquartile ranges. */
  int outliers(double ranges) {
    double q1 = percentile(0.25);
    double q3 = percentile(0.75);
    int count = 0;
    for (long one : sorted) {
      if (one < q1 - ranges * (q3 - q1) || one > q3 + ranges * (q3 - q1)) {
        count++;
      }
    }
    return count;
  }

  /** Of neighbours in time; 0 where nothing varies. */
  double lag1() {
    double mean = mean();
    double above = 0;
    double below = 0;
    for (int i = 0; i < order.length; i++) {
      below += (order[i] - mean) * (order[i] - mean);
      if (i > 0) {
        above += (order[i] - mean) * (order[i - 1] - mean);
      }
    }
    return below == 0 ? 0 : above / below;
  }

  /**
   * The two-sided 95 % interval of a percentile by order statistics, or null: then there are too few samples to state
   * the percentile at all (6 for p50, 36 for p90, 72 for p95, 368 for p99).
   */
  double[] interval(double p) {
    int n = n();
    double below = 0; // P(B < k) for B binomial(n, p): how many samples lie below the percentile
    int low = 0;
    int high = 0;
    double log = n * Math.log1p(-p);
    for (int k = 0; k <= n; k++) {
      if (below <= 0.025) {
        low = k; // the k-th smallest is above the percentile with at most this probability
      }
      if (high == 0 && k > 0 && 1 - below <= 0.025 + 1e-12) {
        high = k;
      }
      below += Math.exp(log);
      log += Math.log((double) (n - k) / (k + 1)) + Math.log(p) - Math.log1p(-p);
    }
    return low < 1 || high < 1 || high > n ? null : new double[] {sorted[low - 1], sorted[high - 1]};
  }

  /** Change over the whole run in percent of the median: the Theil–Sen slope of at most 32 block medians. */
  double driftPercent() {
    int blocks = Math.min(32, n());
    double[] medians = new double[blocks];
    for (int i = 0; i < blocks; i++) {
      medians[i] = median(order, i * n() / blocks, Math.max(i * n() / blocks + 1, (i + 1) * n() / blocks));
    }
    double[] slopes = new double[blocks * (blocks - 1) / 2];
    int at = 0;
    for (int i = 0; i < blocks; i++) {
      for (int j = i + 1; j < blocks; j++) {
        slopes[at++] = (medians[j] - medians[i]) / (j - i);
      }
    }
    Arrays.sort(slopes);
    double middle = at == 0 ? 0 : (slopes[(at - 1) / 2] + slopes[at / 2]) / 2;
    return 100 * middle * (blocks - 1) / median();
  }
}
