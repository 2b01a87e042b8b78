package dev.edgesdk;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.pytorch.executorch.EValue;

/** Copies ExecuTorch's outputs into tensors. */
final class EtOutputs {
  /** Older releases lack {@code copyDataInto}; they give a new array each time. */
  private static volatile boolean copies = true;

  private final List<TensorSpec> specs;
  private final String file;
  private final Views views;
  private final boolean[] fixed;

  EtOutputs(List<TensorSpec> specs, String file) {
    this.specs = specs;
    this.file = file;
    this.views = new Views(specs.size());
    this.fixed = new boolean[specs.size()];
    for (int i = 0; i < fixed.length; i++) {
      List<Dim> shape = specs.get(i).shape();
      fixed[i] = shape != null;
      for (int axis = 0; fixed[i] && axis < shape.size(); axis++) {
        fixed[i] = !shape.get(axis).dynamic();
      }
    }
  }

  /**
   * Whether the engine's Java library can give such outputs.
   *
   * @throws EdgeException {@code dtype_unsupported}
   */
  static void check(List<TensorSpec> specs) {
    for (TensorSpec spec : specs) {
      switch (spec.dtype()) {
        case UINT16:
          throw EtErrors.dtype("outputs", spec);
        case BOOL:
        case INT16:
        case BFLOAT16:
        case COMPLEX64:
          if (!Unread.POSSIBLE) {
            throw EtErrors.dtype("outputs", spec);
          }
          break;
        default:
          break;
      }
    }
  }

  /** Tensors of dtypes without a reader. In some releases making one throws, from its own log line. */
  private static final class Unread {
    static final boolean POSSIBLE = possible();

    private static boolean possible() {
      try {
        Constructor<?> maker = Class.forName(org.pytorch.executorch.Tensor.class.getName() + "$Tensor_unsupported")
            .getDeclaredConstructor(ByteBuffer.class, long[].class, org.pytorch.executorch.DType.class);
        maker.setAccessible(true);
        maker.newInstance(ByteBuffer.allocateDirect(1), new long[] {1}, org.pytorch.executorch.DType.BOOL);
        return true;
      } catch (ReflectiveOperationException | LinkageError other) {
        return false;
      }
    }
  }

  void take(EValue[] values, @Nullable Tensor[] into) {
    if (values.length != into.length) {
      throw EngineErrors.outputs(file + " gives " + values.length + " outputs, not " + into.length);
    }
    for (int i = 0; i < values.length; i++) {
      if (values[i].isTensor()) {
        take(i, values[i].toTensor(), into);
      } else {
        number(specs.get(i), values[i], into, i);
      }
    }
  }

  private void take(int i, org.pytorch.executorch.Tensor from, @Nullable Tensor[] into) {
    TensorSpec spec = specs.get(i);
    if (from.dtype() != type(spec.dtype())) {
      throw EngineErrors.outputs("Output '" + spec.name() + "' of " + file + " is " + from.dtype() + ", not " + spec);
    }
    Tensor to = into[i];
    if (to == null) {
      to = Tensor.allocate(spec.dtype(), from.shape());
      into[i] = to;
    } else if (fixed[i] ? from.numel() != to.size() : !Arrays.equals(from.shape(), to.sizes())) { // shape() is a copy
      throw EngineErrors.size(spec, from.shape(), to);
    }
    if (to.size() > 0) {
      copy(from, to.dtype(), views.of(i, to));
    }
  }

  private static void copy(org.pytorch.executorch.Tensor from, DType dtype, Buffer to) {
    if (copies) {
      try {
        copyStraight(from, dtype, to);
        return;
      } catch (NoSuchMethodError older) {
        copies = false;
        to.clear();
      }
    }
    copyByArray(from, dtype, to);
  }

