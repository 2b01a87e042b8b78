package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Bundles that Python packaged, on the real ONNX Runtime. */
final class SessionTest {
  private static Session open(String name) {
    return Engine.ONNX.open(name);
  }

  @Test
  void pythonAndJavaSayTheSameToAPicture() throws IOException {
    byte[] pixels = Files.readAllBytes(new File(Made.BUNDLES, "picture.rgb").toPath());
    List<Object> wanted = Made.list(Made.map(Made.json(new File(Made.BUNDLES, "expected.json"))).get("top"));
    try (Session session = open("picture")) {
      List<Label> top = session.classify(Picture.rgb(pixels, 60, 45), 6);
      assertEquals(wanted.size(), top.size());
      for (int i = 0; i < top.size(); i++) {
        assertEquals(Made.map(wanted.get(i)).get("name"), top.get(i).name());
        // Equal tensors go in; engines of two versions add up in another order.
        assertEquals(((Number) Made.map(wanted.get(i)).get("score")).doubleValue(), top.get(i).score(), 1e-5);
      }
      assertEquals(2, session.classify(Picture.rgb(pixels, 60, 45), 2).size());
      Made.fails("bad_top", () -> session.classify(Picture.rgb(pixels, 60, 45), 0));
    }
  }

  @Test
  void everyDtypeComesBackAsItself() {
    try (Session session = open("several")) {
      float[] x = {1, -2, 3, 0.5f, 0, 1, -1, 2, -3, 0, 1, 4};
      Map<String, Tensor> outputs = session.run(Map.of("x", Tensor.of(x, 2, 6)));
      assertEquals(List.of("scores", "best", "high", "half", "double", "byte"), new ArrayList<>(outputs.keySet()));
      float[] scores = outputs.get("scores").floats();
      double[] doubles = outputs.get("double").doubles();
      float[] halves = outputs.get("half").toFloats();
      for (int i = 0; i < scores.length; i++) {
        assertEquals(scores[i] > 0, outputs.get("high").booleans()[i]);
        assertEquals(scores[i], doubles[i], 0);
        assertEquals(scores[i], halves[i], 0.005);
        assertEquals(255 / (1 + Math.exp(-scores[i])), outputs.get("byte").toFloats()[i], 1.01);
      }
      assertEquals(2, outputs.get("best").longs().length);
    }
  }

  @Test
  void outputsThatDontFitAreNamed() {
    try (Session session = open("pair")) {
      Map<String, Tensor> inputs = Engine.pair(3);
      EdgeException missing = Made.fails("output_missing", () -> session.run(inputs, new HashMap<>()));
      assertEquals("There is no tensor for the output 'output' of pair.", missing.message());
      EdgeException dtype = Made.fails(
          "dtype_mismatch", () -> session.run(inputs, Map.of("output", Tensor.allocate(DType.INT64, 3, 4))));
      assertEquals("Output 'output' of pair wants float32 but got int64.", dtype.message());
    }
  }

  /** Not at the first call: then it would be too late for the next variant. */
  @Test
  void aDtypeThatTheEngineLacksIsToldWhenItLoads() {
    try (EdgeBundle bundle = EdgeBundle.open(Made.bundle("uint16"))) {
      Made.fails("dtype_unsupported", () -> bundle.session(Session.Config.DEFAULT.withVariant("onnx-none")));
      EdgeException none = Made.fails("no_variant_runs", bundle::session);
      assertTrue(none.why().contains("has no uint16"), none.why());
    }
  }

  /** the engine never sees a wrong name or dtype. */
  @Test
  void pitfall_a_05_wrongInputsAreNamed() {
    try (Session session = open("pair")) {
      Map<String, Tensor> good = Engine.pair(2);
      EdgeException missing = Made.fails("input_missing", () -> session.run(Map.of("a", good.get("a"))));
      assertEquals("The inputs of pair don't fit: 'b' is missing.", missing.message());
      assertEquals("The inputs are: a, b.", missing.why());
      EdgeException unknown = Made.fails(
          "unknown_input", () -> session.run(Map.of("a", good.get("a"), "b", good.get("b"), "c", good.get("a"))));
      assertEquals("The inputs of pair don't fit: 'c' is unknown.", unknown.message());
      EdgeException dtype = Made.fails(
          "dtype_mismatch", () -> session.run(Map.of("a", Tensor.of(new double[6], 2, 3), "b", good.get("b"))));
      assertEquals("Input 'a' of pair wants float32 but got float64.", dtype.message());
      assertEquals("Make the tensor from float[].", dtype.fix());
    }
    try (Session session = open("tokens")) {
      EdgeException dtype = Made.fails(
          "dtype_mismatch", () -> session.run(Map.of("ids", Tensor.of(new float[4], 1, 4))));
      assertEquals("Make the tensor from long[].", dtype.fix());
      EdgeException value = Made.fails(
          "run_failed", () -> session.run(Map.of("ids", Tensor.of(new long[] {1, 99}, 1, 2))));
      assertTrue(value.message().startsWith("ONNX Runtime failed on this input: "), value.message());
    }
  }

