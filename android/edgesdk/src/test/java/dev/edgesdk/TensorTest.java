package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.junit.jupiter.api.Test;

final class TensorTest {
  @Test
  void valuesComeBackAsTheyWere() {
    assertArrayEquals(new float[] {1, 2}, Tensor.of(new float[] {1, 2}, 2).floats());
    assertArrayEquals(new double[] {1, 2}, Tensor.of(new double[] {1, 2}, 1, 2).doubles());
    assertArrayEquals(new long[] {1L << 60}, Tensor.of(new long[] {1L << 60}, 1).longs());
    assertArrayEquals(new int[] {-7}, Tensor.of(new int[] {-7}).ints());
    assertArrayEquals(new boolean[] {true, false}, Tensor.of(new boolean[] {true, false}, 2).booleans());
    assertArrayEquals(new byte[] {-1}, Tensor.uint8(new byte[] {-1}, 1).bytes());
    assertEquals("float32[0, 3]", Tensor.of(new float[0], 0, 3).toString());
    assertTrue(Tensor.of(new float[] {1}, 1).data().isDirect());
  }

  /** apps get floats from whatever a model returns, when they ask for them. */
  @Test
  void pitfall_a_07_everyRealDtypeWidens() {
    assertArrayEquals(new float[] {255, 128}, Tensor.uint8(new byte[] {-1, -128}, 2).toFloats());
    assertArrayEquals(new float[] {-1, -128}, Tensor.int8(new byte[] {-1, -128}, 2).toFloats());
    assertArrayEquals(new float[] {1, 0}, Tensor.of(new boolean[] {true, false}, 2).toFloats());
    assertArrayEquals(new float[] {3}, Tensor.of(new long[] {3}, 1).toFloats());
    assertArrayEquals(new float[] {0.5f}, Tensor.of(new double[] {0.5}, 1).toFloats());
    assertArrayEquals(new float[] {-3}, Tensor.of(new short[] {-3}, 1).toFloats());
    Tensor half = Tensor.allocate(DType.FLOAT16, 2);
    half.data().putShort((short) 0x3c00).putShort((short) 0xc100);
    assertArrayEquals(new float[] {1, -2.5f}, half.toFloats());
    Tensor brain = Tensor.allocate(DType.BFLOAT16, 1);
    brain.data().putShort((short) 0x4049);
    assertArrayEquals(new float[] {3.140625f}, brain.toFloats());
    Tensor wide = Tensor.allocate(DType.UINT16, 1);
    wide.data().putShort((short) -1);
    assertArrayEquals(new double[] {65535}, wide.toDoubles());
    Made.fails("dtype_mismatch", () -> Tensor.allocate(DType.COMPLEX64, 1).toFloats());
  }

  @Test
  void nothingIsCastUnasked() {
    EdgeException error = Made.fails("dtype_mismatch", () -> Tensor.of(new long[] {1}, 1).floats());
    assertEquals("A tensor of int64 doesn't hold float32.", error.message());
    assertEquals("Call the method of its dtype, or toFloats(), instead of floats().", error.fix());
  }

  @Test
  void memoryIsSharedByWrap() {
    ByteBuffer memory = ByteBuffer.allocateDirect(12).order(ByteOrder.nativeOrder());
    memory.position(4);
    Tensor tensor = Tensor.wrap(DType.FLOAT32, memory, 2);
    memory.putFloat(4, 8.5f);
    assertEquals(8.5f, tensor.floats()[0]);
  }

  @Test
  void impossibleTensorsAreRefused() {
    EdgeException count = Made.fails("bad_tensor", () -> Tensor.of(new float[5], 2, 3));
    assertEquals("5 values don't fill the shape [2, 3].", count.message());
    EdgeException heap = Made.fails("bad_tensor", () -> Tensor.wrap(DType.INT8, ByteBuffer.allocate(4), 4));
    assertEquals("A buffer on the heap of 4 bytes is no int8[4], which has 4.", heap.message());
    Made.fails("bad_tensor", () -> Tensor.wrap(DType.FLOAT32, ByteBuffer.allocateDirect(5), 1));
    Made.fails("bad_tensor", () -> Tensor.allocate(DType.INT8, -1));
    Made.fails("bad_tensor", () -> Tensor.allocate(DType.FLOAT32, 1 << 20, 1 << 20, 1 << 20));
    Made.fails("bad_tensor", () -> Tensor.allocate(DType.FLOAT32, 1 << 29));
  }

  @Test
  void everyHalfSurvives() {
    for (int bits = 0; bits < 1 << 16; bits++) {
      float value = Half.toFloat((short) bits);
      if (!Float.isNaN(value)) {
        assertEquals((short) bits, Half.of(value), () -> "half " + value);
      }
    }
    assertTrue(Float.isNaN(Half.toFloat(Half.of(Double.NaN))));
  }

  /** Half-way between two halves the even one wins, and a double is rounded once: not through a float. */
  @Test
  void halvesAreRoundedOnce() {
    for (int bits = 0; bits < 0x7bff; bits++) {
      double low = Half.toFloat((short) bits);
      double high = Half.toFloat((short) (bits + 1));
      double middle = (low + high) / 2;
      assertEquals((short) (bits + bits % 2), Half.of(middle));
      assertEquals((short) bits, Half.of(Math.nextDown(middle)));
      assertEquals((short) (bits + 1), Half.of(Math.nextUp(middle)));
    }
    assertEquals((short) 0x7bff, Half.of(Math.nextDown(65520.0)));
    assertEquals((short) 0x7c00, Half.of(65520));
    assertEquals((short) 0x3f80, Half.toBrain(1f));
    assertEquals((short) 0x3f80, Half.toBrain(Float.intBitsToFloat(0x3f808000)));
    assertEquals((short) 0x3f82, Half.toBrain(Float.intBitsToFloat(0x3f818000)));
  }
}
