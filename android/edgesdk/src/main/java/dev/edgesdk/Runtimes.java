package dev.edgesdk;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/** The engines that this library can drive, listed one by one: a shrinker can't lose them. */
public final class Runtimes {
  private static final List<EdgeRuntime> ALL =
      Collections.unmodifiableList(
          Arrays.<EdgeRuntime>asList(
              new ExecutorchRuntime(), new OnnxRuntime(), new LiteRuntime(), new NullRuntime()));

  private Runtimes() {}

  /** All of them, whether or not the engine is in the app. */
  public static List<EdgeRuntime> all() {
    return ALL;
  }

  /**
   * The runtime of that name.
   *
   * @throws EdgeException {@code unknown_runtime}; the message lists the known ones
   */
  public static EdgeRuntime find(String name) {
    List<String> known = new ArrayList<>();
    for (EdgeRuntime runtime : ALL) {
      if (runtime.name().equals(name)) {
        return runtime;
      }
      known.add(runtime.name());
    }
    throw new EdgeException(
        "unknown_runtime",
        "There is no runtime '" + name + "'.",
        Words.nearest(name, known),
        "Name one of them, or update dev.edgesdk:edgesdk.");
  }

  static boolean known(String name) {
    for (EdgeRuntime runtime : ALL) {
      if (runtime.name().equals(name)) {
        return true;
      }
    }
    return false;
  }
}
