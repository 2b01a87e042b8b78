package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/** One engine. It may be absent from the app; {@link #missing()} then says so. */
public abstract class EdgeRuntime {
  EdgeRuntime() {}

  /** The name in the manifest: {@code onnx}. */
  public abstract String name();

  /** How its files end: {@code .onnx}. */
  public abstract String suffix();

  /** Null when the engine is in the app and starts, else a sentence that says what is missing. */
  public abstract @Nullable String missing();

  /** The engine's version; only when it isn't {@link #missing()}. Empty when the engine doesn't tell it. */
  public abstract String version();

  /** The line of a Gradle file that brings the engine; an empty string when there is none. */
  abstract String dependency();

  /** What starts an engine's native libraries; it names the engine's classes, which may be absent. */
  interface Start {
    void run();
  }

  /**
   * Null when an engine's class is there and its native libraries load, else a sentence.
   *
   * @param engine its name, for people
   * @param probe the class that tells whether the engine is in the app
   * @param libraries its native libraries, for people, with their verb
   */
  static @Nullable String absence(String engine, String probe, String libraries, Start start) {
    try {
      Class.forName(probe, false, EdgeRuntime.class.getClassLoader());
    } catch (ClassNotFoundException cause) {
      return engine + " is not in the app: the class " + probe + " is absent.";
    }
    try {
      start.run();
      return null;
    } catch (LinkageError | RuntimeException cause) {
      Throwable root = cause;
      while (root.getCause() != null) {
        root = root.getCause();
      }
      return libraries + " load here (os.arch " + System.getProperty("os.arch") + "): " + Words.line(root) + ".";
    }
  }

  /** Whether it has that back end. */
  boolean has(String backend) {
    return false;
  }

  /**
   * Loads a model.
   *
   * @param threads how many threads the engine may use; 0 leaves it to the engine
   * @throws EdgeException {@code load_failed}: the engine refuses the file
   */
  abstract Runner load(ModelFile model, int threads);
}
