package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What a session promises, it promises on every engine. */
final class EnginesTest {
  @ParameterizedTest
  @EnumSource
  void callersKeepTheirOutputs(Engine engine) {
    try (Session session = engine.open("pair")) {
      Map<String, Tensor> first = session.run(Engine.pair(2));
      float[] before = first.get("output").floats();
      session.run(Engine.pair(5));
      assertArrayEquals(before, first.get("output").floats());
    }
  }

  /** The hot path: the same tensors again and again, refilled in place. */
  @ParameterizedTest
  @EnumSource
  void outputsAreWrittenIntoGivenTensors(Engine engine) {
    try (Session session = engine.open("pair")) {
      Map<String, Tensor> inputs = Engine.pair(3);
      Tensor into = Tensor.allocate(DType.FLOAT32, 3, 4);
      for (int round = 0; round < 4; round++) {
        inputs.get("a").data().putFloat(0, round);
        session.run(inputs, Map.of("output", into));
        Map<String, Tensor> fresh = Map.of("a", Tensor.of(inputs.get("a").floats(), 3, 3), "b", inputs.get("b"));
        assertArrayEquals(session.run(fresh).get("output").floats(), into.floats());
      }
      Made.fails("output_missing", () -> session.run(inputs, new HashMap<>()));
      Made.fails("dtype_mismatch", () -> session.run(inputs, Map.of("output", Tensor.allocate(DType.INT64, 3, 4))));
      EdgeException size = Made.fails(
          "run_failed", () -> session.run(inputs, Map.of("output", Tensor.allocate(DType.FLOAT32, 2, 4))));
      if (engine != Engine.ONNX) { // which says it in words of its own
        assertEquals("Output 'output' has the shape [3, 4], its tensor is float32[2, 4].", size.message());
      }
      session.run(inputs, Map.of("output", into));
    }
  }

  /** An engine that writes into mapped memory ends the process. */
  @ParameterizedTest
  @EnumSource
  void readOnlyMemoryIsReadButNeverWritten(Engine engine) {
    try (Session session = engine.open("pair")) {
      Map<String, Tensor> inputs = Engine.pair(3);
      Tensor readOnly = Tensor.wrap(DType.FLOAT32, inputs.get("a").data().asReadOnlyBuffer(), 3, 3);
      Map<String, Tensor> same = Map.of("a", readOnly, "b", inputs.get("b"));
      assertArrayEquals(session.run(inputs).get("output").floats(), session.run(same).get("output").floats());
      Tensor into = Tensor.wrap(DType.FLOAT32, ByteBuffer.allocateDirect(48).asReadOnlyBuffer(), 3, 4);
      Made.fails("output_unwritable", () -> session.run(inputs, Map.of("output", into)));
      assertArrayEquals(new float[12], into.floats());
    }
  }

  @ParameterizedTest
  @EnumSource
  void sizesMayVary(Engine engine) {
    try (Session session = engine.open("tokens")) {
      float[] once = session.run(Map.of("ids", Tensor.of(new long[] {4, 8}, 1, 2))).get("output").floats();
      float[] twice = session.run(Map.of("ids", Tensor.of(new long[] {4, 8, 4, 8}, 1, 4))).get("output").floats();
      assertArrayEquals(once, twice, 1e-6f); // the mean of the same rows
      Made.fails("shape_mismatch", () -> session.run(Map.of("ids", Tensor.of(new long[13], 1, 13))));
      Made.fails("dtype_mismatch", () -> session.run(Map.of("ids", Tensor.of(new int[] {4, 8}, 1, 2))));
    }
  }

  /** State lives in the model: it is kept between calls, and forgotten by reset() and around the self-test. */
  @ParameterizedTest
  @EnumSource(names = {"EXECUTORCH", "TORCHSCRIPT"}) // a graph of ONNX has none
  void stateIsKeptAndReset(Engine engine) {
    try (Session session = engine.open("counter")) { // its bundle is closed by now
      Map<String, Tensor> x = Map.of("x", Tensor.of(new float[] {1, 2, 3}, 3));
      assertArrayEquals(new float[] {2, 4, 6}, session.run(x).get("output").floats());
      assertArrayEquals(new float[] {4, 8, 12}, session.run(x).get("output").floats());
      session.reset();
      assertArrayEquals(new float[] {2, 4, 6}, session.run(x).get("output").floats());
      assertTrue(session.selfTest().ok());
      assertArrayEquals(new float[] {2, 4, 6}, session.run(x).get("output").floats());
    }
  }

  @ParameterizedTest
  @EnumSource
  void aClosedSessionSaysSo(Engine engine) {
    Session session = engine.open("pair");
    Map<String, Tensor> inputs = Engine.pair(1);
    Map<String, Tensor> outputs = session.run(inputs);
    float[] before = outputs.get("output").floats();
    session.close();
    session.close();
    EdgeException error = Made.fails("session_closed", () -> session.run(inputs));
    assertTrue(error.message().endsWith("pair is closed."), error.message());
    assertEquals("close() was called, or a try block ended.", error.why());
    Made.fails("session_closed", () -> session.run(inputs, outputs));
    Made.fails("session_closed", session::selfTest);
    Made.fails("session_closed", session::reset);
    Made.fails("session_closed", () -> session.classify(Picture.gray(new byte[1], 1, 1), 1));
    assertArrayEquals(before, outputs.get("output").floats(), "outputs are the caller's");
    assertTrue(session.toString().startsWith("Session("));
  }

