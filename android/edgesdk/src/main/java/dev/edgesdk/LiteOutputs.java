package dev.edgesdk;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.pytorch.IValue;
import org.pytorch.MemoryFormat;

/** Copies the Lite interpreter's outputs into tensors, and gives back at once the memory that they came in. */
final class LiteOutputs {
  private final List<TensorSpec> specs;
  private final String file;
  private final List<IValue> found = new ArrayList<>();
  private final Views views;

  LiteOutputs(List<TensorSpec> specs, String file) {
    this.specs = specs;
    this.file = file;
    this.views = new Views(specs.size());
  }

  /**
   * Whether the engine's Java library has such tensors.
   *
   * @throws EdgeException {@code dtype_unsupported}
   */
  static void check(List<TensorSpec> specs) {
    LiteInputs.check("outputs", specs);
  }

  void take(IValue result, @Nullable Tensor[] into) {
    try {
      flatten(result);
      if (found.size() != into.length) {
        throw EngineErrors.outputs(file + " gives " + found.size() + " outputs, not " + into.length);
      }
      for (int i = 0; i < into.length; i++) {
        IValue value = found.get(i);
        if (value.isTensor()) {
          take(i, value.toTensor(), into);
        } else {
          number(specs.get(i), value, into, i);
        }
      }
    } finally {
      for (int i = 0; i < found.size(); i++) {
        if (found.get(i).isTensor()) {
          LiteMemory.free(found.get(i).toTensor());
        }
      }
      found.clear();
    }
  }

  /** Tuples, lists and dictionaries in their order, as Python's runtime takes them. */
  private void flatten(IValue value) {
    IValue[] inner = {};
    if (value.isTuple()) {
      inner = value.toTuple();
    } else if (value.isList()) {
      inner = value.toList();
    } else if (value.isDictStringKey()) {
      inner = value.toDictStringKey().values().toArray(inner);
    } else if (value.isTensorList()) {
      for (org.pytorch.Tensor one : value.toTensorList()) {
        found.add(IValue.from(one));
      }
    } else {
      found.add(value);
    }
    for (IValue one : inner) {
      flatten(one);
    }
  }

  private void take(int i, org.pytorch.Tensor from, @Nullable Tensor[] into) {
    TensorSpec spec = specs.get(i);
    if (from.dtype() != type(spec.dtype())) {
      throw EngineErrors.outputs("Output '" + spec.name() + "' of " + file + " is " + from.dtype() + ", not " + spec);
    }
    long[] shape = from.shape();
    Tensor to = into[i];
    if (to == null) {
      to = Tensor.allocate(spec.dtype(), shape);
      into[i] = to;
    } else if (!Arrays.equals(shape, to.sizes())) {
      throw EngineErrors.size(spec, shape, to);
    }
    if (to.size() > 0) {
      Buffer view = views.of(i, to);
      if (from.memoryFormat() == MemoryFormat.CONTIGUOUS || LiteOrder.same(shape)) {
        copy(from, to.dtype(), view);
      } else {
        LiteOrder.channelsFirst(LiteMemory.buffer(from), to.dtype(), view, shape);
      }
    }
  }

  private static void copy(org.pytorch.Tensor from, DType dtype, Buffer to) {
    Buffer data = LiteMemory.buffer(from);
    switch (dtype) {
      case FLOAT32:
        ((FloatBuffer) to).put((FloatBuffer) data);
        break;
      case FLOAT64:
        ((DoubleBuffer) to).put((DoubleBuffer) data);
        break;
      case INT64:
        ((LongBuffer) to).put((LongBuffer) data);
        break;
      case INT32:
        ((IntBuffer) to).put((IntBuffer) data);
        break;
      default:
        ((ByteBuffer) to).put((ByteBuffer) data);
    }
  }

  private static void number(TensorSpec spec, IValue value, @Nullable Tensor[] into, int i) {
    if (!(value.isLong() || value.isDouble() || value.isBool())) {
      throw EngineErrors.outputs("Output '" + spec.name() + "' is neither a tensor nor a number");
    }
    Tensor to = into[i];
    if (to == null) {
      to = Tensor.allocate(spec.dtype());
      into[i] = to;
    }
    double real = value.isDouble() ? value.toDouble() : 0;
    long whole = value.isLong() ? value.toLong() : value.isBool() && value.toBool() ? 1 : 0;
    if (!PlainNumber.write(to, value.isDouble(), real, whole)) {
      throw EngineErrors.outputs("Output '" + spec.name() + "' is a plain number, not " + to);
    }
  }

  static org.pytorch.DType type(DType dtype) {
    switch (dtype) {
      case FLOAT32:
        return org.pytorch.DType.FLOAT32;
      case FLOAT64:
        return org.pytorch.DType.FLOAT64;
      case INT64:
        return org.pytorch.DType.INT64;
      case INT32:
        return org.pytorch.DType.INT32;
      case INT8:
        return org.pytorch.DType.INT8;
      default:
        return org.pytorch.DType.UINT8; // check() let no other pass
    }
  }

  void clear() {
    views.clear();
  }
}
