package dev.edgesdk;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * A tensor: a direct buffer in C order, with a dtype and a shape. Engines read and write the buffer as it is.
 *
 * <p>Nothing is converted unasked: {@link #floats()} of a tensor that isn't float32 is an error, {@link #toFloats()}
 * widens.
 */
public final class Tensor {
  private final DType dtype;
  private final long[] shape;
  private final int size;
  private final ByteBuffer data;

  private Tensor(DType dtype, long[] shape, ByteBuffer data) {
    this.dtype = dtype;
    this.shape = shape;
    this.size = data.capacity() / dtype.bytes();
    this.data = data;
  }

  /**
   * A tensor of zeros.
   *
   * @throws EdgeException {@code bad_tensor}: a negative size, or more than 2 GiB; {@code out_of_memory}
   */
  public static Tensor allocate(DType dtype, long... shape) {
    int bytes = bytes(dtype, shape);
    try {
      return new Tensor(dtype, shape.clone(), ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder()));
    } catch (OutOfMemoryError cause) { // one large block was refused; smaller ones are still to be had
      throw new EdgeException(
          "out_of_memory",
          "There is no memory for a tensor " + dtype + Words.shape(shape) + " of " + bytes + " bytes.",
          "The process has too little left, or the shape is a slip.",
          "Give smaller inputs, close sessions that aren't used, or run in parts.",
          cause);
    }
  }

  /**
   * A tensor over the caller's own memory, without a copy: what is written there later is what the engine reads.
   *
   * @param data direct; from position to limit in the machine's byte order
   * @throws EdgeException {@code bad_tensor}: not direct, or of another size than dtype and shape say
   */
  public static Tensor wrap(DType dtype, ByteBuffer data, long... shape) {
    int bytes = bytes(dtype, shape);
    if (!data.isDirect() || data.remaining() != bytes) {
      throw bad(
          (data.isDirect() ? "A buffer of " + data.remaining() : "A buffer on the heap of " + data.remaining())
              + " bytes is no " + dtype + Words.shape(shape) + ", which has " + bytes + ".",
          "Engines read direct memory, and all of it.",
          "Make it by ByteBuffer.allocateDirect(" + bytes + ").order(ByteOrder.nativeOrder()).");
    }
    return new Tensor(dtype, shape.clone(), data.slice().order(ByteOrder.nativeOrder()));
  }

  /** A float32 tensor with a copy of the values. */
  public static Tensor of(float[] values, long... shape) {
    Tensor made = allocate(DType.FLOAT32, checked(values.length, shape));
    made.data().asFloatBuffer().put(values);
    return made;
  }

  /** A float64 tensor with a copy of the values. */
  public static Tensor of(double[] values, long... shape) {
    Tensor made = allocate(DType.FLOAT64, checked(values.length, shape));
    made.data().asDoubleBuffer().put(values);
    return made;
  }

  /** An int64 tensor with a copy of the values. */
  public static Tensor of(long[] values, long... shape) {
    Tensor made = allocate(DType.INT64, checked(values.length, shape));
    made.data().asLongBuffer().put(values);
    return made;
  }

  /** An int32 tensor with a copy of the values. */
  public static Tensor of(int[] values, long... shape) {
    Tensor made = allocate(DType.INT32, checked(values.length, shape));
    made.data().asIntBuffer().put(values);
    return made;
  }

  /** An int16 tensor with a copy of the values. */
  public static Tensor of(short[] values, long... shape) {
    Tensor made = allocate(DType.INT16, checked(values.length, shape));
    made.data().asShortBuffer().put(values);
    return made;
  }

  /** An int8 tensor with a copy of the values. */
  public static Tensor int8(byte[] values, long... shape) {
    Tensor made = allocate(DType.INT8, checked(values.length, shape));
    made.data().put(values);
    return made;
  }

  /** A uint8 tensor with a copy of the values. */
  public static Tensor uint8(byte[] values, long... shape) {
    Tensor made = allocate(DType.UINT8, checked(values.length, shape));
    made.data().put(values);
    return made;
  }

  /** A bool tensor with a copy of the values. */
  public static Tensor of(boolean[] values, long... shape) {
    Tensor made = allocate(DType.BOOL, checked(values.length, shape));
    for (int i = 0; i < values.length; i++) {
      made.data.put(i, (byte) (values[i] ? 1 : 0));
    }
    return made;
  }

  /** The type of the elements. */
  public DType dtype() {
    return dtype;
  }

  /** A copy of the sizes. */
  public long[] shape() {
    return shape.clone();
  }

  /** The tensor's own array, for those who only read it. */
  long[] sizes() {
    return shape;
  }

  /** The number of elements. */
  public int size() {
    return size;
  }

  /** The memory itself, at position 0, in the machine's byte order; writing to it changes the tensor. */
  public ByteBuffer data() {
    return data.duplicate().order(ByteOrder.nativeOrder());
  }

  /** Whether it lies over memory that must not be written to, such as a mapped file. */
  boolean readOnly() {
    return data.isReadOnly();
  }

  /** A copy of a float32 tensor's values. */
  public float[] floats() {
    require(DType.FLOAT32, "floats");
    float[] values = new float[size];
    data().asFloatBuffer().get(values);
    return values;
  }

  /** A copy of a float64 tensor's values. */
  public double[] doubles() {
    require(DType.FLOAT64, "doubles");
    double[] values = new double[size];
    data().asDoubleBuffer().get(values);
    return values;
  }

  /** A copy of an int64 tensor's values. */
  public long[] longs() {
    require(DType.INT64, "longs");
    long[] values = new long[size];
    data().asLongBuffer().get(values);
    return values;
  }

  /** A copy of an int32 tensor's values. */
  public int[] ints() {
    require(DType.INT32, "ints");
    int[] values = new int[size];
    data().asIntBuffer().get(values);
    return values;
  }

  /** A copy of a bool tensor's values. */
  public boolean[] booleans() {
    require(DType.BOOL, "booleans");
    boolean[] values = new boolean[size];
    for (int i = 0; i < size; i++) {
      values[i] = data.get(i) != 0;
    }
    return values;
  }

  /** A copy of the memory, whatever the dtype. */
  public byte[] bytes() {
    byte[] values = new byte[data.capacity()];
    data().get(values);
    return values;
  }

  /**
   * The values of any real dtype as floats. float64 and large integers lose digits; half precision, bfloat16, bool and
   * small integers don't.
   *
   * @throws EdgeException {@code dtype_mismatch}: the tensor is complex
   */
  public float[] toFloats() {
    float[] values = new float[size];
    for (int i = 0; i < size; i++) {
      values[i] = (float) at(i);
    }
    return values;
  }

  /**
   * The values of any real dtype as doubles; only large int64 lose digits.
   *
   * @throws EdgeException {@code dtype_mismatch}: the tensor is complex
   */
  public double[] toDoubles() {
    double[] values = new double[size];
    for (int i = 0; i < size; i++) {
      values[i] = at(i);
    }
    return values;
  }

  private double at(int i) {
    switch (dtype) {
      case FLOAT32:
        return data.getFloat(4 * i);
      case FLOAT64:
        return data.getDouble(8 * i);
      case FLOAT16:
        return Half.toFloat(data.getShort(2 * i));
      case BFLOAT16:
        return Half.fromBrain(data.getShort(2 * i));
      case INT64:
        return data.getLong(8 * i);
      case INT32:
        return data.getInt(4 * i);
      case INT16:
        return data.getShort(2 * i);
      case UINT16:
        return data.getShort(2 * i) & 0xffff;
      case UINT8:
        return data.get(i) & 0xff;
      case COMPLEX64:
        throw wrong("real numbers", "Read the pairs of floats from data().");
      default:
        return data.get(i);
    }
  }

  private void require(DType wanted, String method) {
    if (dtype != wanted) {
      throw wrong(wanted.word(), "Call the method of its dtype, or toFloats(), instead of " + method + "().");
    }
  }

  private EdgeException wrong(String wanted, String fix) {
    return new EdgeException(
        "dtype_mismatch",
        "A tensor of " + dtype + " doesn't hold " + wanted + ".",
        "Nothing is converted unasked, since a cast can lose values.",
        fix);
  }

  private static int bytes(DType dtype, long[] shape) {
    long product = dtype.bytes();
    for (long size : shape) {
      if (size < 0 || size > Integer.MAX_VALUE) {
        throw bad("The shape " + Words.shape(shape) + " is not possible.", "A size is a whole number from 0.",
            "Correct the shape.");
      }
      product = Math.min(product * size, 1L << 31); // can't overflow: below 2^62
    }
    boolean empty = false;
    for (long size : shape) {
      empty |= size == 0;
    }
    if (!empty && product > Integer.MAX_VALUE) {
      throw bad(dtype + Words.shape(shape) + " is too large.", "A buffer of Java ends at 2 GiB.", "Run in parts.");
    }
    return empty ? 0 : (int) product;
  }

  private static long[] checked(int values, long[] shape) {
    if (bytes(DType.INT8, shape) != values) {
      throw bad(
          values + " values don't fill the shape " + Words.shape(shape) + ".",
          "The product of the sizes is the number of values.",
          "Correct the shape, or the number of values.");
    }
    return shape;
  }

  private static EdgeException bad(String message, String why, String fix) {
    return new EdgeException("bad_tensor", message, why, fix);
  }

  /** {@code float32[1, 3, 224, 224]}. */
  @Override
  public String toString() {
    return dtype + Words.shape(shape);
  }
}
