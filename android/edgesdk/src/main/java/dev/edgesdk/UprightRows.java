package dev.edgesdk;

/** Steps 1 to 3: decoded samples become upright pixels in the model's colour order. */
final class UprightRows extends Rows {
  private final Picture picture;
  private final Color color;
  // Pixel x of row y is sample origin + y * down + x * across: every orientation is such a walk.
  private final int origin;
  private final int down;
  private final int across;
  private int begin;
  private int end;

  UprightRows(Picture picture, Color color) {
    super(
        picture.orientation >= 5 ? picture.height : picture.width,
        picture.orientation >= 5 ? picture.width : picture.height,
        color.channels());
    this.picture = picture;
    this.color = color;
    this.end = width;
    int w = picture.width;
    boolean swapped = picture.orientation >= 5;
    int tag = picture.orientation;
    boolean rowsBack = tag == 3 || tag == 4 || tag == 7 || tag == 8;
    boolean columnsBack = tag == 2 || tag == 3 || tag == 6 || tag == 7;
    int row = swapped ? 1 : w;
    int column = swapped ? w : 1;
    this.down = rowsBack ? -row : row;
    this.across = columnsBack ? -column : column;
    this.origin = (rowsBack ? row * (height - 1) : 0) + (columnsBack ? column * (width - 1) : 0);
  }

  /** Leaves out the columns that a crop drops: rows are then only right from {@code begin} to before {@code end}. */
  void only(int begin, int end) {
    this.begin = begin;
    this.end = end;
  }

  @Override
  void row(int y, byte[] out) {
    int at = origin + y * down + begin * across;
    switch (picture.form) {
      case ARGB:
        argb(at, out);
        break;
      case RGB:
        rgb(at, out);
        break;
      case RGBA:
        rgba(at, out);
        break;
      case CMYK:
        cmyk(at, out);
        break;
      default:
        gray(at, out);
        break;
    }
  }

  private void argb(int at, byte[] out) {
    int[] pixels = picture.ints;
    boolean plain = color.plain();
    for (int x = begin; x < end; x++, at += across) {
      int p = pixels[at];
      int alpha = p >>> 24;
      if (plain && alpha == 255) { // what nearly every pixel of nearly every app is
        int i = 3 * x;
        out[i] = (byte) (p >> 16);
        out[i + 1] = (byte) (p >> 8);
        out[i + 2] = (byte) p;
      } else if (alpha == 255) {
        color.put(out, x, p >> 16 & 255, p >> 8 & 255, p & 255);
      } else {
        color.put(out, x, p >> 16 & 255, p >> 8 & 255, p & 255, alpha);
      }
    }
  }

  private void rgb(int at, byte[] out) {
    byte[] samples = picture.bytes;
    for (int x = begin; x < end; x++, at += across) {
      int i = 3 * at;
      color.put(out, x, samples[i] & 255, samples[i + 1] & 255, samples[i + 2] & 255);
    }
  }

  private void rgba(int at, byte[] out) {
    byte[] samples = picture.bytes;
    for (int x = begin; x < end; x++, at += across) {
      int i = 4 * at;
      color.put(out, x, samples[i] & 255, samples[i + 1] & 255, samples[i + 2] & 255, samples[i + 3] & 255);
    }
  }

  private void cmyk(int at, byte[] out) {
    byte[] samples = picture.bytes;
    for (int x = begin; x < end; x++, at += across) {
      int i = 4 * at;
      int key = 255 - (samples[i + 3] & 255);
      color.put(out, x, ink(key, samples[i]), ink(key, samples[i + 1]), ink(key, samples[i + 2]));
    }
  }

  private static int ink(int key, byte ink) {
    return Math.max(0, key - Color.div255((ink & 255) * key));
  }

  private void gray(int at, byte[] out) {
    for (int x = begin; x < end; x++, at += across) {
      if (picture.form == Picture.Form.GRAY_ALPHA) {
        int v = picture.bytes[2 * at] & 255;
        color.put(out, x, v, v, v, picture.bytes[2 * at + 1] & 255);
      } else {
        int v = picture.form == Picture.Form.GRAY16 ? picture.shorts[at] >> 8 & 255 : picture.bytes[at] & 255;
        color.put(out, x, v, v, v);
      }
    }
  }
}
