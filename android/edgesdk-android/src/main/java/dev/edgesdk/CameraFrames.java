package dev.edgesdk;

import android.graphics.ImageFormat;
import android.graphics.Rect;
import android.media.Image;
import java.nio.ByteBuffer;

/**
 * Camera frames of the format {@code YUV_420_888} as pictures. Keep one for each stream of frames: it reuses its memory.
 *
 * <pre>{@code
 * List<Label> top = session.classify(frames.read(image, imageProxy.getImageInfo().getRotationDegrees()), 5);
 * }</pre>
 *
 * <p>Not thread-safe.
 */
public final class CameraFrames {
  private final YuvReader reader;

  /** For frames of the camera, which use the whole range of 0 to 255. */
  public CameraFrames() {
    this(YuvRange.FULL);
  }

  /** For frames of another source: video decoders give {@link YuvRange#LIMITED}. */
  public CameraFrames(YuvRange range) {
    this.reader = new YuvReader(range);
  }

  /**
   * The part of a frame inside its crop rectangle. The picture holds until the next call; the image may be closed.
   *
   * @param rotation clockwise degrees that make it upright: 0, 90, 180 or 270, as CameraX tells and as follows from
   *     {@code CameraCharacteristics.SENSOR_ORIENTATION}
   * @throws EdgeException {@code image_unreadable}: another format; {@code bad_rotation}
   */
  public Picture read(Image image, int rotation) {
    if (image.getFormat() != ImageFormat.YUV_420_888) {
      throw new EdgeException(
          "image_unreadable",
          "An image of the format " + image.getFormat() + " is no camera frame.",
          "YUV_420_888 (" + ImageFormat.YUV_420_888 + ") is read.",
          "Make the ImageReader with ImageFormat.YUV_420_888, or decode the image to a Bitmap.");
    }
    Image.Plane[] planes = image.getPlanes();
    Rect crop = image.getCropRect();
    return reader.read(
        plane(planes[0]),
        plane(planes[1]),
        plane(planes[2]),
        new int[] {crop.left, crop.top, crop.right, crop.bottom},
        rotation);
  }

  /**
   * A frame as planes, for those who have no {@link Image}. The chroma planes have half the width and height, rounded up;
   * they may share memory (NV12, NV21) by a pixel stride of 2.
   *
   * @throws EdgeException {@code image_unreadable}: a plane is too short; {@code bad_rotation}
   */
  public Picture read(Plane y, Plane u, Plane v, int width, int height, int rotation) {
    return reader.read(y, u, v, new int[] {0, 0, width, height}, rotation);
  }

  private static Plane plane(Image.Plane plane) {
    return new Plane(plane.getBuffer(), plane.getRowStride(), plane.getPixelStride());
  }

  /** One plane: its bytes from position 0, bytes from row to row, bytes from sample to sample. */
  public static final class Plane {
    final ByteBuffer data;
    final int rowStride;
    final int pixelStride;

    /** Keeps the buffer and leaves its position alone. */
    public Plane(ByteBuffer data, int rowStride, int pixelStride) {
      this.data = data;
      this.rowStride = rowStride;
      this.pixelStride = pixelStride;
    }
  }
}
