package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.FloatBuffer;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Programs that Python packaged, on the official Java classes over the real ExecuTorch. */
final class ExecutorchTest {
  private static final Session.Config ONE = Session.Config.DEFAULT.withThreads(1);

  private static Session open(String name) {
    try (EdgeBundle bundle = EdgeBundle.open(Made.bundle(name))) {
      return bundle.session(ONE);
    }
  }

  @Test
  void theEngineIsListedFirst() {
    EdgeRuntime runtime = Runtimes.find("executorch");
    assertEquals(runtime, Runtimes.all().get(0));
    assertNull(runtime.missing());
    assertEquals(".pte", runtime.suffix());
    assertEquals("", runtime.version());
    assertTrue(runtime.has("xnnpack") && runtime.has("portable"));
    assertTrue(!runtime.has("coreml") && !runtime.has("vulkan"));
  }

  /** every dtype that the engine's Java library reads comes back as itself. */
  @Test
  void pitfall_a_07_everyDtypeComesBack() {
    float[] x = {1, -2, 3, 0.5f, 0, 1, -1, 2, -3, 0, 1, 4};
    int[] ids = {7, -300, 0, 12};
    try (Session session = open("et-kinds")) {
      Map<String, Tensor> outputs = session.run(Map.of("x", Tensor.of(x, 2, 6), "ids", Tensor.of(ids, 4)));
      float[] scores = outputs.get("scores").floats();
      assertEquals(10, scores.length);
      for (int i = 0; i < scores.length; i++) {
        assertEquals(scores[i], outputs.get("double").doubles()[i], 0);
        assertEquals(scores[i], outputs.get("half").toFloats()[i], 0.005);
        assertEquals(255 / (1 + Math.exp(-scores[i])), outputs.get("byte").toFloats()[i], 1.01);
      }
      assertArrayEquals(new int[] {8, -299, 1, 13}, outputs.get("next").ints());
      assertArrayEquals(new float[] {14, -100, 0, 24}, outputs.get("sign").toFloats());
      long best = scores[0] > scores[1] ? 0 : 1;
      for (int i = 2; i < 5; i++) {
        best = scores[i] > scores[(int) best] ? i : best;
      }
      assertEquals(best, outputs.get("best").longs()[0]);
    }
  }

