package dev.edgesdk;

import ai.onnxruntime.OnnxJavaType;
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The inputs, or the outputs, of an {@link OrtRunner}. A tensor that comes again keeps its native handle, so that calls
 * with the same tensors allocate nothing here.
 */
final class OrtSlots {
  private final OrtEnvironment environment;
  private final @Nullable String[] names;
  private final @Nullable Tensor[] tensors;
  private final Map<String, OnnxTensor> bound = new LinkedHashMap<>();
  private final Set<String> open = new LinkedHashSet<>();

  OrtSlots(OrtEnvironment environment, @Nullable String[] names) {
    this.environment = environment;
    this.names = names;
    this.tensors = new Tensor[names.length];
  }

  /** The graph's name of a slot; null when the graph has none. */
  @Nullable String name(int i) {
    return names[i];
  }

  void bind(@Nullable Tensor[] given) throws OrtException {
    for (int i = 0; i < names.length; i++) {
      String name = names[i];
      Tensor tensor = given[i];
      if (name == null || (tensor != null && tensor == tensors[i])) {
        continue;
      }
      OnnxTensor before = bound.remove(name);
      tensors[i] = null;
      if (before != null) {
        before.close();
      }
      if (tensor == null) {
        open.add(name);
      } else {
        open.remove(name);
        bound.put(name, OnnxTensor.createTensor(environment, tensor.data(), tensor.sizes(), type(tensor.dtype())));
        tensors[i] = tensor;
      }
    }
  }

  /** Native handles over the tensors' memory. */
  Map<String, OnnxTensor> bound() {
    return bound;
  }

  /** Names without a tensor: outputs that the engine makes. */
  Set<String> open() {
    return open;
  }

  void close() {
    for (OnnxTensor tensor : bound.values()) {
      tensor.close();
    }
    bound.clear();
  }

  static OnnxJavaType type(DType dtype) {
    switch (dtype) {
      case FLOAT32:
        return OnnxJavaType.FLOAT;
      case FLOAT64:
        return OnnxJavaType.DOUBLE;
      case FLOAT16:
        return OnnxJavaType.FLOAT16;
      case BFLOAT16:
        return OnnxJavaType.BFLOAT16;
      case INT64:
        return OnnxJavaType.INT64;
      case INT32:
        return OnnxJavaType.INT32;
      case INT16:
        return OnnxJavaType.INT16;
      case INT8:
        return OnnxJavaType.INT8;
      case UINT8:
        return OnnxJavaType.UINT8;
      case BOOL:
        return OnnxJavaType.BOOL;
      default:
        throw new EdgeException(
            "dtype_unsupported",
            "ONNX Runtime's Java library has no " + dtype + ".",
            "It lacks uint16 and complex numbers.",
            "Give the model inputs and outputs of another dtype.");
    }
  }
}
