package dev.edgesdk;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** Output tensors as buffers of their own type. A tensor that comes again keeps its view. */
final class Views {
  private final @Nullable Tensor[] tensors;
  private final @Nullable Buffer[] views;

  Views(int count) {
    tensors = new Tensor[count];
    views = new Buffer[count];
  }

  /** The view of output {@code i}, to be written from its start. */
  Buffer of(int i, Tensor tensor) {
    Buffer view = views[i];
    if (view == null || tensors[i] != tensor) {
      view = of(tensor);
      views[i] = view;
      tensors[i] = tensor;
    }
    view.clear();
    return view;
  }

  private static Buffer of(Tensor tensor) {
    ByteBuffer data = tensor.data();
    switch (tensor.dtype()) {
      case FLOAT32:
        return data.asFloatBuffer();
      case FLOAT64:
        return data.asDoubleBuffer();
      case FLOAT16:
        return data.asShortBuffer();
      case INT64:
        return data.asLongBuffer();
      case INT32:
        return data.asIntBuffer();
      default:
        return data;
    }
  }

  void clear() {
    Arrays.fill(tensors, null);
    Arrays.fill(views, null);
  }
}