  /** this release can't make a bool tensor: the variant is passed over, and the next one answers. */
  @Test
  void pitfall_a_07_anUnreadableDtypeIsNamed() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("et-flags"));
    EdgeException error = Made.fails(
        "dtype_unsupported", () -> bundle.session(ONE.withVariant("executorch-xnnpack-none")));
    assertEquals("ExecuTorch's Java library has no outputs of bool, as 'output' is.", error.message());
    try (Session session = bundle.session()) {
      assertEquals("onnx-none", session.variant().id());
      assertArrayEquals(
          new boolean[] {true, false, false, true},
          session.run(Map.of("x", Tensor.of(new float[] {1, -1, 0.5f, 0.6f}, 4))).get("output").booleans());
    }
    byte[] bytes = {1, 0, 1};
    java.nio.ByteBuffer direct = org.pytorch.executorch.Tensor.allocateByteBuffer(3).put(bytes);
    byte[] raw = new byte[3];
    EtOutputs.raw(org.pytorch.executorch.Tensor.fromBlob(direct, new long[] {3})).get(raw);
    assertArrayEquals(bytes, raw); // how releases that can make one are read
  }

  /** Releases before copyDataInto give arrays: the same values come that way. */
  @Test
  void olderReleasesAreReadByArray() {
    float[] values = {1, 2, 3};
    FloatBuffer direct = org.pytorch.executorch.Tensor.allocateFloatBuffer(3);
    direct.put(values);
    FloatBuffer to = FloatBuffer.allocate(3);
    EtOutputs.copyByArray(org.pytorch.executorch.Tensor.fromBlob(direct, new long[] {3}), DType.FLOAT32, to);
    assertArrayEquals(values, to.array());
  }

  @Test
  void dtypesThatTheEngineCannotTakeAreRefusedAtLoading() {
    EdgeException error = Made.fails("dtype_unsupported", () -> EtInputs.check(specs("bool")));
    assertEquals("ExecuTorch's Java library has no inputs of bool, as 'mask' is.", error.message());
    Made.fails("dtype_unsupported", () -> EtInputs.check(specs("int16")));
    Made.fails("dtype_unsupported", () -> EtOutputs.check(specs("uint16")));
    EtInputs.check(specs("float16"));
    Made.fails("dtype_unsupported", () -> EtOutputs.check(specs("bfloat16")));
    EtOutputs.check(specs("float64"));
  }

  private static List<TensorSpec> specs(String dtype) {
    byte[] json = Made.utf8("{\"name\":\"mask\",\"dtype\":\"" + dtype + "\",\"shape\":[2]}");
    return List.of(TensorSpec.read(Fields.of(StrictJson.decode(json), "")));
  }

  /** What the engine's own classes allocate in a call is their affair; this library adds next to nothing to it. */
  @Test
  void repeatedRunsAllocateNoMoreThanTheBareEngine() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("et-picture"));
    long[] in = {1, 3, 32, 32};
    ModelFile files = new ModelFile(bundle, bundle.manifest().variants().get(0));
    try (Session session = bundle.session(ONE.withVariant("executorch-xnnpack-none"));
        org.pytorch.executorch.Module module = org.pytorch.executorch.Module.load(
            files.file().getPath(), org.pytorch.executorch.Module.LOAD_MODE_MMAP, 1)) {
      FloatBuffer x = org.pytorch.executorch.Tensor.allocateFloatBuffer(3 * 32 * 32);
      FloatBuffer y = org.pytorch.executorch.Tensor.allocateFloatBuffer(6);
      org.pytorch.executorch.EValue[] values = {
        org.pytorch.executorch.EValue.from(org.pytorch.executorch.Tensor.fromBlob(x, in))
      };
      long bare = allocated(() -> {
        y.clear();
        module.forward(values)[0].toTensor().copyDataInto(y);
      });
      Map<String, Tensor> inputs = Map.of("input", Tensor.allocate(DType.FLOAT32, in));
      Map<String, Tensor> outputs = Map.of(
          bundle.manifest().outputs().get(0).name(), Tensor.allocate(DType.FLOAT32, 1, 6));
      long ours = allocated(() -> session.run(inputs, outputs));
      // An iterator or two may outlive a compiler that is still warming up; a copy of the input would be 12,288 bytes.
      assertTrue(ours <= bare + 64, ours + " bytes per call, the bare engine " + bare);
    } finally {
      files.delete();
    }
  }

  private static long allocated(Runnable call) {
    com.sun.management.ThreadMXBean threads =
        (com.sun.management.ThreadMXBean) java.lang.management.ManagementFactory.getThreadMXBean();
    long before = 0;
    for (int i = 0; i < 4000; i++) {
      if (i == 3000) { // classes are loaded and lambdas linked by now
        before = threads.getThreadAllocatedBytes(Thread.currentThread().getId());
      }
      call.run();
    }
    return (threads.getThreadAllocatedBytes(Thread.currentThread().getId()) - before) / 1000;
  }

  /** N-03, A-01: what doesn't load, fit or compute what it should is passed over, with a line in the log. */
  @Test
  void variantsFallBackWithTheReason() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("et-choice"));
    try (Log log = new Log(); Session session = bundle.session(ONE.withSelfTest())) {
      List<String> skipped = session.skipped();
      assertEquals("executorch-xnnpack-none", session.variant().id());
      assertEquals(4, skipped.size(), skipped.toString());
      assertEquals(
          "executorch-garbage: garbage.pte can't be loaded as an ExecuTorch program.", skipped.get(0));
      assertEquals("executorch-cut: cut.pte can't be loaded as an ExecuTorch program.", skipped.get(1));
      assertTrue(skipped.get(2).contains("fails its self-test: output: error "), skipped.get(2));
      assertEquals(
          "executorch-coreml: Files for the back end 'coreml' don't run here.", skipped.get(3));
      assertEquals(4, log.lines().size());
      assertEquals(
          "executorch-garbage is passed over: garbage.pte can't be loaded as an ExecuTorch program.", log.lines().get(0));
    }
    EdgeException named = Made.fails("bad_pte", () -> bundle.session(ONE.withVariant("executorch-garbage")));
    assertEquals("It is damaged, cut short, or another kind of file: its first bytes aren't those of a program.",
        named.why());
    try (Session untested = bundle.session(ONE)) {
      assertEquals("executorch-wrong", untested.variant().id());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"garbage", "empty", "cut", "headless", "torn"})
  void hostileProgramsAreRefusedNotRun(String name) {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("et-" + name));
    for (int i = 0; i < 3; i++) {
      EdgeException error = Made.fails("bad_pte", () -> bundle.session(ONE.withVariant("executorch-" + name)));
      assertEquals(name + ".pte can't be loaded as an ExecuTorch program.", error.message());
    }
    try (Session good = open("et-pair")) {
      assertTrue(good.selfTest().ok());
    }
  }
}
