package dev.edgesdk;

import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** What the kinds of {@link Postprocess} share. */
final class Answers {
  private Answers() {}

  static Tensor get(Map<String, Tensor> outputs, @Nullable String name) {
    Tensor found = name != null ? outputs.get(name) : outputs.isEmpty() ? null : outputs.values().iterator().next();
    if (found == null) {
      throw new EdgeException(
          "output_unknown",
          "The model has no output '" + name + "'.",
          Words.nearest(String.valueOf(name), outputs.keySet()),
          "Name one of the model's outputs in the postprocessing.");
    }
    return found;
  }

  static double[] finite(Tensor tensor, @Nullable String name, Map<String, Tensor> outputs) {
    double[] values = tensor.toDoubles();
    for (double value : values) {
      if (Double.isNaN(value) || Double.isInfinite(value)) {
        throw new EdgeException(
            "output_not_finite",
            "The output '" + (name == null ? outputs.keySet().iterator().next() : name) + "' holds NaN or infinity.",
            "The input was out of the trained range, or numbers overflowed in half precision.",
            "Look at the raw outputs with Session.run(); package with float32 if this variant is fp16.");
      }
    }
    return values;
  }

  static void checkTop(int top) {
    if (top < 1) {
      throw new EdgeException("bad_top", "top=" + top + " is not possible.", "It counts classes.", "Give 1 or more.");
    }
  }

  static EdgeException shape(Tensor tensor, String wanted) {
    return new EdgeException(
        "output_shape",
        "An output of shape " + Words.shape(tensor.sizes()) + " can't be read as " + wanted + ".",
        "The postprocessing is made for another kind of model, or several samples were run at once.",
        "Run one sample at a time, or use the raw outputs of Session.run().");
  }

  /** Softmax over each {@code length} values, sigmoid, or nothing. */
  static double[] activate(double[] values, int length, String activation) {
    double[] found = values.clone();
    if (activation.equals("softmax")) {
      for (int start = 0; start < found.length; start += length) {
        softmax(found, start, start + length);
      }
    } else if (activation.equals("sigmoid")) {
      for (int i = 0; i < found.length; i++) {
        double small = Math.exp(-Math.abs(values[i]));
        found[i] = values[i] >= 0 ? 1 / (1 + small) : small / (1 + small);
      }
    }
    return found;
  }

  private static void softmax(double[] values, int from, int to) {
    double most = Double.NEGATIVE_INFINITY;
    for (int i = from; i < to; i++) {
      most = Math.max(most, values[i]);
    }
    double sum = 0;
    for (int i = from; i < to; i++) {
      values[i] = Math.exp(values[i] - most);
      sum += values[i];
    }
    for (int i = from; i < to; i++) {
      values[i] /= sum;
    }
  }

  /** Indices by score, larger first, on equal scores the smaller index; at most {@code top}. */
  static int[] order(final double[] scores, int top) {
    Integer[] indices = new Integer[scores.length];
    for (int i = 0; i < indices.length; i++) {
      indices[i] = i;
    }
    Arrays.sort(indices, new Comparator<Integer>() { // stable
      @Override
      public int compare(Integer a, Integer b) {
        return scores[a] > scores[b] ? -1 : scores[a] < scores[b] ? 1 : 0;
      }
    });
    int[] found = new int[Math.min(top, indices.length)];
    for (int i = 0; i < found.length; i++) {
      found[i] = indices[i];
    }
    return found;
  }

  static Label label(@Nullable List<String> labels, int index, double score) {
    boolean known = labels != null && index >= 0 && index < labels.size();
    return new Label(known ? labels.get(index) : "class " + index, (float) score, index);
  }
}
