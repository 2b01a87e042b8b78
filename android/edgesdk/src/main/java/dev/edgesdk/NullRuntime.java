package dev.edgesdk;

import java.nio.ByteBuffer;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Computes nothing and answers with zeros of the right shapes: the double for tests of what surrounds an engine. */
final class NullRuntime extends EdgeRuntime {
  private static final String SCHEMA = "edgesdk.null/1";

  @Override
  public String name() {
    return "null";
  }

  @Override
  public String suffix() {
    return ".null";
  }

  @Override
  public @Nullable String missing() {
    return null;
  }

  @Override
  public String version() {
    return "1";
  }

  @Override
  String dependency() {
    return "";
  }

  @Override
  Runner load(final ModelFile model, int threads) {
    ByteBuffer buffer = model.buffer();
    byte[] bytes = new byte[buffer.remaining()];
    buffer.get(bytes);
    boolean ours;
    try {
      ours = SCHEMA.equals(Fields.of(StrictJson.decode(bytes), "").any("schema"));
    } catch (BadField bad) {
      ours = false;
    }
    if (!ours) {
      throw new EdgeException(
          "not_a_null_file",
          model.variant.file() + " is no file of the null runtime.",
          "It is damaged, or was made for another runtime.",
          "Lower the model again with --runtime null.");
    }
    return new Zeros(model.manifest);
  }

  private static final class Zeros extends Runner {
    private final Manifest manifest;

    Zeros(Manifest manifest) {
      this.manifest = manifest;
    }

    @Override
    void run(Tensor[] inputs, @Nullable Tensor[] outputs) {
      Map<String, Long> symbols = Shapes.symbols(manifest.inputs(), inputs);
      for (int i = 0; i < outputs.length; i++) {
        TensorSpec spec = manifest.outputs().get(i);
        long[] shape = Shapes.expected(spec, symbols);
        outputs[i] = Tensor.allocate(spec.dtype(), shape == null ? least(spec) : shape);
      }
    }

    private static long[] least(TensorSpec spec) {
      long[] sizes = new long[spec.shape() == null ? 0 : spec.shape().size()];
      for (int i = 0; i < sizes.length; i++) {
        sizes[i] = spec.shape().get(i).min();
      }
      return sizes;
    }

    @Override
    void close() {}
  }
}
