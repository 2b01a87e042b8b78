package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/**
 * Every variant of every bundle that {@code edgesdk package} made and signed for these tests gives the golden answers, on
 * the real engines: small networks, and trained ones for pictures, letters, words, sounds, speech and bytes, in float and
 * int8.
 */
final class GoldenTest {
  private static final Session.Config ONE = Session.Config.DEFAULT.withThreads(1);

  /** Variants that an engine's Java library has no dtype for; others of the same bundle answer instead. */
  private static final Set<String> LACKING = Set.of("et-flags executorch-xnnpack-none", "ts-flags torchscript-none");

  /** By engine: variants, golden calls, and tensors compared. */
  private static final Map<String, int[]> COUNTS = new TreeMap<>();

  private static List<EdgeBundle> signed() throws IOException {
    EdgeKey release = Made.key("release");
    List<EdgeBundle> found = new ArrayList<>();
    File[] files = Made.BUNDLES.listFiles((folder, name) -> name.endsWith(".edge"));
    Arrays.sort(files);
    for (File file : files) {
      EdgeBundle bundle = EdgeBundle.open(file);
      if (release.id().equals(bundle.signer())) {
        assertEquals(SignatureState.VALID, bundle.signature());
        found.add(bundle);
      }
    }
    return found;
  }

  @TestFactory
  Stream<DynamicTest> goldenAnswersAreReproduced() throws IOException {
    List<DynamicTest> tests = new ArrayList<>();
    for (EdgeBundle bundle : signed()) {
      for (Variant variant : bundle.manifest().variants()) {
        String name = bundle.manifest().name() + " " + variant.id();
        if (!LACKING.contains(name)) {
          tests.add(DynamicTest.dynamicTest(name, () -> check(bundle, variant)));
        }
      }
    }
    return tests.stream();
  }

  private static void check(EdgeBundle bundle, Variant variant) {
    try (Session session = bundle.session(ONE.withVariant(variant.id()))) {
      SelfTest test = session.selfTest();
      assertTrue(test.ok(), test.toString());
      assertEquals(variant.id(), test.variant());
      assertTrue(test.calls() >= 1 && test.calls() == bundle.manifest().golden().size());
      assertEquals(bundle.manifest().outputs().size(), test.outputs().size());
      double least = variant.quantization().contains("int8") ? 15 : variant.quantization().equals("fp16") ? 40 : 60;
      for (OutputTest output : test.outputs()) {
        assertTrue(output.snrDb() == null || output.snrDb() > least, output.toString());
      }
      int[] count = COUNTS.computeIfAbsent(variant.runtime(), name -> new int[3]);
      count[0]++;
      count[1] += test.calls();
      count[2] += test.calls() * test.outputs().size();
    }
  }

  /** What is under test: if the bundles shrank, the test above would still be green. */
  @Test
  void theBundlesAreThoseThatMatter() throws IOException {
    Map<String, Set<String>> trained = new TreeMap<>();
    Set<DType> inputs = new TreeSet<>();
    for (EdgeBundle bundle : signed()) {
      for (TensorSpec spec : bundle.manifest().inputs()) {
        inputs.add(spec.dtype());
      }
      for (Variant variant : bundle.manifest().variants()) {
        if (bundle.manifest().name().startsWith("zoo-")) {
          trained.computeIfAbsent(bundle.manifest().name(), name -> new TreeSet<>())
              .add(variant.runtime() + " " + variant.quantization());
        }
      }
    }
    // Wheels of MODELS.md: digits, pitch, letters, file types, sentences, noise, speech.
    assertTrue(trained.keySet().containsAll(Set.of(
        "zoo-digit", "zoo-crepe", "zoo-g2p", "zoo-magika", "zoo-minilm", "zoo-nsnet2", "zoo-silero")), trained.toString());
    for (String runtime : List.of("executorch", "onnx", "torchscript")) {
      assertTrue(trained.get("zoo-digit").containsAll(Set.of(runtime + " none", runtime + " static-int8")), runtime);
      assertTrue(trained.get("zoo-silero").contains(runtime + " none"), runtime);
    }
    assertTrue(trained.get("zoo-g2p").contains("executorch weight-int8"));
    assertTrue(trained.get("zoo-magika").contains("onnx dynamic-int8"));
    assertTrue(inputs.containsAll(Set.of(DType.FLOAT32, DType.INT64, DType.INT32)), inputs.toString());
  }

  @AfterAll
  static void say() throws IOException {
    for (Map.Entry<String, int[]> one : COUNTS.entrySet()) {
      int[] count = one.getValue();
      Figures.say("golden " + one.getKey() + ": " + count[0] + " variants, " + count[1] + " calls, " + count[2]
          + " tensors compared");
    }
  }
}
