package dev.edgesdk;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * From a model's outputs to an answer: labels, boxes, a class map, a unit vector. Python's {@code
 * preprocess/postprocess.py} defines the numbers.
 */
public final class Postprocess {
  private static final Map<String, Object> DEFAULTS = defaults();
  private static final Set<String> KINDS =
      new LinkedHashSet<>(Arrays.asList("raw", "classify", "boxes", "segment", "embed"));

  final String kind;
  final @Nullable String output;
  final String activation;
  final int topK;
  final String boxes;
  final String scores;
  final @Nullable String classes;
  final String boxFormat;
  final double minScore;
  final double iou;
  final int maxBoxes;
  final boolean classAgnostic;
  final @Nullable Long background;
  final boolean channelsFirst;

  private Postprocess(Fields from) {
    kind = from.oneOf("kind", KINDS);
    output = from.textOrNull("output", TextRule.TENSOR);
    activation = from.oneOf("activation", new LinkedHashSet<>(Arrays.asList("softmax", "sigmoid", "none")));
    topK = (int) from.whole("top_k", 1, Integer.MAX_VALUE);
    boxes = from.text("boxes", TextRule.TENSOR);
    scores = from.text("scores", TextRule.TENSOR);
    classes = from.textOrNull("classes", TextRule.TENSOR);
    boxFormat = from.oneOf("box_format", new LinkedHashSet<>(Arrays.asList("xyxy", "xywh", "cxcywh")));
    minScore = from.real("min_score");
    iou = from.real("iou");
    maxBoxes = (int) from.whole("max_boxes", 0, Integer.MAX_VALUE);
    classAgnostic = from.flag("class_agnostic", false);
    background = from.wholeOrNull("background", 0, Integer.MAX_VALUE);
    channelsFirst = from.oneOf("layout", new LinkedHashSet<>(Arrays.asList("nchw", "nhwc"))).equals("nchw");
  }

  private static Map<String, Object> defaults() {
    Map<String, Object> values = new HashMap<>();
    values.put("activation", "softmax");
    values.put("top_k", 5L);
    values.put("boxes", "boxes");
    values.put("scores", "scores");
    values.put("box_format", "xyxy");
    values.put("min_score", 0.05);
    values.put("iou", 0.5);
    values.put("max_boxes", 100L);
    values.put("class_agnostic", false);
    values.put("layout", "nchw");
    return values;
  }

  /**
   * Reads the manifest's form.
   *
   * @throws EdgeException {@code postprocess_invalid}: the kind, a field or the version is unknown
   */
  public static Postprocess of(Map<String, Object> document) {
    Map<String, Object> all = new HashMap<>(DEFAULTS);
    all.putAll(document);
    try {
      for (String key : document.keySet()) {
        boolean other = Arrays.asList("kind", "version", "output", "classes", "background").contains(key);
        if (!other && !DEFAULTS.containsKey(key)) {
          throw new BadField("the field '" + key + "' is unknown; " + Words.nearest(key, DEFAULTS.keySet()));
        }
      }
      Fields fields = Fields.of(all, "");
      fields.whole("version", 1, 1);
      return new Postprocess(fields);
    } catch (BadField bad) {
      throw new EdgeException(
          "postprocess_invalid",
          "The postprocessing of the manifest can't be read.",
          bad.problem() + ".",
          "Known kinds are " + Words.join(KINDS)
              + ", version 1; update dev.edgesdk:edgesdk, or write the bundle again.");
    }
  }

  /** {@code raw}, {@code classify}, {@code boxes}, {@code segment} or {@code embed}. */
  public String kind() {
    return kind;
  }

  /**
   * The likeliest classes, best first; on equal scores the smaller index first.
   *
   * @param labels names of the classes, or null
   * @throws EdgeException {@code output_unknown}, {@code output_shape}, {@code output_not_finite}, {@code bad_top}
   */
  public List<Label> labels(Map<String, Tensor> outputs, @Nullable List<String> labels, int top) {
    Answers.checkTop(top);
    Tensor tensor = Answers.get(outputs, output);
    double[] values = Answers.finite(tensor, output, outputs);
    long[] shape = tensor.sizes();
    if (shape.length == 0 || values.length == 0 || shape[shape.length - 1] != values.length) {
      throw Answers.shape(tensor, "the class scores [1, C] of one sample");
    }
    double[] scores = Answers.activate(values, values.length, activation);
    List<Label> found = new ArrayList<>();
    for (int index : Answers.order(scores, top)) {
      found.add(Answers.label(labels, index, scores[index]));
    }
    return found;
  }

  /** As {@link #labels(Map, List, int)}, as many as the manifest says. */
  public List<Label> labels(Map<String, Tensor> outputs, @Nullable List<String> labels) {
    return labels(outputs, labels, topK);
  }

  /**
   * Objects that were found, best first, without those that overlap a better one.
   *
   * @throws EdgeException {@code output_unknown}, {@code output_shape}, {@code output_not_finite}
   */
  public List<Box> boxes(Map<String, Tensor> outputs, @Nullable List<String> labels) {
    return Boxes.find(this, outputs, labels);
  }

  /**
   * The likeliest class of each pixel: int32 [H, W].
   *
   * @throws EdgeException {@code output_unknown}, {@code output_shape}, {@code output_not_finite}
   */
  public Tensor segment(Map<String, Tensor> outputs) {
    Tensor tensor = Answers.get(outputs, output);
    double[] values = Answers.finite(tensor, output, outputs);
    long[] shape = tensor.sizes();
    int skip = shape.length == 4 && shape[0] == 1 ? 1 : 0;
    if (shape.length - skip != 3 || shape[skip + (channelsFirst ? 0 : 2)] == 0) {
      throw Answers.shape(tensor, "one map per class, [1, C, H, W]");
    }
    int classes = (int) shape[skip + (channelsFirst ? 0 : 2)];
    long height = shape[skip + (channelsFirst ? 1 : 0)];
    long width = shape[skip + (channelsFirst ? 2 : 1)];
    int area = (int) (height * width);
    int[] best = new int[area];
    for (int i = 0; i < area; i++) {
      int at = channelsFirst ? i : i * classes;
      int step = channelsFirst ? area : 1;
      if (classes == 1) {
        best[i] = values[at] > 0 ? 1 : 0;
      }
      for (int c = 1; c < classes; c++) {
        best[i] = values[at + c * step] > values[at + best[i] * step] ? c : best[i];
      }
    }
    return Tensor.of(best, height, width);
  }

  /**
   * Vectors of length 1 along the last dimension: float32 of the output's shape.
   *
   * @throws EdgeException {@code output_unknown}, {@code output_not_finite}
   */
  public Tensor embed(Map<String, Tensor> outputs) {
    Tensor tensor = Answers.get(outputs, output);
    double[] values = Answers.finite(tensor, output, outputs);
    long[] shape = tensor.sizes();
    int length = shape.length == 0 ? 1 : (int) shape[shape.length - 1];
    float[] unit = new float[values.length];
    for (int start = 0; start < values.length; start += length) {
      double sum = 0;
      for (int i = start; i < start + length; i++) {
        sum += values[i] * values[i];
      }
      double norm = Math.max(Math.sqrt(sum), 1e-12);
      for (int i = start; i < start + length; i++) {
        unit[i] = (float) (values[i] / norm);
      }
    }
    return Tensor.of(unit, shape);
  }
}
