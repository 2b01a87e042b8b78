package dev.edgesdk;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;

/**
 * From channels-last memory to the order of the shape. N-08: the engine hands out what a convolution or a permutation left
 * behind as it lies in memory, with the shape of channels first.
 */
final class LiteOrder {
  private LiteOrder() {}

  /** Whether both orders are the same, as with one channel or one pixel. */
  static boolean same(long[] shape) {
    return shape[1] == 1 || pixels(shape) == 1;
  }

  private static int pixels(long[] shape) {
    long count = 1;
    for (int axis = 2; axis < shape.length; axis++) {
      count *= shape[axis];
    }
    return (int) count;
  }

  /** {@code [N, …, C]} to {@code [N, C, …]}; both buffers hold the same number of elements. */
  static void channelsFirst(Buffer from, DType dtype, Buffer to, long[] shape) {
    int pixels = pixels(shape);
    int channels = (int) shape[1];
    for (int image = 0; image < shape[0]; image++) {
      int base = image * channels * pixels;
      for (int channel = 0; channel < channels; channel++) {
        plane(from, dtype, to, new int[] {base + channel, channels, base + channel * pixels, pixels});
      }
    }
  }

  /** One channel: first element and step in {@code from}, first element in {@code to}, and how many. */
  private static void plane(Buffer from, DType dtype, Buffer to, int[] where) {
    switch (dtype) {
      case FLOAT32:
        plane((FloatBuffer) from, (FloatBuffer) to, where);
        break;
      case FLOAT64:
        plane((DoubleBuffer) from, (DoubleBuffer) to, where);
        break;
      case INT64:
        plane((LongBuffer) from, (LongBuffer) to, where);
        break;
      case INT32:
        plane((IntBuffer) from, (IntBuffer) to, where);
        break;
      default:
        plane((ByteBuffer) from, (ByteBuffer) to, where);
    }
  }

  private static void plane(FloatBuffer from, FloatBuffer to, int[] where) {
    for (int i = 0; i < where[3]; i++) {
      to.put(where[2] + i, from.get(where[0] + i * where[1]));
    }
  }

  private static void plane(DoubleBuffer from, DoubleBuffer to, int[] where) {
    for (int i = 0; i < where[3]; i++) {
      to.put(where[2] + i, from.get(where[0] + i * where[1]));
    }
  }

  private static void plane(LongBuffer from, LongBuffer to, int[] where) {
    for (int i = 0; i < where[3]; i++) {
      to.put(where[2] + i, from.get(where[0] + i * where[1]));
    }
  }

  private static void plane(IntBuffer from, IntBuffer to, int[] where) {
    for (int i = 0; i < where[3]; i++) {
      to.put(where[2] + i, from.get(where[0] + i * where[1]));
    }
  }

  private static void plane(ByteBuffer from, ByteBuffer to, int[] where) {
    for (int i = 0; i < where[3]; i++) {
      to.put(where[2] + i, from.get(where[0] + i * where[1]));
    }
  }
}
