package dev.edgesdk;

import android.graphics.Bitmap;
import org.jspecify.annotations.Nullable;

/** Bitmaps as pictures. */
public final class Pictures {
  private Pictures() {}

  /**
   * The pixels of a bitmap of any kind, as sRGB with 8 bits, alpha not premultiplied. For an EXIF orientation add {@link
   * Picture#withOrientation}.
   *
   * <p>Where a bitmap is transparent, Android has already lost bits of its colours. Decode with {@code
   * BitmapFactory.Options.inPremultiplied = false} to have them as in the file, and as in Python.
   *
   * @throws EdgeException {@code image_unreadable}: recycled, or memory ran out
   */
  public static Picture of(Bitmap bitmap) {
    if (bitmap.isRecycled()) {
      throw unreadable("The bitmap is recycled.", "Its pixels were given back.", "Classify before recycle().");
    }
    Bitmap readable = needsCopy(bitmap.getConfig()) ? bitmap.copy(Bitmap.Config.ARGB_8888, false) : bitmap;
    if (readable == null) {
      throw unreadable(
          "A bitmap of " + bitmap.getWidth() + " × " + bitmap.getHeight() + " can't be copied for reading.",
          "There is too little memory.",
          "Decode it smaller: BitmapFactory.Options.inSampleSize.");
    }
    try {
      int width = readable.getWidth();
      int height = readable.getHeight();
      int[] pixels = new int[width * height];
      readable.getPixels(pixels, 0, width, 0, 0, width, height);
      return Picture.argb(pixels, width, height);
    } finally {
      if (readable != bitmap) {
        readable.recycle();
      }
    }
  }

  /** getPixels can't read what lies in the GPU's memory (HARDWARE), and mustn't be asked for half floats. */
  static boolean needsCopy(Bitmap.@Nullable Config config) {
    return config != Bitmap.Config.ARGB_8888 && config != Bitmap.Config.RGB_565;
  }

  private static EdgeException unreadable(String message, String why, String fix) {
    return new EdgeException("image_unreadable", message, why, fix);
  }
}