  /** E-12: wanted and got, and how to package it dynamic. */
  @Test
  void pitfall_e_12_wrongShapesAreNamed() {
    try (Session session = open("pair")) {
      EdgeException size = Made.fails(
          "shape_mismatch",
          () -> session.run(Map.of("a", Tensor.of(new float[27], 9, 3), "b", Tensor.of(new float[18], 9, 2))));
      assertEquals("Input 'a' of pair wants the shape [1..8, 3] but got [9, 3].", size.message());
      assertEquals("Dimension 0 lies in 1..8, as the model was packaged.", size.why());
      assertEquals(
          "Give the shape [1..8, 3], or package the model with dynamic dimensions: "
              + "edgesdk package MODEL --input 'a=float32[1..9,3]'",
          size.fix());
      EdgeException rank = Made.fails(
          "shape_mismatch",
          () -> session.run(Map.of("a", Tensor.of(new float[3], 3), "b", Tensor.of(new float[2], 1, 2))));
      assertEquals("The model takes 2 dimensions, the tensor has 1.", rank.why());
      EdgeException tied = Made.fails(
          "shape_mismatch",
          () -> session.run(Map.of("a", Tensor.of(new float[6], 2, 3), "b", Tensor.of(new float[6], 3, 2))));
      assertEquals("Dimension 0 of 'a' is 2, dimension 0 of 'b' is 3; pair needs them equal.", tied.message());
    }
    try (Session session = open("picture")) {
      EdgeException layout = Made.fails(
          "shape_mismatch", () -> session.run(Map.of("input", Tensor.of(new float[32 * 32 * 3], 1, 32, 32, 3))));
      assertEquals(
          "The tensor looks like batch, height, width, channels; the model takes channels second.", layout.why());
    }
  }