  @ParameterizedTest
  @EnumSource
  void closingWaitsForTheCallThatRuns(Engine engine) throws Exception {
    for (int round = 0; round < 20; round++) {
      Session session = engine.open("pair");
      ExecutorService threads = Executors.newFixedThreadPool(4);
      List<Future<String>> ends = new ArrayList<>();
      for (int t = 0; t < 4; t++) {
        ends.add(threads.submit(() -> {
          try {
            while (true) {
              session.run(Engine.pair(4));
            }
          } catch (EdgeException error) {
            return error.code();
          }
        }));
      }
      Thread.sleep(4);
      session.close();
      for (Future<String> end : ends) {
        assertEquals("session_closed", end.get());
      }
      threads.shutdown();
    }
  }

  /** A pool of threads is one for the process: replaced under a loaded model, it would crash its next call. */
  @ParameterizedTest
  @EnumSource
  void otherThreadCountsLeaveOpenSessionsAlone(Engine engine) throws Exception {
    try (Session running = engine.open("picture")) {
      Map<String, Tensor> inputs = Map.of("input", Tensor.allocate(DType.FLOAT32, 1, 3, 32, 32));
      float[] wanted = running.run(inputs).values().iterator().next().floats();
      ExecutorService one = Executors.newSingleThreadExecutor();
      Future<Integer> calls = one.submit(() -> {
        int count = 0;
        while (!Thread.currentThread().isInterrupted()) {
          assertArrayEquals(wanted, running.run(inputs).values().iterator().next().floats(), 1e-5f);
          count++;
        }
        return count;
      });
      EdgeBundle bundle = engine.bundle("picture");
      try (Log log = new Log()) {
        for (int round = 0; round < 20; round++) {
          try (Session other = bundle.session(Session.Config.DEFAULT.withThreads(1 + round % 3))) {
            assertArrayEquals(wanted, other.run(inputs).values().iterator().next().floats(), 1e-5f);
          }
        }
        String said = String.join("\n", log.lines());
        assertEquals(engine != Engine.ONNX, said.contains(" keeps 1 threads, not 3, as long as"), said);
      }
      one.shutdownNow();
      assertTrue(calls.get() > 0);
    }
  }

  /** native memory that nobody freed is freed when the collector finds the session; the log says whose. */
  @ParameterizedTest
  @EnumSource
  void pitfall_a_09_aForgottenSessionIsFreed(Engine engine) throws Exception {
    File folder = new File(System.getProperty("java.io.tmpdir"));
    int before = folders(folder);
    try (Log log = new Log(); Session kept = engine.open("pair")) {
      for (int i = 0; i < 10; i++) {
        engine.open("pair").run(Engine.pair(2));
      }
      for (int i = 0; i < 200 && log.lines().size() < 10; i++) {
        System.gc();
        Thread.sleep(20);
      }
      assertEquals(10, log.lines().size(), log.lines().toString());
      assertTrue(log.lines().get(0).startsWith(kept + " was never closed; "), log.lines().get(0));
      kept.run(Engine.pair(2));
    }
    assertEquals(before, folders(folder), "unpacked files are gone, too");
    try (Session again = engine.open("pair")) {
      assertTrue(again.selfTest().ok());
    }
  }

  static int folders(File folder) {
    return folder.list((dir, name) -> name.matches("edgesdk-[0-9a-f]{16,}")).length; // the SDK has folders of its own there
  }

  /** Engines that load no memory need a file. Where none can be written, another engine answers, else the error says so. */
  @Test
  void whereNothingCanBeWrittenAnotherEngineAnswers(@TempDir Path folder) throws Exception {
    String temporary = System.getProperty("java.io.tmpdir");
    System.setProperty("java.io.tmpdir", Files.writeString(folder.resolve("file"), "no folder").toString());
    try (EdgeBundle digit = EdgeBundle.open(Made.bundle("zoo-digit")); Session session = digit.session(Engine.ONE)) {
      assertEquals("onnx-none", session.variant().id());
      assertTrue(session.skipped().get(0).contains("can't be written"), session.skipped().get(0));
      EdgeException error = Made.fails("not_writable", () -> Engine.EXECUTORCH.open("pair"));
      assertEquals("Choose another folder.", error.fix());
    } finally {
      System.setProperty("java.io.tmpdir", temporary);
    }
  }

  /** All engines in one process, from several threads; other thread counts wait. */
  @Test
  void enginesLiveSideBySide() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(3);
    List<Future<?>> running = new ArrayList<>();
    for (String variant : new String[] {"torchscript-none", "executorch-xnnpack-none", "onnx-none"}) {
      running.add(threads.submit(() -> {
        EdgeBundle bundle = EdgeBundle.open(Made.bundle("zoo-digit"));
        for (int round = 0; round < 5; round++) {
          Session.Config config = Session.Config.DEFAULT.withThreads(1 + round % 2).withVariant(variant);
          try (Session session = bundle.session(config)) {
            assertTrue(session.selfTest().ok(), variant);
          }
        }
        return null;
      }));
    }
    for (Future<?> future : running) {
      future.get();
    }
    threads.shutdown();
  }
}
