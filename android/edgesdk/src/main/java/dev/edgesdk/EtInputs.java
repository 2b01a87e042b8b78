package dev.edgesdk;

import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.pytorch.executorch.EValue;

/** Input tensors as ExecuTorch's Java library takes them. */
final class EtInputs extends EngineInputs<EValue> {
  private static final Set<DType> TAKEN = EnumSet.of(
      DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.INT64, DType.INT32, DType.INT8, DType.UINT8);

  EtInputs(int count) {
    super(new EValue[count]);
  }

  /**
   * Whether the engine's Java library can make such inputs.
   *
   * @throws EdgeException {@code dtype_unsupported}
   */
  static void check(List<TensorSpec> specs) {
    for (TensorSpec spec : specs) {
      if (!TAKEN.contains(spec.dtype())) {
        throw EtErrors.dtype("inputs", spec);
      }
    }
  }

  @Override
  EValue view(Tensor tensor) {
    return EValue.from(blob(tensor.dtype(), tensor.data(), tensor.sizes()));
  }

  private static org.pytorch.executorch.Tensor blob(DType dtype, ByteBuffer data, long[] shape) {
    switch (dtype) {
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
}
