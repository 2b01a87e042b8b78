package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/** One output over all golden calls. */
public final class OutputTest {
  private final String name;
  private final double tolerance;
  private double error;
  private double signal;
  private double noise;

  OutputTest(String name, double tolerance) {
    this.name = name;
    this.tolerance = tolerance;
  }

  /** The output. */
  public String name() {
    return name;
  }

  /** The largest absolute difference; infinite when a shape or a NaN differs. */
  public double maxAbsError() {
    return error;
  }

  /** What the difference may be. */
  public double tolerance() {
    return tolerance;
  }

  /** Signal to noise in dB; null when the error is exactly zero. */
  public @Nullable Double snrDb() {
    if (noise == 0) {
      return null;
    }
    return signal == 0 ? Double.NEGATIVE_INFINITY : 10 * Math.log10(signal / noise);
  }

  /** Whether the difference is allowed. */
  public boolean ok() {
    return error <= tolerance;
  }

  void add(double[] wanted, double[] got) {
    if (wanted.length != got.length) {
      error = Double.POSITIVE_INFINITY;
      return;
    }
    for (int i = 0; i < wanted.length; i++) {
      if (wanted[i] == got[i] || (Double.isNaN(wanted[i]) && Double.isNaN(got[i]))) {
        signal += Double.isInfinite(wanted[i]) || Double.isNaN(wanted[i]) ? 0 : wanted[i] * wanted[i];
        continue;
      }
      double gap = Math.abs(wanted[i] - got[i]);
      if (Double.isNaN(gap) || Double.isInfinite(gap)) {
        error = Double.POSITIVE_INFINITY;
        return;
      }
      error = Math.max(error, gap);
      noise += gap * gap;
      signal += wanted[i] * wanted[i];
    }
  }

  void fail() {
    error = Double.POSITIVE_INFINITY;
  }

  @Override
  public String toString() {
    return name + ": error " + error + " of " + tolerance;
  }
}