  private static void copyStraight(org.pytorch.executorch.Tensor from, DType dtype, Buffer to) {
    switch (dtype) {
      case FLOAT32:
        from.copyDataInto((FloatBuffer) to);
        break;
      case FLOAT64:
        from.copyDataInto((DoubleBuffer) to);
        break;
      case FLOAT16:
        from.copyDataInto((ShortBuffer) to);
        break;
      case INT64:
        from.copyDataInto((LongBuffer) to);
        break;
      case INT32:
        from.copyDataInto((IntBuffer) to);
        break;
      case INT8:
        from.copyDataInto((ByteBuffer) to);
        break;
      case UINT8:
        from.copyDataIntoUnsigned((ByteBuffer) to);
        break;
      default:
        ((ByteBuffer) to).put(raw(from));
    }
  }

  static void copyByArray(org.pytorch.executorch.Tensor from, DType dtype, Buffer to) {
    switch (dtype) {
      case FLOAT32:
        ((FloatBuffer) to).put(from.getDataAsFloatArray());
        break;
      case FLOAT64:
        ((DoubleBuffer) to).put(from.getDataAsDoubleArray());
        break;
      case FLOAT16:
        ((ShortBuffer) to).put(from.getDataAsShortArray());
        break;
      case INT64:
        ((LongBuffer) to).put(from.getDataAsLongArray());
        break;
      case INT32:
        ((IntBuffer) to).put(from.getDataAsIntArray());
        break;
      case INT8:
        ((ByteBuffer) to).put(from.getDataAsByteArray());
        break;
      case UINT8:
        ((ByteBuffer) to).put(from.getDataAsUnsignedByteArray());
        break;
      default:
        ((ByteBuffer) to).put(raw(from));
    }
  }

  /**
   * The memory of a tensor whose dtype has no reader (bool, int16, bfloat16, complex): the library holds it in a
   * private field. Our shrinker rules keep that field's name.
   */
  static ByteBuffer raw(org.pytorch.executorch.Tensor from) {
    try {
      Field field = from.getClass().getDeclaredField("data");
      field.setAccessible(true);
      ByteBuffer data = ((ByteBuffer) field.get(from)).duplicate();
      data.clear();
      return data.order(ByteOrder.nativeOrder());
    } catch (ReflectiveOperationException | ClassCastException cause) {
      throw EtErrors.unreadable(from.dtype().toString(), cause);
    }
  }

  /** A plain number: the export kept an integer, a float or a bool as such. */
  private static void number(TensorSpec spec, EValue value, @Nullable Tensor[] into, int i) {
    Tensor to = into[i];
    if (to == null) {
      to = Tensor.allocate(spec.dtype());
      into[i] = to;
    }
    if (to.size() != 1 || !(value.isInt() || value.isDouble() || value.isBool())) {
      throw EngineErrors.outputs("Output '" + spec.name() + "' is a plain value, not " + to);
    }
    double real = value.isDouble() ? value.toDouble() : 0;
    long whole = value.isInt() ? value.toInt() : value.isBool() && value.toBool() ? 1 : 0;
    if (!PlainNumber.write(to, value.isDouble(), real, whole)) {
      throw EngineErrors.outputs("Output '" + spec.name() + "' is a plain number, not " + spec);
    }
  }

  static org.pytorch.executorch.DType type(DType dtype) {
    switch (dtype) {
      case FLOAT32:
        return org.pytorch.executorch.DType.FLOAT;
      case FLOAT64:
        return org.pytorch.executorch.DType.DOUBLE;
      case FLOAT16:
        return org.pytorch.executorch.DType.HALF;
      case BFLOAT16:
        return org.pytorch.executorch.DType.BFLOAT16;
      case INT64:
        return org.pytorch.executorch.DType.INT64;
      case INT32:
        return org.pytorch.executorch.DType.INT32;
      case INT16:
        return org.pytorch.executorch.DType.INT16;
      case INT8:
        return org.pytorch.executorch.DType.INT8;
      case UINT8:
        return org.pytorch.executorch.DType.UINT8;
      case BOOL:
        return org.pytorch.executorch.DType.BOOL;
      default:
        return org.pytorch.executorch.DType.COMPLEX_FLOAT;
    }
  }

  void clear() {
    views.clear();
  }
}
