package dev.edgesdk;

/**
 * A decoded picture: samples, size, and the EXIF orientation that is still to be applied. The samples aren't copied.
 *
 * <p>Alpha is never premultiplied: decode with {@code BitmapFactory.Options.inPremultiplied = false}, or with {@code
 * Bitmap.getPixels}, which undoes it.
 */
public final class Picture {
  enum Form { ARGB, RGB, RGBA, GRAY, GRAY_ALPHA, GRAY16, CMYK }

  final Form form;
  final int width;
  final int height;
  final int orientation;
  final int[] ints;
  final byte[] bytes;
  final short[] shorts;

  private Picture(Form form, int width, int height, int orientation, int[] ints, byte[] bytes, short[] shorts) {
    this.form = form;
    this.width = width;
    this.height = height;
    this.orientation = orientation;
    this.ints = ints;
    this.bytes = bytes;
    this.shorts = shorts;
  }

  private static Picture of(Form form, byte[] samples, int each, int width, int height) {
    check(samples.length, each, width, height);
    return new Picture(form, width, height, 1, new int[0], samples, new short[0]);
  }

  /** Pixels as {@code Bitmap.getPixels} gives them: {@code 0xAARRGGBB}, row by row. */
  public static Picture argb(int[] pixels, int width, int height) {
    check(pixels.length, 1, width, height);
    return new Picture(Form.ARGB, width, height, 1, pixels, new byte[0], new short[0]);
  }

  /** Red, green, blue: three bytes for each pixel. */
  public static Picture rgb(byte[] samples, int width, int height) {
    return of(Form.RGB, samples, 3, width, height);
  }

  /** Red, green, blue, alpha: four bytes for each pixel. */
  public static Picture rgba(byte[] samples, int width, int height) {
    return of(Form.RGBA, samples, 4, width, height);
  }

  /** One byte for each pixel. */
  public static Picture gray(byte[] samples, int width, int height) {
    return of(Form.GRAY, samples, 1, width, height);
  }

  /** Grey and alpha: two bytes for each pixel. */
  public static Picture grayAlpha(byte[] samples, int width, int height) {
    return of(Form.GRAY_ALPHA, samples, 2, width, height);
  }

  /** Sixteen bits for each pixel, of which the upper eight count. */
  public static Picture gray16(short[] samples, int width, int height) {
    check(samples.length, 1, width, height);
    return new Picture(Form.GRAY16, width, height, 1, new int[0], new byte[0], samples);
  }

  /** Cyan, magenta, yellow, black: four bytes for each pixel, 0 is no ink. */
  public static Picture cmyk(byte[] samples, int width, int height) {
    return of(Form.CMYK, samples, 4, width, height);
  }

  private static void check(int length, int each, int width, int height) {
    if (width < 1 || height < 1 || (long) width * height * each != length) {
      throw new EdgeException(
          "image_unreadable",
          length + " samples are no picture of " + width + " × " + height + ".",
          "Such a picture has " + (long) width * height * each + " samples.",
          "Give the size in the order width, height.");
    }
  }

  /** The same picture with the orientation of its EXIF tag 274, 1 to 8; another number counts as 1, as in galleries. */
  public Picture withOrientation(int exif) {
    return new Picture(form, width, height, exif >= 1 && exif <= 8 ? exif : 1, ints, bytes, shorts);
  }

  /** Pixels in a row, before the orientation is applied. */
  public int width() {
    return width;
  }

  /** Rows, before the orientation is applied. */
  public int height() {
    return height;
  }
}
