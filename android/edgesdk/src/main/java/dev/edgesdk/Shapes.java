package dev.edgesdk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Shapes that don't fit, in words; and shapes that follow from others. */
final class Shapes {
  private Shapes() {}

  static EdgeException mismatch(TensorSpec spec, long[] got, String kind, String model) {
    List<Dim> shape = spec.shape() == null ? new ArrayList<Dim>() : spec.shape();
    return new EdgeException(
        "shape_mismatch",
        kind + " '" + spec.name() + "' of " + model + " wants the shape " + shape + " but got " + Words.shape(got)
            + ".",
        reason(spec, shape, got),
        fix(spec, shape, got));
  }

  private static String reason(TensorSpec spec, List<Dim> shape, long[] got) {
    if (shape.size() != got.length) {
      return "The model takes " + shape.size() + " dimensions, the tensor has " + got.length + ".";
    }
    if (got.length == 4 && spec.takes(new long[] {got[0], got[3], got[1], got[2]})) {
      return "The tensor looks like batch, height, width, channels; the model takes channels second.";
    }
    if (got.length == 4 && spec.takes(new long[] {got[0], got[2], got[3], got[1]})) {
      return "The tensor looks like batch, channels, height, width; the model takes channels last.";
    }
    for (int axis = 0; axis < got.length; axis++) {
      Dim dim = shape.get(axis);
      if (!dim.takes(got[axis])) {
        return "Dimension " + axis + (dim.dynamic() ? " lies in " : " is always ") + dim
            + ", as the model was packaged.";
      }
    }
    return "";
  }

  private static String fix(TensorSpec spec, List<Dim> shape, long[] got) {
    if (shape.size() != got.length) {
      return "Give a tensor of " + shape.size() + " dimensions; a single sample has a first dimension of 1.";
    }
    List<String> wider = new ArrayList<>();
    for (int axis = 0; axis < got.length; axis++) {
      Dim dim = shape.get(axis);
      wider.add(dim.takes(got[axis]) || got[axis] == 0
          ? dim.toString()
          : Math.min(dim.min(), got[axis]) + ".." + Math.max(dim.max(), got[axis]));
    }
    return "Give the shape " + shape + ", or package the model with dynamic dimensions: edgesdk package MODEL --input '"
        + spec.name() + "=" + spec.dtype() + "[" + Words.join(wider).replace(", ", ",") + "]'";
  }

  /** Sizes of the symbols in a checked feed. */
  static Map<String, Long> symbols(List<TensorSpec> specs, Tensor[] feed) {
    Map<String, Long> found = new HashMap<>();
    for (int i = 0; i < feed.length; i++) {
      List<Dim> shape = specs.get(i).shape();
      for (int axis = 0; shape != null && axis < shape.size(); axis++) {
        String symbol = shape.get(axis).symbol();
        if (symbol != null) {
          found.put(symbol, feed[i].sizes()[axis]);
        }
      }
    }
    return found;
  }

  /** The shape that an output will have; null when it doesn't follow from the inputs. */
  static long @Nullable [] expected(TensorSpec spec, Map<String, Long> symbols) {
    List<Dim> shape = spec.shape();
    if (shape == null) {
      return null;
    }
    long[] sizes = new long[shape.size()];
    for (int axis = 0; axis < sizes.length; axis++) {
      Dim dim = shape.get(axis);
      Long size = dim.dynamic() ? symbols.get(String.valueOf(dim.symbol())) : (Long) dim.min();
      if (size == null || size == 0) {
        return null;
      }
      sizes[axis] = size;
    }
    return sizes;
  }
}
