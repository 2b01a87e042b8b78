package dev.edgesdk;

import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.pytorch.IValue;

/** Input tensors as PyTorch Mobile's Java library takes them. */
final class LiteInputs extends EngineInputs<IValue> {
  private static final Set<DType> TAKEN =
      EnumSet.of(DType.FLOAT32, DType.FLOAT64, DType.INT64, DType.INT32, DType.INT8, DType.UINT8);

  LiteInputs(int count) {
    super(new IValue[count]);
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
      if (!TAKEN.contains(spec.dtype())) {
        throw LiteErrors.dtype(what, spec);
      }
    }
  }

  @Override
  IValue view(Tensor tensor) {
    return IValue.from(blob(tensor.dtype(), tensor.data(), tensor.sizes()));
  }

  private static org.pytorch.Tensor blob(DType dtype, ByteBuffer data, long[] shape) {
    switch (dtype) {
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
}
