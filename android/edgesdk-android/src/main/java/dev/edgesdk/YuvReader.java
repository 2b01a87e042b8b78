package dev.edgesdk;

import java.nio.ByteBuffer;

/** YUV 4:2:0 to 0xAARRGGBB in whole numbers; a colour sample stands for its four pixels. */
final class YuvReader {
  // 65536 times: gain of Y; R from V; G from U; G from V; B from U. JFIF 1.02 §7 and BT.601; full range as libjpeg rounds.
  private static final int[] FULL = {65536, 91881, 22554, 46802, 116130};
  private static final int[] LIMITED = {76309, 104597, 25675, 53279, 132201};

  private final int[] gains;
  private final int black;
  private int[] pixels = new int[0];
  private byte[] lumaRow = new byte[0];
  private byte[] redRow = new byte[0];
  private byte[] blueRow = new byte[0];

  YuvReader(YuvRange range) {
    gains = range == YuvRange.FULL ? FULL : LIMITED;
    black = range == YuvRange.FULL ? 0 : 16;
  }

  /** @param crop left, top, right, bottom */
  Picture read(
      CameraFrames.Plane y, CameraFrames.Plane u, CameraFrames.Plane v, int[] crop, int rotation) {
    int exif = exif(rotation);
    int width = crop[2] - crop[0];
    int height = crop[3] - crop[1];
    if (crop[0] < 0 || crop[1] < 0 || width < 1 || height < 1) {
      throw unreadable("A frame of " + width + " × " + height + " has no pixels.", "Its crop rectangle is empty.");
    }
    if ((long) width * height > ImageSpec.MOST_PIXELS) {
      throw unreadable("A frame of " + width + " × " + height + " is too large.", "No camera has so many pixels.");
    }
    if (pixels.length != width * height) {
      pixels = new int[width * height];
    }
    for (int row = 0; row < height; row++) {
      int at = crop[1] + row;
      lumaRow = row(y, at, crop[2], lumaRow);
      if (row == 0 || at % 2 == 0) {
        blueRow = row(u, at / 2, (crop[2] + 1) / 2, blueRow);
        redRow = row(v, at / 2, (crop[2] + 1) / 2, redRow);
      }
      convert(row * width, crop[0], width, y.pixelStride, u.pixelStride, v.pixelStride);
    }
    return Picture.argb(pixels, width, height).withOrientation(exif);
  }

  private void convert(int to, int left, int width, int lumaStep, int blueStep, int redStep) {
    for (int i = 0; i < width; i++) {
      int x = left + i;
      int luma = ((lumaRow[x * lumaStep] & 255) - black) * gains[0] + 32768;
      int blue = (blueRow[x / 2 * blueStep] & 255) - 128;
      int red = (redRow[x / 2 * redStep] & 255) - 128;
      int r = clamp(luma + gains[1] * red >> 16);
      int g = clamp(luma - gains[2] * blue - gains[3] * red >> 16);
      int b = clamp(luma + gains[4] * blue >> 16);
      pixels[to + i] = 0xff000000 | r << 16 | g << 8 | b;
    }
  }

  private static int clamp(int value) {
    return value < 0 ? 0 : Math.min(value, 255);
  }

  /** The last row of an interleaved plane ends with its last sample, not with its stride. */
  private static byte[] row(CameraFrames.Plane plane, int row, int samples, byte[] into) {
    long length = (samples - 1L) * plane.pixelStride + 1;
    long from = (long) row * plane.rowStride;
    ByteBuffer data = plane.data.duplicate();
    if (plane.rowStride < length || plane.pixelStride < 1 || from + length > data.limit()) {
      throw unreadable(
          "A plane of " + data.limit() + " bytes has no row " + row + " of " + samples + " samples (row stride "
              + plane.rowStride + ", pixel stride " + plane.pixelStride + ").",
          "Planes and strides of one image belong together.");
    }
    int bytes = (int) length;
    byte[] line = into.length >= bytes ? into : new byte[bytes];
    data.position((int) from);
    data.get(line, 0, bytes);
    return line;
  }

  /** The EXIF orientation of a picture that must be turned clockwise by so much. */
  private static int exif(int rotation) {
    switch (rotation) {
      case 0:
        return 1;
      case 90:
        return 6;
      case 180:
        return 3;
      case 270:
        return 8;
      default:
        throw new EdgeException(
            "bad_rotation",
            "A frame can't be turned by " + rotation + " degrees.",
            "Sensors are mounted at right angles.",
            "Give 0, 90, 180 or 270.");
    }
  }

  private static EdgeException unreadable(String message, String why) {
    return new EdgeException("image_unreadable", message, why, "Give the planes, strides and size of one image.");
  }
}
