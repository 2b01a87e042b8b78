package dev.edgesdk;

import java.util.Arrays;

/** The vertical pass: another number of rows. Rows of the source are computed once, and kept while they are needed. */
final class DownRows extends Rows {
  private final Rows source;
  private final Weights weights;
  private final byte[][] kept;
  private final int[] keptRow;
  private final int[] sums;

  DownRows(Rows source, Weights weights) {
    super(source.width, weights.first.length, source.channels);
    this.source = source;
    this.weights = weights;
    int most = 1;
    for (int[] k : weights.k) {
      most = Math.max(most, k.length);
    }
    this.kept = new byte[most][width * channels];
    this.keptRow = new int[most];
    Arrays.fill(keptRow, -1);
    this.sums = new int[width * channels];
  }

  @Override
  void row(int y, byte[] out) {
    int[] k = weights.k[y];
    int first = weights.first[y];
    if (k.length == 1 && k[0] == 1 << Weights.BITS) {
      System.arraycopy(source(first), 0, out, 0, sums.length);
      return;
    }
    Arrays.fill(sums, 1 << (Weights.BITS - 1));
    for (int i = 0; i < k.length; i++) {
      byte[] row = source(first + i);
      int weight = k[i];
      for (int x = 0; x < sums.length; x++) {
        sums[x] += weight * (row[x] & 255);
      }
    }
    for (int x = 0; x < sums.length; x++) {
      out[x] = Weights.round(sums[x]);
    }
  }

  /** Row {@code y} of the source. Windows of neighbouring outputs overlap, and none is longer than the ring. */
  private byte[] source(int y) {
    int place = y % kept.length;
    if (keptRow[place] != y) {
      source.row(y, kept[place]);
      keptRow[place] = y;
    }
    return kept[place];
  }
}
