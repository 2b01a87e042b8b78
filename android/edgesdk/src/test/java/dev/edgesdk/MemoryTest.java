package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Many threads, many calls, many loads: right answers, and native memory does not grow. Each in a process of its own whose
 * Java heap is of fixed size and touched from the start, so that what grows is native memory.
 */
final class MemoryTest {
  private static final int THREADS = 8;
  private static final int CALLS = 1000;

  @ParameterizedTest
  @EnumSource
  void eightThreadsOnOneSessionAndOnEight(Engine engine) throws Exception {
    flat(engine, "calls", "8 threads x 1,000 calls on one session, then on eight");
  }

  /** what a closed session held is given back at once. */
  @ParameterizedTest
  @EnumSource
  void pitfall_a_09_loadingAgainAndAgainTakesNoMemory(Engine engine) throws Exception {
    flat(engine, "loads", "100 loads of 1.5 MB of weights, a call each");
  }

  /** Works twice to warm up; then resident memory may not grow by more than a hundredth. */
  private static void flat(Engine engine, String work, String text) throws Exception {
    long[] kilobytes = child(engine, work);
    long before = kilobytes[kilobytes.length - 2];
    long after = kilobytes[kilobytes.length - 1];
    double percent = 100.0 * (after - before) / before;
    Figures.say(String.format(
        Locale.ROOT, "memory %s, %s: %+.2f %% (%,d to %,d kB; after each round: %s)", engine.name().toLowerCase(Locale.ROOT),
        text, percent, before, after, Arrays.toString(kilobytes)));
    assertTrue(percent <= 1, "resident memory: " + Arrays.toString(kilobytes) + " kB");
  }

  private static long[] child(Engine engine, String work) throws Exception {
    List<String> command = new ArrayList<>(List.of(
        new File(System.getProperty("java.home"), "bin/java").getPath(), "-Xms64m", "-Xmx64m", "-XX:+AlwaysPreTouch",
        "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path")));
    for (String property : new String[] {"java.library.path", "edgesdk.bundles", "edgesdk.root"}) {
      command.add("-D" + property + "=" + System.getProperty(property));
    }
    command.addAll(List.of(MemoryTest.class.getName(), engine.name(), work));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), said);
    String last = said.substring(said.lastIndexOf("rounds ") + 7).trim();
    return Arrays.stream(last.split(" ")).mapToLong(Long::parseLong).toArray();
  }

  /** The process of its own: prints the resident memory after each round, in kB. */
  public static void main(String[] arguments) throws Exception {
    Engine engine = Engine.valueOf(arguments[0]);
    Callable<?> work = arguments[1].equals("calls") ? calls(engine) : loads(engine);
    List<Long> rounds = new ArrayList<>();
    // The JVM itself settles late on a busy machine: compiled code, threads' stacks.
    while (rounds.size() < 3 || (rounds.size() < 8 && grew(rounds))) {
      work.call();
      rounds.add(settled());
    }
    StringBuilder text = new StringBuilder("rounds");
    rounds.forEach(one -> text.append(' ').append(one));
    System.out.println(text);
    System.out.flush();
    Runtime.getRuntime().halt(0); // the engines' own threads would keep the process
  }

  private static boolean grew(List<Long> rounds) {
    return rounds.get(rounds.size() - 1) > rounds.get(rounds.size() - 2) * 1.01;
  }

  private static long settled() throws IOException, InterruptedException {
    for (int i = 0; i < 3; i++) {
      System.gc();
      Thread.sleep(50);
    }
    return resident();
  }

  static long resident() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) {
        return Long.parseLong(line.replaceAll("\\D", ""));
      }
    }
    throw new IOException("/proc/self/status has no VmRSS");
  }

  private static Callable<?> calls(Engine engine) {
    EdgeBundle bundle = engine.bundle("pair");
    return () -> {
      float[][] wanted = new float[THREADS + 1][];
      try (Session shared = bundle.session(Engine.ONE)) {
        for (int rows = 1; rows <= THREADS; rows++) {
          wanted[rows] = shared.run(Engine.pair(rows)).get("output").floats();
        }
        hammer(() -> shared, wanted, false);
        hammer(() -> bundle.session(Engine.ONE), wanted, true);
      }
      return null;
    };
  }

  private static Callable<?> loads(Engine engine) {
    String variant = engine == Engine.EXECUTORCH ? "executorch-xnnpack-none" : engine.name().toLowerCase(Locale.ROOT) + "-none";
    EdgeBundle bundle = EdgeBundle.open(Made.bundle("zoo-digit"));
    Map<String, Tensor> inputs = Map.of("image", Tensor.allocate(DType.FLOAT32, 1, 1, 28, 28));
    return () -> {
      for (int i = 0; i < 100; i++) {
        try (Session session = bundle.session(Engine.ONE.withVariant(variant))) {
          session.run(inputs);
        }
      }
      return null;
    };
  }

  private static void hammer(Callable<Session> source, float[][] wanted, boolean close) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    List<Future<?>> running = new ArrayList<>();
    for (int t = 0; t < THREADS; t++) {
      int rows = t + 1;
      running.add(threads.submit(() -> {
        Session session = source.call();
        Map<String, Tensor> inputs = Engine.pair(rows);
        Map<String, Tensor> outputs = Map.of("output", Tensor.allocate(DType.FLOAT32, rows, 4));
        for (int i = 0; i < CALLS; i++) {
          session.run(inputs, outputs);
          if (!Arrays.equals(wanted[rows], outputs.get("output").floats())) {
            throw new AssertionError("call " + i + " on " + rows + " rows gave another answer");
          }
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
