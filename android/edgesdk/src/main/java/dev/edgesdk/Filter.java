package dev.edgesdk;

/** The resampling filters, as Pillow defines them; the text is in Python's {@code preprocess/_resample.py}. */
enum Filter {
  BOX(0.5),
  BILINEAR(1),
  BICUBIC(2),
  LANCZOS(3),
  /** Picks one sample; it has no weights. */
  NEAREST(0);

  private static final double A = -0.5;

  final double support;

  Filter(double support) {
    this.support = support;
  }

  double at(double t) {
    double near = Math.abs(t);
    switch (this) {
      case BOX:
        return -0.5 < t && t <= 0.5 ? 1 : 0;
      case BILINEAR:
        return near < 1 ? 1 - near : 0;
      case LANCZOS:
        return -3 <= t && t < 3 ? sinc(t) * sinc(t / 3) : 0;
      default:
        if (near < 1) {
          return ((A + 2) * near - (A + 3)) * near * near + 1;
        }
        return near < 2 ? (((near - 5) * near + 8) * near - 4) * A : 0;
    }
  }

  private static double sinc(double t) {
    // Strict: the same digits on every machine, with or without a processor's own sine.
    return t == 0 ? 1 : StrictMath.sin(t * Math.PI) / (t * Math.PI);
  }
}
