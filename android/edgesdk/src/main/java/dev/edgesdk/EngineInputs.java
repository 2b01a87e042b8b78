package dev.edgesdk;

import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * An engine's views of input tensors. A tensor that comes again keeps its view, so nothing is made for it.
 *
 * @param <V> the engine's own class for a value
 */
abstract class EngineInputs<V> {
  private final @Nullable Tensor[] tensors;
  private final V[] values;

  /** @param places an empty array, one place for each input */
  EngineInputs(V[] places) {
    tensors = new Tensor[places.length];
    values = places;
  }

  /** A view of the tensor's own memory. */
  abstract V view(Tensor tensor);

  final V[] bind(Tensor[] given) {
    for (int i = 0; i < values.length; i++) {
      if (given[i] != tensors[i]) {
        values[i] = view(given[i]);
        tensors[i] = given[i];
      }
    }
    return values;
  }

  final void clear() {
    Arrays.fill(tensors, null);
    Arrays.fill(values, null);
  }
}
