package dev.edgesdk;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.pytorch.executorch.EValue;

/** ExecuTorch's views of input tensors. A tensor that comes again keeps its view, so nothing is made for it. */
final class EtInputs {
  private final @Nullable Tensor[] tensors;
  private final EValue[] values;

  EtInputs(int count) {
    tensors = new Tensor[count];
    values = new EValue[count];
  }

  /**
   * Whether the engine's Java library can make such inputs.
   *
   * @throws EdgeException {@code dtype_unsupported}
   */
  static void check(List<TensorSpec> specs) {
    for (TensorSpec spec : specs) {
      switch (spec.dtype()) {
        case FLOAT32:
        case FLOAT64:
        case FLOAT16:
        case INT64:
        case INT32:
        case INT8:
        case UINT8:
          break;
        default:
          throw EtErrors.dtype("inputs", spec);
      }
    }
  }

  EValue[] bind(Tensor[] given) {
    for (int i = 0; i < values.length; i++) {
      if (given[i] != tensors[i]) {
        values[i] = EValue.from(view(given[i]));
        tensors[i] = given[i];
      }
    }
    return values;
  }

  private static org.pytorch.executorch.Tensor view(Tensor tensor) {
    ByteBuffer data = tensor.data();
    long[] shape = tensor.sizes();
    switch (tensor.dtype()) {
      case FLOAT32:
        return org.pytorch.executorch.Tensor.fromBlob(data.asFloatBuffer(), shape);
      case FLOAT64:
        return org.pytorch.executorch.Tensor.fromBlob(data.asDoubleBuffer(), shape);
      case FLOAT16:
        return org.pytorch.executorch.Tensor.fromBlob(data.asShortBuffer(), shape);
      case INT64:
        return org.pytorch.executorch.Tensor.fromBlob(data.asLongBuffer(), shape);
      case INT32:
        return org.pytorch.executorch.Tensor.fromBlob(data.asIntBuffer(), shape);
      case INT8:
        return org.pytorch.executorch.Tensor.fromBlob(data, shape);
      default:
        return org.pytorch.executorch.Tensor.fromBlobUnsigned(data, shape); // check() let no other pass
    }
  }

  void clear() {
    Arrays.fill(tensors, null);
    Arrays.fill(values, null);
  }
}
