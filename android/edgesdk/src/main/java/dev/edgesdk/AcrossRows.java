package dev.edgesdk;

/** The horizontal pass: each row gets another width. */
final class AcrossRows extends Rows {
  private final Rows source;
  private final Weights weights;
  private final byte[] line;
  private final boolean picks;

  AcrossRows(Rows source, Weights weights) {
    super(weights.first.length, source.height, source.channels);
    this.source = source;
    this.weights = weights;
    this.line = new byte[source.width * channels];
    this.picks = weights.picks();
    if (source instanceof UprightRows) {
      ((UprightRows) source).only(weights.begin(), weights.end());
    }
  }

  @Override
  void row(int y, byte[] out) {
    source.row(y, line);
    if (picks) {
      pick(out);
    } else if (channels == 1) {
      one(out);
    } else {
      three(out);
    }
  }

  private void pick(byte[] out) {
    for (int x = 0; x < width; x++) {
      for (int c = 0; c < channels; c++) {
        out[x * channels + c] = line[weights.first[x] * channels + c];
      }
    }
  }

  private void one(byte[] out) {
    for (int x = 0; x < width; x++) {
      int[] k = weights.k[x];
      int at = weights.first[x];
      int sum = 1 << (Weights.BITS - 1);
      for (int i = 0; i < k.length; i++) {
        sum += k[i] * (line[at + i] & 255);
      }
      out[x] = Weights.round(sum);
    }
  }

  private void three(byte[] out) {
    byte[] line = this.line;
    for (int x = 0; x < width; x++) {
      int[] k = weights.k[x];
      int at = 3 * weights.first[x];
      int r = 1 << (Weights.BITS - 1);
      int g = r;
      int b = r;
      for (int weight : k) {
        r += weight * (line[at] & 255);
        g += weight * (line[at + 1] & 255);
        b += weight * (line[at + 2] & 255);
        at += 3;
      }
      out[3 * x] = Weights.round(r);
      out[3 * x + 1] = Weights.round(g);
      out[3 * x + 2] = Weights.round(b);
    }
  }
}
