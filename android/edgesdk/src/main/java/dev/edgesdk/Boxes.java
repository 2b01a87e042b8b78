package dev.edgesdk;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Boxes and non-maximum suppression, equal to torchvision's. */
final class Boxes {
  private final Postprocess how;
  private final List<float[]> corners = new ArrayList<>();
  private final List<Double> scores = new ArrayList<>();
  private final List<Integer> classes = new ArrayList<>();

  private Boxes(Postprocess how) {
    this.how = how;
  }

  static List<Box> find(Postprocess how, Map<String, Tensor> outputs, @Nullable List<String> labels) {
    Boxes boxes = new Boxes(how);
    boxes.collect(outputs);
    List<Box> found = new ArrayList<>();
    for (int i : boxes.kept()) {
      float[] c = boxes.corners.get(i);
      found.add(new Box(c[0], c[1], c[2], c[3], Answers.label(labels, boxes.classes.get(i), boxes.scores.get(i))));
    }
    return found;
  }

  /** All pairs of box and class that count, box by box. */
  private void collect(Map<String, Tensor> outputs) {
    Tensor boxes = Answers.get(outputs, how.boxes);
    Tensor scores = Answers.get(outputs, how.scores);
    float[] places = boxes.toFloats();
    Answers.finite(boxes, how.boxes, outputs);
    double[] values = Answers.finite(scores, how.scores, outputs);
    long[] shape = boxes.sizes();
    int skip = shape.length == 3 && shape[0] == 1 ? 1 : 0;
    if (shape.length - skip != 2 || shape[skip + 1] != 4) {
      throw Answers.shape(boxes, "boxes [N, 4]");
    }
    int count = (int) shape[skip];
    int each = count == 0 ? 1 : values.length / count;
    if (values.length != count * each) {
      throw Answers.shape(scores, "the scores [" + count + ", C] of " + count + " boxes");
    }
    double[] numbers = how.classes == null ? null : numbers(outputs, count, each);
    double[] found = Answers.activate(values, Math.max(1, each), how.activation);
    for (int row = 0; row < count; row++) {
      for (int column = 0; column < each; column++) {
        int number = numbers == null ? column : (int) numbers[row];
        boolean background = how.background != null && how.background == number;
        if (found[row * each + column] > how.minScore && !background) {
          corners.add(corners(places, 4 * row));
          this.scores.add(found[row * each + column]);
          classes.add(number);
        }
      }
    }
  }

  private double[] numbers(Map<String, Tensor> outputs, int count, int each) {
    Tensor classes = Answers.get(outputs, how.classes);
    double[] numbers = Answers.finite(classes, how.classes, outputs);
    if (numbers.length != count || each != 1) {
      throw Answers.shape(classes, "the class numbers of " + count + " boxes");
    }
    return numbers;
  }

  private float[] corners(float[] places, int at) {
    float a = places[at];
    float b = places[at + 1];
    float c = places[at + 2];
    float d = places[at + 3];
    if (how.boxFormat.equals("xywh")) {
      return new float[] {a, b, a + c, b + d};
    }
    if (how.boxFormat.equals("cxcywh")) {
      float x = c * 0.5f;
      float y = d * 0.5f;
      return new float[] {a - x, b - y, a + x, b + y};
    }
    return new float[] {a, b, c, d};
  }

  private List<Integer> kept() {
    double[] values = new double[scores.size()];
    for (int i = 0; i < values.length; i++) {
      values[i] = scores.get(i);
    }
    List<Integer> kept = new ArrayList<>();
    for (int candidate : Answers.order(values, values.length)) {
      if (kept.size() == how.maxBoxes) {
        break;
      }
      boolean free = true;
      for (int better : kept) {
        boolean rivals = how.classAgnostic || classes.get(better).equals(classes.get(candidate));
        free &= !rivals || !(overlap(corners.get(better), corners.get(candidate)) > how.iou);
      }
      if (free) {
        kept.add(candidate);
      }
    }
    return kept;
  }

  /** Intersection over union in single precision; boxes without area never overlap. */
  private static double overlap(float[] a, float[] b) {
    float width = Math.max(Math.min(a[2], b[2]) - Math.max(a[0], b[0]), 0f);
    float height = Math.max(Math.min(a[3], b[3]) - Math.max(a[1], b[1]), 0f);
    float inter = width * height;
    float union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter;
    return union == 0 ? 0 : inter / union;
  }
}
