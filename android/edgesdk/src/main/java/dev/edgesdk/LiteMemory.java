package dev.edgesdk;

import com.facebook.jni.HybridData;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import org.jspecify.annotations.Nullable;

/**
 * What PyTorch Mobile's tensors keep to themselves: their buffer, which spares a copy, and their owner, which else frees
 * native memory only when the collector comes by. Our shrinker rules keep both names; without them it works all the same,
 * by an array, and by the collector.
 */
final class LiteMemory {
  private static final @Nullable Method BUFFER = method("getRawDataBuffer");
  private static final @Nullable Field OWNER = field("mHybridData");

  private LiteMemory() {}

  private static @Nullable Method method(String name) {
    try {
      Method found = org.pytorch.Tensor.class.getDeclaredMethod(name);
      found.setAccessible(true);
      return found;
    } catch (ReflectiveOperationException | RuntimeException other) {
      return null;
    }
  }

  private static @Nullable Field field(String name) {
    try {
      Field found = org.pytorch.Tensor.class.getDeclaredField(name);
      found.setAccessible(true);
      return found.getType() == HybridData.class ? found : null;
    } catch (ReflectiveOperationException | RuntimeException other) {
      return null;
    }
  }

  /** The values, in the order in which they lie in memory; to be read once. */
  static Buffer buffer(org.pytorch.Tensor tensor) {
    if (BUFFER != null) {
      try {
        Buffer found = (Buffer) BUFFER.invoke(tensor);
        found.clear();
        return fits(found, tensor) ? found : array(tensor);
      } catch (ReflectiveOperationException other) {
        return array(tensor);
      }
    }
    return array(tensor);
  }

  private static boolean fits(Buffer found, org.pytorch.Tensor tensor) {
    switch (tensor.dtype()) {
      case FLOAT32:
        return found instanceof FloatBuffer;
      case FLOAT64:
        return found instanceof DoubleBuffer;
      case INT64:
        return found instanceof LongBuffer;
      case INT32:
        return found instanceof IntBuffer;
      default:
        return found instanceof ByteBuffer;
    }
  }

  static Buffer array(org.pytorch.Tensor tensor) {
    switch (tensor.dtype()) {
      case FLOAT32:
        return FloatBuffer.wrap(tensor.getDataAsFloatArray());
      case FLOAT64:
        return DoubleBuffer.wrap(tensor.getDataAsDoubleArray());
      case INT64:
        return LongBuffer.wrap(tensor.getDataAsLongArray());
      case INT32:
        return IntBuffer.wrap(tensor.getDataAsIntArray());
      case INT8:
        return ByteBuffer.wrap(tensor.getDataAsByteArray());
      default:
        return ByteBuffer.wrap(tensor.getDataAsUnsignedByteArray());
    }
  }

  /** Frees an output's native memory now; the tensor may not be read afterwards. */
  static void free(org.pytorch.Tensor tensor) {
    if (OWNER == null) {
      return;
    }
    try {
      HybridData owner = (HybridData) OWNER.get(tensor);
      if (owner != null) {
        owner.resetNative();
      }
    } catch (IllegalAccessException other) {
      throw new IllegalStateException("the field was made accessible", other);
    }
  }
}
