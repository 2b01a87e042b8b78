package dev.edgesdk;

/**
 * Which size the picture gets, and which window of it is the result. All in whole numbers; the text is in Python's
 * {@code preprocess/_geometry.py}. Index 0 is the height, 1 the width.
 */
final class Plan {
  final int[] resized;
  final int[] source = new int[2];
  final int[] window = new int[2];
  final int[] target = new int[2];
  final int[] canvas = new int[2];

  Plan(ImageSpec spec, int height, int width) {
    long[] size = resizedSize(spec, height, width);
    boolean letterbox = spec.resize != null && spec.resize.mode.equals("letterbox");
    for (int axis = 0; axis < 2; axis++) {
      axis(spec, size[axis], letterbox ? spec.resize.size[axis] : size[axis], axis);
    }
    check(height, width);
    resized = new int[] {(int) size[0], (int) size[1]};
  }

  private long canvasHeight;
  private long canvasWidth;

  private static long[] resizedSize(ImageSpec spec, long height, long width) {
    ImageSpec.Resize resize = spec.resize;
    if (resize == null) {
      return new long[] {height, width};
    }
    long h = resize.size[0];
    long w = resize.size[1];
    boolean byHeight = height * w <= width * h;
    if (resize.mode.equals("stretch")) {
      return new long[] {h, w};
    }
    if (resize.mode.equals("shorter")) {
      return byHeight
          ? new long[] {h, divide(width * h, height, resize.halfEven)}
          : new long[] {divide(height * w, width, resize.halfEven), w};
    }
    return byHeight
        ? new long[] {Math.max(1, divide(height * w, width, true)), w}
        : new long[] {h, Math.max(1, divide(width * h, height, true))};
  }

  /** Whole-number division, cut or rounded to nearest with halves to even. */
  static long divide(long numerator, long denominator, boolean halfEven) {
    long quotient = numerator / denominator;
    long rest = 2 * (numerator % denominator);
    if (!halfEven || rest < denominator) {
      return quotient;
    }
    return quotient + (rest > denominator ? 1 : quotient % 2);
  }

  private void axis(ImageSpec spec, long size, long boxed, int axis) {
    long before = spec.centered ? (boxed - size) / 2 : 0;
    long start = before;
    long length = boxed;
    if (spec.crop != null) {
      length = spec.crop[axis];
      long rest = boxed - length;
      // The picture lies at `start` on the cropped canvas; what sticks out at either end is cut off.
      start = before + (rest < 0 ? -rest / 2 : -divide(rest, 2, spec.cropHalfEven));
    }
    long low = Math.max(0, start);
    long high = Math.min(length, start + size);
    source[axis] = (int) (low - start);
    window[axis] = (int) Math.max(0, high - low);
    target[axis] = (int) low;
    canvas[axis] = (int) Math.min(length, Integer.MAX_VALUE);
    if (axis == 0) {
      canvasHeight = length;
    } else {
      canvasWidth = length;
    }
  }

  private void check(int height, int width) {
    if (canvasHeight * canvasWidth > ImageSpec.MOST_PIXELS) {
      throw new EdgeException(
          "image_unreadable",
          "A picture of " + width + " × " + height + " would become " + canvasWidth + " × " + canvasHeight + ".",
          "Its sides differ too much for a resize that keeps them in proportion.",
          "Package the model with --image, so that the picture is cropped, or with --resize stretch.");
    }
  }
}
