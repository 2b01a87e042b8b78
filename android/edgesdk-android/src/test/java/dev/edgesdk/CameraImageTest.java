package dev.edgesdk;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.graphics.ImageFormat;
import android.graphics.Rect;
import android.media.Image;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;

/** Android's own Image, with planes as a camera lays them out: rows with padding, both chroma planes in one memory (NV21). */
@RunWith(RobolectricTestRunner.class)
public final class CameraImageTest {
  private static final int WIDTH = 12;
  private static final int HEIGHT = 10;
  private static final int ROW = 16;

  private final byte[] luma = new byte[WIDTH * HEIGHT];
  private final byte[] blue = new byte[WIDTH / 2 * HEIGHT / 2];
  private final byte[] red = new byte[WIDTH / 2 * HEIGHT / 2];

  public CameraImageTest() {
    Random random = new Random(3);
    random.nextBytes(luma);
    random.nextBytes(blue);
    random.nextBytes(red);
  }

  private static final class Samples extends Image.Plane {
    private final ByteBuffer data;
    private final int pixelStride;

    Samples(ByteBuffer data, int pixelStride) {
      this.data = data;
      this.pixelStride = pixelStride;
    }

    @Override
    public int getRowStride() {
      return ROW;
    }

    @Override
    public int getPixelStride() {
      return pixelStride;
    }

    @Override
    public ByteBuffer getBuffer() {
      return data;
    }
  }

  /** An image of a camera, without a camera. */
  private final class Frame extends Image {
    private final int format;
    private boolean closed;

    Frame(int format) {
      this.format = format;
      mIsImageValid = true;
    }

    @Override
    public int getFormat() {
      return format;
    }

    @Override
    public int getWidth() {
      return WIDTH;
    }

    @Override
    public int getHeight() {
      return HEIGHT;
    }

    @Override
    public long getTimestamp() {
      return 0;
    }

    @Override
    public int getTransform() {
      return 0;
    }

    @Override
    public int getScalingMode() {
      return 0;
    }

    @Override
    public Image.Plane[] getPlanes() {
      ByteBuffer y = ByteBuffer.allocateDirect(ROW * (HEIGHT - 1) + WIDTH);
      for (int i = 0; i < luma.length; i++) {
        y.put(i / WIDTH * ROW + i % WIDTH, luma[i]);
      }
      ByteBuffer vu = ByteBuffer.allocateDirect(ROW * (HEIGHT / 2 - 1) + WIDTH);
      for (int i = 0; i < red.length; i++) {
        int at = i / (WIDTH / 2) * ROW + i % (WIDTH / 2) * 2;
        vu.put(at, red[i]);
        vu.put(at + 1, blue[i]);
      }
      vu.position(1);
      ByteBuffer u = vu.slice();
      vu.position(0).limit(vu.capacity() - 1);
      return new Image.Plane[] {new Samples(y, 1), new Samples(u, 2), new Samples(vu.slice(), 2)};
    }

    @Override
    public void close() {
      closed = true;
      mIsImageValid = false;
    }
  }

  private static CameraFrames.Plane tight(byte[] samples, int width) {
    return new CameraFrames.Plane(ByteBuffer.wrap(samples), width, 1);
  }

  private Picture whole(int rotation) {
    return new CameraFrames().read(
        tight(luma, WIDTH), tight(blue, WIDTH / 2), tight(red, WIDTH / 2), WIDTH, HEIGHT, rotation);
  }

  @Test
  public void aFrameIsReadThroughItsStrides() {
    Frame frame = new Frame(ImageFormat.YUV_420_888);
    Picture picture = new CameraFrames().read(frame, 90);
    frame.close();
    assertTrue(frame.closed);
    assertEquals(WIDTH, picture.width());
    assertEquals(HEIGHT, picture.height());
    assertEquals("90 degrees clockwise", 6, picture.orientation);
    assertArrayEquals(whole(90).ints, picture.ints);
  }

  @Test
  public void theCropRectangleOfTheFrameCounts() {
    Frame frame = new Frame(ImageFormat.YUV_420_888);
    frame.setCropRect(new Rect(3, 2, 10, 9));
    Picture picture = new CameraFrames().read(frame, 0);
    assertEquals(7, picture.width());
    assertEquals(7, picture.height());
    int[] all = whole(0).ints;
    for (int y = 0; y < 7; y++) {
      int from = (y + 2) * WIDTH + 3;
      assertArrayEquals(Arrays.copyOfRange(all, from, from + 7), Arrays.copyOfRange(picture.ints, 7 * y, 7 * y + 7));
    }
  }

  /** A rotated frame becomes the tensor of the picture that was rotated pixel by pixel. */
  @Test
  public void everyRotationGivesTheTensorOfTheTurnedPicture() {
    File file = new File(System.getProperty("edgesdk.bundles", "../edgesdk/target/bundles"), "picture.edge");
    Map<String, Object> spec = EdgeBundle.open(file).manifest().preprocess();
    for (int rotation : new int[] {0, 90, 180, 270}) {
      Picture given = new CameraFrames().read(new Frame(ImageFormat.YUV_420_888), rotation);
      Picture turned = turned(whole(0).ints, rotation);
      ImageSpec how = ImageSpec.read(spec);
      assertArrayEquals("by " + rotation, how.apply(turned).bytes(), how.apply(given).bytes());
    }
  }

  private static Picture turned(int[] pixels, int rotation) {
    boolean across = rotation % 180 != 0;
    int width = across ? HEIGHT : WIDTH;
    int height = across ? WIDTH : HEIGHT;
    int[] made = new int[pixels.length];
    for (int y = 0; y < HEIGHT; y++) {
      for (int x = 0; x < WIDTH; x++) {
        int toX = rotation == 0 ? x : rotation == 90 ? HEIGHT - 1 - y : rotation == 180 ? WIDTH - 1 - x : y;
        int toY = rotation == 0 ? y : rotation == 90 ? x : rotation == 180 ? HEIGHT - 1 - y : WIDTH - 1 - x;
        made[toY * width + toX] = pixels[y * WIDTH + x];
      }
    }
    return Picture.argb(made, width, height);
  }

  @Test
  public void otherFormatsAreNoCameraFrames() {
    EdgeException error = assertThrows(
        EdgeException.class, () -> new CameraFrames().read(new Frame(ImageFormat.JPEG), 0));
    assertEquals("image_unreadable", error.code());
    assertTrue(error.fix(), error.fix().contains("ImageFormat.YUV_420_888"));
  }
}
