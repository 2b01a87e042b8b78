package dev.edgesdk;

/** Step 3: the model's colour order, and the background that shows through. */
final class Color {
  enum Order { RGB, BGR, GRAY }

  private final Order order;
  private final int[] background;

  Color(Order order, int[] background) {
    this.order = order;
    this.background = background;
  }

  int channels() {
    return order == Order.GRAY ? 1 : 3;
  }

  /** Whether samples stay as they are. */
  boolean plain() {
    return order == Order.RGB;
  }

  /** x / 255 rounded to nearest, for x up to 255². */
  static int div255(int x) {
    return (x + 128 + ((x + 128) >> 8)) >> 8;
  }

  /** Writes pixel {@code x}. */
  void put(byte[] out, int x, int r, int g, int b) {
    switch (order) {
      case RGB:
        out[3 * x] = (byte) r;
        out[3 * x + 1] = (byte) g;
        out[3 * x + 2] = (byte) b;
        break;
      case BGR:
        out[3 * x] = (byte) b;
        out[3 * x + 1] = (byte) g;
        out[3 * x + 2] = (byte) r;
        break;
      default:
        out[x] = (byte) ((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
        break;
    }
  }

  /** Writes pixel {@code x}, flattened over the background. */
  void put(byte[] out, int x, int r, int g, int b, int alpha) {
    int rest = 255 - alpha;
    put(
        out,
        x,
        div255(r * alpha + background[0] * rest),
        div255(g * alpha + background[1] * rest),
        div255(b * alpha + background[2] * rest));
  }
}