  /** What an engine itself allocates is its own affair; this library adds nothing to it. */
  @Test
  void repeatedRunsAllocateNothing() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("pair"));
    ModelFile files = new ModelFile(bundle, bundle.manifest().variants().get(0));
    try (Session session = new Session(bundle, files, new Idle(), new ArrayList<>())) {
      Map<String, Tensor> inputs = Engine.pair(3);
      Map<String, Tensor> outputs = Map.of("output", Tensor.allocate(DType.FLOAT32, 3, 4));
      com.sun.management.ThreadMXBean threads =
          (com.sun.management.ThreadMXBean) java.lang.management.ManagementFactory.getThreadMXBean();
      long before = 0;
      for (int i = 0; i < 3000; i++) {
        if (i == 2000) { // classes are loaded and lambdas linked by now
          before = threads.getThreadAllocatedBytes(Thread.currentThread().getId());
        }
        session.run(inputs, outputs);
      }
      long each = (threads.getThreadAllocatedBytes(Thread.currentThread().getId()) - before) / 1000;
      assertEquals(0, each, "bytes per call");
    }
  }

  private static final class Idle extends Runner {
    @Override
    void run(Tensor[] inputs, Tensor[] outputs) {}

    @Override
    void close() {}
  }

  @Test
  void weightsBesideTheModelAreExtractedAndRemoved() {
    File folder = new File(System.getProperty("java.io.tmpdir"));
    int before = EnginesTest.folders(folder);
    try (Session session = open("external")) {
      assertEquals(before + 1, EnginesTest.folders(folder));
      try (Session plain = open("pair")) {
        assertArrayEquals(
            plain.run(Engine.pair(4)).get("output").floats(), session.run(Engine.pair(4)).get("output").floats(), 1e-6f);
      }
    }
    assertEquals(before, EnginesTest.folders(folder));
  }

  @Test
  void variantsThatDontRunArePassedOverWithTheReason() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("choice"));
    try (Session session = bundle.session()) {
      assertEquals("onnx-none", session.variant().id());
      assertEquals(3, session.skipped().size());
      assertEquals("later-none: This edgesdk has no runtime 'later'.", session.skipped().get(0));
      assertTrue(
          session.skipped().get(1).startsWith("onnx-newer: It needs onnx 99.1 or newer; "), session.skipped().get(1));
      assertTrue(
          session.skipped().get(2).startsWith("onnx-broken: ONNX Runtime can't load broken.onnx: "),
          session.skipped().get(2));
    }
    Session.Config config = Session.Config.DEFAULT;
    EdgeException unknown = Made.fails("unknown_variant", () -> bundle.session(config.withVariant("onnx-non")));
    assertEquals("pair has no variant 'onnx-non'.", unknown.message());
    EdgeException later = Made.fails("variant_unsupported", () -> bundle.session(config.withVariant("later-none")));
    assertEquals("This edgesdk has no runtime 'later'.", later.why());
    Made.fails("load_failed", () -> bundle.session(config.withVariant("onnx-broken")));
    Made.fails("bad_threads", () -> config.withThreads(0));
    EdgeException none = Made.fails("no_variant_runs", () -> EdgeBundle.open(Made.bundle("lacking")).session());
    assertEquals("No variant of pair runs here.", none.message());
  }

  /** O-06: a chip's drivers may be wrong, and nobody has checked them: its variant isn't taken, and the reason is kept. */
  @Test
  void pitfall_o_06_acceleratorsAreNotUsedUnasked() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("nnapi"));
    try (Log log = new Log(); Session session = bundle.session()) {
      assertEquals("onnx-none", session.variant().id());
      assertEquals(List.of("onnx-nnapi: Files for the back end 'nnapi' don't run here."), session.skipped());
      assertEquals(
          List.of("onnx-nnapi is passed over: Files for the back end 'nnapi' don't run here."), log.lines());
      assertTrue(session.selfTest().ok());
    }
    Made.fails("variant_unsupported", () -> bundle.session(Session.Config.DEFAULT.withVariant("onnx-nnapi")));
  }

  @Test
  void versionsCompareByTheirNumbers() {
    assertTrue(Chooser.compare("1.29.0", "1.9") > 0);
    assertTrue(Chooser.compare("1.9", "1.9.0") < 0, "as Python's tuples");
    assertEquals(0, Chooser.compare("2.1+cpu", "2.1"));
  }

  /** Sequences run step by step after a reset; the counter adds up what it is given. */
  @Test
  void sequencesStartFromTheInitialState() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("counter"));
    Counter counter = new Counter();
    ModelFile files = new ModelFile(bundle, bundle.manifest().variants().get(0));
    try (Session session = new Session(bundle, files, counter, new ArrayList<>())) {
      session.run(Map.of("x", Tensor.of(new float[] {100, 100}, 2)));
      SelfTest test = session.selfTest();
      assertTrue(test.ok(), test.toString());
      assertEquals(4, test.calls());
      assertNull(test.outputs().get(0).snrDb());
      assertEquals(3, counter.resets, "before each sequence and at the end");
      assertArrayEquals(
          new float[] {1, 1}, session.run(Map.of("x", Tensor.of(new float[] {1, 1}, 2))).get("sum").floats());
      Tensor both = Tensor.of(new float[] {1, 1}, 2);
      EdgeException shared =
          Made.fails("output_unwritable", () -> session.run(Map.of("x", both), Map.of("sum", both)));
      assertEquals(
          "The tensor for the output 'sum' of counter is also an input or another output.", shared.message());
      assertArrayEquals(new float[] {1, 1}, both.floats());
    }
    assertTrue(counter.closed);
  }

  private static final class Counter extends Runner {
    private final float[] sum = new float[2];
    int resets;
    boolean closed;

    @Override
    void run(Tensor[] inputs, Tensor[] outputs) {
      float[] x = inputs[0].floats();
      for (int i = 0; i < 2; i++) {
        sum[i] += x[i];
        outputs[0].data().putFloat(4 * i, sum[i]);
      }
    }

    @Override
    void reset() {
      Arrays.fill(sum, 0);
      resets++;
    }

    @Override
    void close() {
      closed = true;
    }
  }

  /** N-03: an engine that computes something else is found out by the golden calls. */
  @Test
  void pitfall_n_03_aWrongEngineFailsItsSelfTest() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("counter"));
    try (Session session = bundle.session()) { // the null engine answers with zeros
      assertEquals("null-none", session.variant().id());
      SelfTest test = session.selfTest();
      assertFalse(test.ok());
      assertEquals(10.0, test.outputs().get(0).maxAbsError());
    }
    EdgeException error = Made.fails(
        "no_variant_runs", () -> bundle.session(Session.Config.DEFAULT.withSelfTest()));
    assertEquals(
        "null-none: 'null-none' of counter fails its self-test: sum: error 10.0 of 0.0.", error.why());
    try (Session good = EdgeBundle.open(Made.bundle("pair")).session(Session.Config.DEFAULT.withSelfTest())) {
      assertEquals(0, good.skipped().size());
    }
  }

  @Test
  void aBundleWithoutPreprocessingDoesNotClassify() {
    try (Session session = open("pair")) {
      EdgeException error = Made.fails(
          "not_a_classifier", () -> session.classify(Picture.gray(new byte[1], 1, 1), 1));
      assertEquals("pair has no preprocessing, so it can't classify a picture.", error.message());
    }
  }

  @Test
  void runtimesAreListed() {
    assertSame(Runtimes.all().get(1), Runtimes.find("onnx"));
    assertNull(Runtimes.find("onnx").missing());
    assertEquals(".onnx", Runtimes.find("onnx").suffix());
    assertTrue(Runtimes.find("onnx").version().startsWith("1."));
    EdgeException error = Made.fails("unknown_runtime", () -> Runtimes.find("onix"));
    assertEquals("Did you mean 'onnx'? Known: executorch, null, onnx, torchscript.", error.why());
  }
}
