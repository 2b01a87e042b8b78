package dev.edgesdk;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.pytorch.IValue;

/** The Lite interpreter's views of input tensors. A tensor that comes again keeps its view, so nothing is made for it. */
final class LiteInputs {
  private final @Nullable Tensor[] tensors;
  private final IValue[] values;

  LiteInputs(int count) {
    tensors = new Tensor[count];
    values = new IValue[count];
  }

  /**
   * Whether the engine's Java library has such tensors.
   *
   * @throws EdgeException {@code dtype_unsupported}
   */
  static void check(List<TensorSpec> specs) {
    check("inputs", specs);
  }

  static void check(String what, List<TensorSpec> specs) {
    for (TensorSpec spec : specs) {
      switch (spec.dtype()) {
        case FLOAT32:
        case FLOAT64:
        case INT64:
        case INT32:
        case INT8:
        case UINT8:
          break;
        default:
          throw LiteErrors.dtype(what, spec);
      }
    }
  }

  IValue[] bind(Tensor[] given) {
    for (int i = 0; i < values.length; i++) {
      if (given[i] != tensors[i]) {
        values[i] = IValue.from(view(given[i]));
        tensors[i] = given[i];
      }
    }
    return values;
  }

  private static org.pytorch.Tensor view(Tensor tensor) {
    ByteBuffer data = tensor.data();
    long[] shape = tensor.sizes();
    switch (tensor.dtype()) {
      case FLOAT32:
        return org.pytorch.Tensor.fromBlob(data.asFloatBuffer(), shape);
      case FLOAT64:
        return org.pytorch.Tensor.fromBlob(data.asDoubleBuffer(), shape);
      case INT64:
        return org.pytorch.Tensor.fromBlob(data.asLongBuffer(), shape);
      case INT32:
        return org.pytorch.Tensor.fromBlob(data.asIntBuffer(), shape);
      case INT8:
        return org.pytorch.Tensor.fromBlob(data, shape);
      default:
        return org.pytorch.Tensor.fromBlobUnsigned(data, shape); // check() let no other pass
    }
  }

  void clear() {
    Arrays.fill(tensors, null);
    Arrays.fill(values, null);
  }
}
