package dev.edgesdk.bench;

import dev.edgesdk.Dim;
import dev.edgesdk.Tensor;
import dev.edgesdk.TensorSpec;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Seeded inputs: eight that take turns, never zeros. Sizes that may vary have their least. */
final class Inputs {
  static final int TURNS = 8;

  private Inputs() {}

  static List<Map<String, Tensor>> make(List<TensorSpec> specs, long seed) {
    Random random = new Random(seed);
    List<Map<String, Tensor>> all = new ArrayList<>();
    for (int i = 0; i < TURNS; i++) {
      Map<String, Tensor> one = new LinkedHashMap<>();
      for (TensorSpec spec : specs) {
        one.put(spec.name(), fill(Tensor.allocate(spec.dtype(), shape(spec)), random));
      }
      all.add(one);
    }
    return all;
  }

  static long[] shape(TensorSpec spec) {
    List<Dim> dims = spec.shape();
    long[] shape = new long[dims == null ? 0 : dims.size()];
    for (int i = 0; i < shape.length; i++) {
      shape[i] = dims.get(i).min();
    }
    return shape;
  }

  /** Floats from -1 to 1, as after normalisation; whole numbers 0 and 1, which every table has; bytes all values. */
  private static Tensor fill(Tensor tensor, Random random) {
    ByteBuffer data = tensor.data();
    for (int i = 0; i < tensor.size(); i++) {
      float value = 2 * random.nextFloat() - 1;
      switch (tensor.dtype()) {
        case FLOAT32:
          data.putFloat(value);
          break;
        case FLOAT64:
          data.putDouble(value);
          break;
        case FLOAT16:
          // Half precision: sign, exponent 2^-1 to 2^-8, ten random bits.
          data.putShort((short) (random.nextInt(2) << 15 | 7 + random.nextInt(8) << 10 | random.nextInt(1024)));
          break;
        case BFLOAT16:
          data.putShort((short) (Float.floatToIntBits(value) >>> 16));
          break;
        case COMPLEX64:
          data.putFloat(value).putFloat(2 * random.nextFloat() - 1);
          break;
        case INT64:
          data.putLong(random.nextInt(2));
          break;
        case INT32:
          data.putInt(random.nextInt(2));
          break;
        case INT16:
        case UINT16:
          data.putShort((short) random.nextInt(2));
          break;
        case BOOL:
          data.put((byte) random.nextInt(2));
          break;
        default:
          data.put((byte) random.nextInt());
          break;
      }
    }
    return tensor;
  }
}
