package dev.edgesdk;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.ByteBuffer;
import java.util.Random;
import org.junit.Test;

/** Camera frames, laid out in memory as different cameras do. */
public final class YuvReaderTest {
  private static final int WIDTH = 7;
  private static final int HEIGHT = 5;
  private final byte[][] samples = {new byte[WIDTH * HEIGHT], new byte[4 * 3], new byte[4 * 3]};

  public YuvReaderTest() {
    for (byte[] plane : samples) {
      new Random(plane.length).nextBytes(plane);
    }
  }

  /** A plane whose last row ends with its last sample, as cameras give it. */
  private static CameraFrames.Plane plane(byte[] tight, int width, int rowStride, int pixelStride) {
    int height = tight.length / width;
    ByteBuffer data = ByteBuffer.allocateDirect((height - 1) * rowStride + (width - 1) * pixelStride + 1);
    for (int i = 0; i < tight.length; i++) {
      data.put(i / width * rowStride + i % width * pixelStride, tight[i]);
    }
    return new CameraFrames.Plane(data, rowStride, pixelStride);
  }

  private int expected(int x, int y, boolean full) {
    double luma = (samples[0][y * WIDTH + x] & 255) - (full ? 0 : 16);
    double blue = (samples[1][y / 2 * 4 + x / 2] & 255) - 128;
    double red = (samples[2][y / 2 * 4 + x / 2] & 255) - 128;
    // BT.601: Kr = 0.299, Kb = 0.114.
    luma *= full ? 1 : 255 / 219.0;
    red *= full ? 1 : 255 / 224.0;
    blue *= full ? 1 : 255 / 224.0;
    return 255 << 24
        | round(luma + 2 * (1 - 0.299) * red) << 16
        | round(luma - 2 * 0.114 * (1 - 0.114) / 0.587 * blue - 2 * 0.299 * (1 - 0.299) / 0.587 * red) << 8
        | round(luma + 2 * (1 - 0.114) * blue);
  }

  private static int round(double value) {
    return (int) Math.max(0, Math.min(255, Math.round(value)));
  }

  private void check(Picture picture, int left, int top, boolean full) {
    for (int y = 0; y < picture.height(); y++) {
      for (int x = 0; x < picture.width(); x++) {
        int got = picture.ints[y * picture.width() + x];
        int wanted = expected(left + x, top + y, full);
        for (int shift = 0; shift < 32; shift += 8) {
          // The gains are known to 16 bits: a value that lies half-way may be rounded the other way.
          assertEquals(x + ", " + y, wanted >> shift & 255, got >> shift & 255, 1);
        }
      }
    }
  }

  @Test
  public void planesOfEveryStrideGiveTheSamePicture() {
    for (boolean full : new boolean[] {true, false}) {
      CameraFrames frames = new CameraFrames(full ? YuvRange.FULL : YuvRange.LIMITED);
      for (int[] strides : new int[][] {{7, 1, 4, 1}, {16, 1, 16, 1}, {8, 1, 8, 2}, {32, 2, 40, 3}}) {
        Picture picture = frames.read(
            plane(samples[0], WIDTH, strides[0], strides[1]),
            plane(samples[1], 4, strides[2], strides[3]),
            plane(samples[2], 4, strides[2], strides[3]), WIDTH, HEIGHT, 0);
        check(picture, 0, 0, full);
      }
    }
  }

  @Test
  public void theCropRectangleCounts() {
    YuvReader reader = new YuvReader(YuvRange.FULL);
    Picture picture = reader.read(
        plane(samples[0], WIDTH, 9, 1), plane(samples[1], 4, 8, 2), plane(samples[2], 4, 8, 2),
        new int[] {3, 1, 6, 4}, 0);
    assertEquals(3, picture.width());
    assertEquals(3, picture.height());
    check(picture, 3, 1, true);
  }

  @Test
  public void blackAndWhiteAreThoseOfTheRange() {
    for (int[] one : new int[][] {{0, 0, 0}, {255, 0, 255}, {16, 1, 0}, {235, 1, 255}}) {
      Picture picture = new CameraFrames(one[1] == 0 ? YuvRange.FULL : YuvRange.LIMITED).read(
          plane(new byte[] {(byte) one[0]}, 1, 1, 1), plane(new byte[] {-128}, 1, 1, 1),
          plane(new byte[] {-128}, 1, 1, 1), 1, 1, 0);
      assertEquals(one[2] * 0x010101 | 0xff000000, picture.ints[0]);
    }
  }

  @Test
  public void rotationsAreExifOrientations() {
    int[][] wanted = {{0, 1}, {90, 6}, {180, 3}, {270, 8}};
    CameraFrames frames = new CameraFrames();
    for (int[] one : wanted) {
      assertEquals(one[1], frame(frames, one[0]).orientation);
    }
    EdgeException error = assertThrows(EdgeException.class, () -> frame(frames, 45));
    assertEquals("bad_rotation", error.code());
  }

  private Picture frame(CameraFrames frames, int rotation) {
    return frames.read(
        plane(samples[0], WIDTH, 7, 1), plane(samples[1], 4, 4, 1), plane(samples[2], 4, 4, 1), WIDTH, HEIGHT,
        rotation);
  }

  @Test
  public void framesOfOneStreamReuseTheirMemory() {
    CameraFrames frames = new CameraFrames();
    assertTrue(frame(frames, 0).ints == frame(frames, 90).ints);
  }

  @Test
  public void planesThatAreTooShortAreAnError() {
    EdgeException error = assertThrows(EdgeException.class, () -> new CameraFrames().read(
        plane(samples[0], WIDTH, 7, 1), plane(samples[1], 4, 4, 1), plane(samples[2], 4, 4, 1), WIDTH + 2, HEIGHT, 0));
    assertEquals("image_unreadable", error.code());
    error = assertThrows(EdgeException.class, () -> new CameraFrames().read(
        plane(samples[0], WIDTH, 7, 1), plane(samples[1], 4, 4, 1), plane(samples[2], 4, 4, 1), 50_000, 50_000, 0));
    assertEquals("image_unreadable", error.code());
  }
}
