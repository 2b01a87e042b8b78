package dev.edgesdk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Checks inputs against the signature before an engine sees them: names, dtypes, shapes, symbols.
 *
 * <p>Engines answer a wrong input with a bare number, with a crash, or with a wrong answer.
 */
final class Feed {
  private final List<TensorSpec> wanted;
  private final String model;
  private final List<int[]> ties;

  Feed(List<TensorSpec> wanted, String model) {
    this.wanted = wanted;
    this.model = model;
    this.ties = ties(wanted);
  }

  /** Puts the tensors into the signature's order. */
  void bind(Map<String, Tensor> inputs, Tensor[] into) {
    for (int i = 0; i < into.length; i++) {
      TensorSpec spec = wanted.get(i);
      Tensor tensor = inputs.get(spec.name());
      if (tensor == null) {
        throw wrongNames(inputs);
      }
      check(spec, tensor, "Input", model);
      into[i] = tensor;
    }
    if (inputs.size() != into.length) {
      throw wrongNames(inputs);
    }
    for (int i = 0; i < ties.size(); i++) { // no iterator: this runs before every inference
      int[] tie = ties.get(i);
      if (into[tie[0]].sizes()[tie[1]] != into[tie[2]].sizes()[tie[3]]) {
        throw untied(tie, into);
      }
    }
  }

  static void check(TensorSpec spec, Tensor tensor, String kind, String model) {
    if (tensor.dtype() != spec.dtype()) {
      throw new EdgeException(
          "dtype_mismatch",
          kind + " '" + spec.name() + "' of " + model + " wants " + spec.dtype() + " but got " + tensor.dtype() + ".",
          "Nothing is converted unasked, since a cast can lose values.",
          "Make the tensor from " + javaType(spec.dtype()) + ".");
    }
    if (!spec.takes(tensor.sizes())) {
      throw Shapes.mismatch(spec, tensor.sizes(), kind, model);
    }
  }

  private static String javaType(DType dtype) {
    switch (dtype) {
      case FLOAT32:
        return "float[]";
      case FLOAT64:
        return "double[]";
      case INT64:
        return "long[]";
      case INT32:
        return "int[]";
      case INT16:
        return "short[]";
      case BOOL:
        return "boolean[]";
      case INT8:
        return "byte[] with Tensor.int8";
      case UINT8:
        return "byte[] with Tensor.uint8";
      default:
        return "its raw bytes with Tensor.wrap(DType." + dtype.name() + ", …)";
    }
  }

  /** For each further place of a symbol: input and axis of the first, input and axis of this one. */
  private static List<int[]> ties(List<TensorSpec> wanted) {
    Map<String, int[]> first = new HashMap<>();
    List<int[]> found = new ArrayList<>();
    for (int i = 0; i < wanted.size(); i++) {
      List<Dim> shape = wanted.get(i).shape();
      for (int axis = 0; shape != null && axis < shape.size(); axis++) {
        String symbol = shape.get(axis).symbol();
        int[] before = symbol == null ? null : first.get(symbol);
        if (before != null) {
          found.add(new int[] {before[0], before[1], i, axis});
        } else if (symbol != null) {
          first.put(symbol, new int[] {i, axis});
        }
      }
    }
    return found;
  }

  private EdgeException untied(int[] tie, Tensor[] feed) {
    TensorSpec one = wanted.get(tie[0]);
    TensorSpec other = wanted.get(tie[2]);
    List<Dim> shape = one.shape();
    return new EdgeException(
        "shape_mismatch",
        "Dimension " + tie[1] + " of '" + one.name() + "' is " + feed[tie[0]].sizes()[tie[1]] + ", dimension " + tie[3]
            + " of '" + other.name() + "' is " + feed[tie[2]].sizes()[tie[3]] + "; " + model + " needs them equal.",
        "The model was exported with one size '" + (shape == null ? "" : shape.get(tie[1]).symbol()) + "' for both.",
        "Give both the same size.");
  }

  private EdgeException wrongNames(Map<String, Tensor> inputs) {
    List<String> known = new ArrayList<>();
    List<String> facts = new ArrayList<>();
    for (TensorSpec spec : wanted) {
      known.add(spec.name());
      if (inputs.get(spec.name()) == null) {
        facts.add("'" + spec.name() + "' is missing");
      }
    }
    String strange = null;
    for (@Nullable String name : inputs.keySet()) {
      if (!known.contains(name)) {
        strange = strange == null ? String.valueOf(name) : strange;
        facts.add("'" + name + "' is unknown");
      }
    }
    return new EdgeException(
        strange == null ? "input_missing" : "unknown_input",
        "The inputs of " + model + " don't fit: " + Words.join(facts) + ".",
        strange == null ? "The inputs are: " + Words.join(known) + "." : Words.nearest(strange, known),
        "Give a tensor for each of them, and nothing else.");
  }
}
