package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

/** Many threads, many calls, many loads: right answers, and the process does not grow. */
final class ExecutorchMemoryTest {
  private static final int THREADS = 8;
  private static final int CALLS = 1000;

  @Test
  void eightThreadsOnOneSessionAndOnEight() throws Exception {
    Session.Config one = Session.Config.DEFAULT.withThreads(1);
    try (EdgeBundle bundle = EdgeBundle.open(Made.bundle("et-pair")); Session shared = bundle.session(one)) {
      float[][] wanted = new float[THREADS + 1][];
      for (int rows = 1; rows <= THREADS; rows++) {
        wanted[rows] = shared.run(ExecutorchTest.pair(rows)).get("output").floats();
      }
      Callable<?> both = () -> {
        hammer(() -> shared, wanted, false);
        hammer(() -> bundle.session(one), wanted, true);
        return null;
      };
      flat(both);
    }
  }

  /** what a closed session held is given back at once. */
  @Test
  void pitfall_a_09_loadingAgainAndAgainTakesNoMemory() throws Exception {
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("zoo-digit"));
    Session.Config config = Session.Config.DEFAULT.withThreads(1).withVariant("executorch-xnnpack-none");
    Map<String, Tensor> inputs = Map.of("image", Tensor.allocate(DType.FLOAT32, 1, 1, 28, 28));
    Callable<?> loads = () -> {
      for (int i = 0; i < 67; i++) { // 1.5 MB of weights each, three times 67 loads
        try (Session session = bundle.session(config)) {
          session.run(inputs);
        }
      }
      return null;
    };
    flat(loads);
  }

  /** Does it twice to warm up; then the process may not grow by more than a hundredth. */
  static void flat(Callable<?> work) throws Exception {
    work.call();
    long before = 0;
    long after = Long.MAX_VALUE;
    for (int round = 0; round < 4 && after > before * 1.01; round++) { // the JVM itself settles late on a busy machine
      before = round == 0 ? settled() : after;
      work.call();
      after = settled();
    }
    assertTrue(after <= before * 1.01, "resident memory went from " + before + " to " + after + " kB");
  }

  private static long settled() throws IOException, InterruptedException {
    for (int i = 0; i < 3; i++) {
      System.gc();
      Thread.sleep(50);
    }
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) {
        return Long.parseLong(line.replaceAll("\\D", ""));
      }
    }
    throw new IOException("/proc/self/status has no VmRSS");
  }

  private static void hammer(Callable<Session> source, float[][] wanted, boolean close) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    List<Future<?>> running = new ArrayList<>();
    for (int t = 0; t < THREADS; t++) {
      int rows = t + 1;
      running.add(threads.submit(() -> {
        Session session = source.call();
        Map<String, Tensor> inputs = ExecutorchTest.pair(rows);
        Map<String, Tensor> outputs = Map.of("output", Tensor.allocate(DType.FLOAT32, rows, 4));
        for (int i = 0; i < CALLS; i++) {
          session.run(inputs, outputs);
          assertArrayEquals(wanted[rows], outputs.get("output").floats());
        }
        if (close) {
          session.close();
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
