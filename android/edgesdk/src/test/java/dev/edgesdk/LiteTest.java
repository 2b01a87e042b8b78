package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Files that Python packaged, on PyTorch Mobile's official Java classes over torch's real Lite interpreter. */
final class LiteTest {
  private static final Session.Config ONE = Session.Config.DEFAULT.withThreads(1);

  private static Session open(String name) {
    try (EdgeBundle bundle = EdgeBundle.open(Made.bundle(name))) {
      return bundle.session(ONE);
    }
  }

  @Test
  void theEngineIsThere() {
    EdgeRuntime runtime = Runtimes.find("torchscript");
    assertNull(runtime.missing());
    assertEquals(".ptl", runtime.suffix());
    assertEquals("", runtime.version());
    assertTrue(!runtime.has("xnnpack"));
  }

  @Test
  void everyDtypeComesBack() {
    float[] x = {1, -2, 3, 0.5f, 0, 1, -1, 2, -3, 0, 1, 4};
    int[] ids = {7, -300, 0, 12};
    try (Session session = open("ts-kinds")) {
      Map<String, Tensor> outputs = session.run(Map.of("x", Tensor.of(x, 2, 6), "ids", Tensor.of(ids, 4)));
      float[] scores = outputs.get("scores").floats();
      assertEquals(10, scores.length);
      for (int i = 0; i < scores.length; i++) {
        assertEquals(scores[i], outputs.get("double").doubles()[i], 0);
        assertEquals(255 / (1 + Math.exp(-scores[i])), outputs.get("byte").toFloats()[i], 1.01);
      }
      assertArrayEquals(new int[] {8, -299, 1, 13}, outputs.get("next").ints());
      assertArrayEquals(new float[] {14, -100, 0, 24}, outputs.get("sign").toFloats());
      long best = 0;
      for (int i = 1; i < 5; i++) {
        best = scores[i] > scores[(int) best] ? i : best;
      }
      assertEquals(best, outputs.get("best").longs()[0]);
    }
  }

