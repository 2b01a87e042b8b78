package dev.edgesdk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Name, dtype and shape of one input or output. */
public final class TensorSpec {
  static final int MAX_RANK = 16;

  private final String name;
  private final DType dtype;
  private final @Nullable List<Dim> shape;
  private final Map<String, String> symbols;

  private TensorSpec(String name, DType dtype, @Nullable List<Dim> shape, Map<String, String> symbols) {
    this.name = name;
    this.dtype = dtype;
    this.shape = shape;
    this.symbols = symbols;
  }

  static TensorSpec read(Fields fields) {
    String name = fields.text("name", TextRule.TENSOR);
    DType dtype = DType.read(fields, "dtype");
    Map<String, String> symbols = fields.textTable("symbols", TextRule.AXIS, TextRule.TENSOR);
    if (fields.any("shape") == null) {
      return new TensorSpec(name, dtype, null, symbols);
    }
    List<Dim> dims = new ArrayList<>();
    for (Object size : fields.list("shape", 0, MAX_RANK)) {
      String symbol = symbols.get(Integer.toString(dims.size()));
      dims.add(Dim.read(size, symbol, fields.path("shape") + "." + dims.size()));
    }
    return new TensorSpec(name, dtype, Collections.unmodifiableList(dims), symbols);
  }

  /** The name, by which inputs are given and outputs are found. */
  public String name() {
    return name;
  }

  /** The type of the elements. */
  public DType dtype() {
    return dtype;
  }

  /** The dimensions; null when nothing is known about them. */
  public @Nullable List<Dim> shape() {
    return shape;
  }

  /** Symbols as the manifest gives them, by the dimension's number. */
  Map<String, String> symbols() {
    return symbols;
  }

  boolean takes(long[] sizes) {
    if (shape == null) {
      return true;
    }
    if (shape.size() != sizes.length) {
      return false;
    }
    for (int i = 0; i < sizes.length; i++) {
      if (!shape.get(i).takes(sizes[i])) {
        return false;
      }
    }
    return true;
  }

  /** {@code x=float32[1..8,3]}. */
  @Override
  public String toString() {
    return name + "=" + dtype + "[" + (shape == null ? "?" : Words.join(shape).replace(", ", ",")) + "]";
  }
}
