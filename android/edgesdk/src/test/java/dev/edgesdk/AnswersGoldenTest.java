package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The shared answers of {@code tests/golden/preprocess/answers.json}. */
final class AnswersGoldenTest {
  private static final double CLOSE = 1e-6;

  @TestFactory
  Stream<DynamicTest> answersEqualPythons() throws IOException {
    File file = new File(Made.ROOT, "tests/golden/preprocess/answers.json");
    List<Object> cases = Made.list(Made.map(Made.json(file)).get("cases"));
    assertTrue(cases.size() >= 15, "only " + cases.size());
    return cases.stream().map(Made::map).map(one ->
        DynamicTest.dynamicTest((String) one.get("name"), () -> check(one)));
  }

  private static void check(Map<String, Object> one) {
    Map<String, Tensor> outputs = new LinkedHashMap<>();
    for (Map.Entry<String, Object> output : Made.map(one.get("outputs")).entrySet()) {
      outputs.put(output.getKey(), tensor(Made.map(output.getValue())));
    }
    List<String> labels = null;
    if (one.get("labels") != null) {
      labels = new ArrayList<>();
      for (Object label : Made.list(one.get("labels"))) {
        labels.add((String) label);
      }
    }
    Postprocess post = Postprocess.of(Made.map(one.get("spec")));
    List<Object> wanted = Made.list(one.get("answer"));
    switch (post.kind()) {
      case "classify":
        List<Label> found = post.labels(outputs, labels);
        assertEquals(wanted.size(), found.size());
        for (int i = 0; i < found.size(); i++) {
          same(Made.map(wanted.get(i)), found.get(i));
        }
        break;
      case "boxes":
        boxes(wanted, post.boxes(outputs, labels));
        break;
      default:
        numbers(wanted, post.kind().equals("segment") ? post.segment(outputs) : post.embed(outputs));
        break;
    }
  }

  private static Tensor tensor(Map<String, Object> held) {
    List<Object> values = Made.list(held.get("values"));
    float[] floats = new float[values.size()];
    for (int i = 0; i < floats.length; i++) {
      floats[i] = ((Number) values.get(i)).floatValue();
    }
    long[] shape = Made.list(held.get("shape")).stream().mapToLong(size -> (Long) size).toArray();
    return Tensor.of(floats, shape);
  }

  private static void same(Map<String, Object> wanted, Label label) {
    assertEquals(wanted.get("name"), label.name());
    assertEquals(wanted.get("index"), (long) label.index());
    assertEquals(((Number) wanted.get("score")).doubleValue(), label.score(), CLOSE);
  }

  private static void boxes(List<Object> wanted, List<Box> found) {
    assertEquals(wanted.size(), found.size());
    for (int i = 0; i < found.size(); i++) {
      Map<String, Object> box = Made.map(wanted.get(i));
      same(Made.map(box.get("label")), found.get(i).label());
      assertEquals(((Number) box.get("x0")).doubleValue(), found.get(i).x0(), CLOSE);
      assertEquals(((Number) box.get("y0")).doubleValue(), found.get(i).y0(), CLOSE);
      assertEquals(((Number) box.get("x1")).doubleValue(), found.get(i).x1(), CLOSE);
      assertEquals(((Number) box.get("y1")).doubleValue(), found.get(i).y1(), CLOSE);
    }
  }

  private static void numbers(List<Object> wanted, Tensor found) {
    double[] values = found.toDoubles();
    assertEquals(wanted.size(), values.length);
    for (int i = 0; i < values.length; i++) {
      assertEquals(((Number) wanted.get(i)).doubleValue(), values[i], CLOSE);
    }
  }

  @Test
  void whatCantBeReadIsSaid() {
    Postprocess post = Postprocess.of(Map.of("kind", "classify", "version", 1L));
    EdgeException two = Made.fails(
        "output_shape", () -> post.labels(Map.of("y", Tensor.of(new float[6], 2, 3)), null));
    assertEquals("An output of shape [2, 3] can't be read as the class scores [1, C] of one sample.", two.message());
    EdgeException nan = Made.fails(
        "output_not_finite", () -> post.labels(Map.of("y", Tensor.of(new float[] {1, Float.NaN}, 1, 2)), null));
    assertEquals("The output 'y' holds NaN or infinity.", nan.message());
    Postprocess named = Postprocess.of(Map.of("kind", "embed", "version", 1L, "output", "z"));
    EdgeException none = Made.fails("output_unknown", () -> named.embed(Map.of("y", Tensor.of(new float[1], 1))));
    assertEquals("The model has no output 'z'.", none.message());
    Made.fails("postprocess_invalid", () -> Postprocess.of(Collections.singletonMap("kind", "classify")));
    EdgeException field = Made.fails(
        "postprocess_invalid", () -> Postprocess.of(Map.of("kind", "classify", "version", 1L, "topk", 2L)));
    assertTrue(field.why().contains("the field 'topk' is unknown; Did you mean 'top_k'?"), field.why());
  }
}