  /** The engine's Java classes have no bool: the variant is passed over, and the next one answers. */
  @Test
  void pitfall_a_07_anUnreadableDtypeIsNamed() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("ts-flags"));
    EdgeException error = Made.fails("dtype_unsupported", () -> bundle.session(ONE.withVariant("torchscript-none")));
    assertEquals("PyTorch Mobile's Java library has no outputs of bool, as 'output' is.", error.message());
    try (Session session = bundle.session()) {
      assertEquals("onnx-none", session.variant().id());
    }
  }

  /** N-08: what a permutation left in channels-last memory comes out in the order of its shape. */
  @Test
  void pitfall_n_08_channelsLastMemoryIsPutInOrder() {
    int[] sizes = {2, 3, 4, 5};
    float[] x = new float[120];
    for (int i = 0; i < x.length; i++) {
      x[i] = i;
    }
    try (Session session = open("ts-turned")) {
      List<TensorSpec> specs = session.manifest().outputs();
      Map<String, Tensor> outputs = session.run(Map.of("x", Tensor.of(x, 2, 3, 4, 5)));
      Tensor turned = outputs.get(specs.get(0).name());
      Tensor deep = outputs.get(specs.get(1).name());
      Tensor one = outputs.get(specs.get(2).name());
      assertArrayEquals(new long[] {2, 5, 3, 4}, turned.shape());
      assertArrayEquals(new long[] {2, 5, 2, 3, 4}, deep.shape());
      int at = 0;
      for (int n = 0; n < sizes[0]; n++) {
        for (int c = 0; c < sizes[3]; c++) {
          for (int pixel = 0; pixel < 12; pixel++) {
            float wanted = x[(n * 12 + pixel) * 5 + c];
            assertEquals(wanted, turned.floats()[at++]);
            assertEquals((int) wanted, deep.ints()[(n * 5 + c) * 24 + pixel]);
            assertEquals(2 * (int) wanted, deep.ints()[(n * 5 + c) * 24 + 12 + pixel]);
            assertTrue(c > 0 || one.floats()[n * 12 + pixel] == wanted);
          }
        }
      }
    }
  }

  @Test
  void whatTheEngineSaysIsToldInOneLine() {
    try (Session session = open("ts-tokens")) {
      EdgeException error = Made.fails( // the table has 50 rows
          "run_failed", () -> session.run(Map.of("ids", Tensor.of(new long[] {4, 50}, 1, 2))));
      assertTrue(error.message().endsWith(".ptl did not run on int64[1, 2]."), error.message());
      assertTrue(error.why().contains("index out of range"), error.why());
    }
  }

  /** Without our shrinker rules the private names are gone: the same values come by an array. */
  @Test
  void valuesAlsoComeByArray() {
    float[] values = {1, 2, 3};
    FloatBuffer direct = org.pytorch.Tensor.allocateFloatBuffer(3);
    direct.put(values);
    org.pytorch.Tensor tensor = org.pytorch.Tensor.fromBlob(direct, new long[] {3});
    assertArrayEquals(values, ((FloatBuffer) LiteMemory.array(tensor)).array());
    float[] straight = new float[3];
    ((FloatBuffer) LiteMemory.buffer(tensor)).get(straight);
    assertArrayEquals(values, straight);
    LiteMemory.free(tensor); // it has no owner: nothing happens
  }

  /** T-03, N-03: a full archive and a file cut short are named as such, one that computes something else is found. */
  @Test
  void pitfall_t_03_variantsFallBackWithTheReason() {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("ts-choice"));
    try (Session session = bundle.session(ONE.withSelfTest())) {
      List<String> skipped = session.skipped();
      assertEquals("torchscript-none", session.variant().id());
      assertEquals(3, skipped.size(), skipped.toString());
      assertEquals(
          "torchscript-full: full.ptl is a full TorchScript archive without Lite bytecode.", skipped.get(0));
      assertEquals("torchscript-cut: cut.ptl can't be loaded as a TorchScript Lite file.", skipped.get(1));
      assertTrue(skipped.get(2).contains("fails its self-test: output: error "), skipped.get(2));
    }
  }

  @ParameterizedTest
  @CsvSource({
      "full,full_torchscript", "garbage,not_torchscript_lite", "empty,not_torchscript_lite",
      "cut,not_torchscript_lite", "torn,not_torchscript_lite", "newer,bytecode_too_new", "strange,unsupported_op"})
  void hostileFilesAreRefusedNotRun(String name, String code) {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("ts-" + name));
    for (int i = 0; i < 3; i++) {
      EdgeException error = Made.fails(code, () -> bundle.session(ONE.withVariant("torchscript-" + name)));
      assertTrue(error.message().startsWith(name + ".ptl "), error.message());
    }
    try (Session good = open("ts-pair")) {
      assertTrue(good.selfTest().ok());
    }
  }

  /** Any cut and any changed byte of the table of contents: refused in words or read, never another exception. */
  @Test
  void damagedTablesOfContentsAreRefusedInWords() throws IOException {
    try (EdgeBundle bundle = EdgeBundle.open(Made.bundle("ts-pair"))) {
      byte[] good = new byte[bundle.file(bundle.manifest().variants().get(0).file()).remaining()];
      bundle.file(bundle.manifest().variants().get(0).file()).get(good);
      Random random = new Random(1);
      Set<String> said = new HashSet<>();
      for (int i = 0; i < 3000; i++) {
        byte[] bad = good.clone();
        int tail = Math.min(bad.length, 900);
        for (int change = 0; change < 1 + i % 4; change++) {
          bad[bad.length - 1 - random.nextInt(tail)] = (byte) random.nextInt();
        }
        bad = i % 3 == 0 ? java.util.Arrays.copyOf(bad, random.nextInt(bad.length)) : bad;
        try {
          PtlFile.check(java.nio.ByteBuffer.wrap(bad), "bad.ptl");
        } catch (EdgeException error) {
          said.add(error.code());
        }
      }
      assertTrue(said.contains("not_torchscript_lite"), said.toString());
    }
  }

  /** outputs of 5 MB give their memory back at once, not when the collector comes: 300 of them would be 1.5 GB. */
  @Test
  void pitfall_a_09_outputsGiveTheirMemoryBack() throws IOException {
    try (Session session = open("ts-turned")) {
      Map<String, Tensor> inputs = Map.of("x", Tensor.allocate(DType.FLOAT32, 2, 256, 256, 5));
      Map<String, Tensor> outputs = session.run(inputs);
      for (int i = 0; i < 10; i++) { // allocators take their share first
        session.run(inputs, outputs);
      }
      long before = MemoryTest.resident();
      for (int i = 0; i < 300; i++) {
        session.run(inputs, outputs);
      }
      long grown = MemoryTest.resident() - before;
      assertTrue(grown < 300_000, "resident memory grew by " + grown + " kB");
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"float16", "bool", "int16", "bfloat16"})
  void dtypesThatTheEngineLacksAreRefusedAtLoading(String dtype) {
    byte[] json = Made.utf8("{\"name\":\"mask\",\"dtype\":\"" + dtype + "\",\"shape\":[2]}");
    List<TensorSpec> specs = List.of(TensorSpec.read(Fields.of(StrictJson.decode(json), "")));
    EdgeException error = Made.fails("dtype_unsupported", () -> LiteInputs.check(specs));
    assertEquals("PyTorch Mobile's Java library has no inputs of " + dtype + ", as 'mask' is.", error.message());
    Made.fails("dtype_unsupported", () -> LiteOutputs.check(specs));
  }
}
