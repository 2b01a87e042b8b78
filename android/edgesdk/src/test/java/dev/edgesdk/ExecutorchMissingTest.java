package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Apps without ExecuTorch, or with a part of it: our classes and its are loaded again, by a loader that lacks some. */
final class ExecutorchMissingTest {
  private static final String LOADER = "com.facebook.soloader.nativeloader.";

  /** Loads a native library of that name. */
  interface Library {
    boolean load(String name);
  }

  private static final class App extends ClassLoader {
    private final boolean engine;

    App(boolean engine) {
      super(ExecutorchMissingTest.class.getClassLoader());
      this.engine = engine;
    }

    /** An app with the Java classes, and with this in the place of its native libraries. */
    static App with(Library library) throws ReflectiveOperationException {
      App app = new App(true);
      Class<?> type = app.loadClass(LOADER + "NativeLoaderDelegate");
      Object delegate = Proxy.newProxyInstance(
          app, new Class<?>[] {type}, (self, method, arguments) -> library.load((String) arguments[0]));
      app.loadClass(LOADER + "NativeLoader").getMethod("init", type).invoke(null, delegate);
      return app;
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      boolean theirs = name.startsWith("org.pytorch.executorch.") || name.startsWith("com.facebook.");
      if (theirs && !engine) {
        throw new ClassNotFoundException(name);
      }
      if (!theirs && !name.startsWith("dev.edgesdk.")) {
        return super.loadClass(name, resolve);
      }
      Class<?> known = findLoadedClass(name);
      return known != null ? known : defined(name);
    }

    private Class<?> defined(String name) throws ClassNotFoundException {
      try (InputStream in = getResourceAsStream(name.replace('.', '/') + ".class")) {
        if (in == null) {
          throw new ClassNotFoundException(name);
        }
        byte[] bytes = in.readAllBytes();
        return defineClass(name, bytes, 0, bytes.length);
      } catch (IOException cause) {
        throw new ClassNotFoundException(name, cause);
      }
    }

    Object session(String bundle) throws ReflectiveOperationException {
      Class<?> bundles = loadClass("dev.edgesdk.EdgeBundle");
      Object open = bundles.getMethod("open", File.class).invoke(null, Made.bundle(bundle));
      return bundles.getMethod("session").invoke(open);
    }

    @Nullable String missing() throws ReflectiveOperationException {
      Object runtime = loadClass("dev.edgesdk.Runtimes").getMethod("find", String.class).invoke(null, "executorch");
      return (String) loadClass("dev.edgesdk.EdgeRuntime").getMethod("missing").invoke(runtime);
    }

    String failure(String bundle, String method) throws ReflectiveOperationException {
      Throwable error = assertThrows(InvocationTargetException.class, () -> session(bundle)).getCause();
      return (String) error.getClass().getMethod(method).invoke(error);
    }
  }

  @Test
  void pitfall_a_01_absentClassesAreNamedWithTheirDependency() throws ReflectiveOperationException {
    App app = new App(false);
    assertEquals("runtime_missing", app.failure("et-pair", "code"));
    assertEquals(
        "executorch-xnnpack-none: ExecuTorch is not in the app: the class org.pytorch.executorch.Module is absent.",
        app.failure("et-pair", "why"));
    assertEquals(
        "Add the engine: implementation(\"org.pytorch:executorch-android:VERSION\")", app.failure("et-pair", "fix"));
  }

  @Test
  void theNextEngineIsTakenWithTheReasonKept() throws ReflectiveOperationException {
    Object session = new App(false).session("zoo-digit");
    List<?> skipped = (List<?>) session.getClass().getMethod("skipped").invoke(session);
    assertEquals("Session(zoo-digit, onnx-none)", session.toString());
    assertTrue(skipped.size() >= 1, skipped.toString());
    assertTrue(skipped.get(0).toString().startsWith("executorch-xnnpack-none: ExecuTorch is not in the app"));
    session.getClass().getMethod("close").invoke(session);
  }

  @Test
  void pitfall_a_01_anAbsentLibraryIsNamed() throws ReflectiveOperationException {
    App app = App.with(name -> {
      System.loadLibrary("no-such-" + name);
      return true;
    });
    String reason = app.missing();
    assertTrue(
        reason != null
            && reason.startsWith("ExecuTorch's native libraries libexecutorch.so and libfbjni.so don't load here (os.arch ")
            && reason.contains("no no-such-executorch in java.library.path"),
        reason);
    assertEquals(reason, app.missing(), "a class that failed once tells less the second time");
    assertEquals("runtime_missing", app.failure("et-pair", "code"));
  }

  @Test
  void pitfall_a_01_aLibraryOfAnotherAbiIsNamed(@TempDir Path folder) throws Exception {
    byte[] bytes = Files.readAllBytes(Path.of(System.getProperty("edgesdk.jni"), "libfbjni.so"));
    bytes[18] = (byte) 183; // e_machine: AArch64
    File foreign = Files.write(folder.resolve("libexecutorch.so"), bytes).toFile();
    String reason = App.with(name -> {
      System.load(foreign.getPath());
      return true;
    }).missing();
    assertTrue(reason != null && reason.contains("libexecutorch.so: ") && reason.contains("AARCH64"), reason);
    File torn = Files.write(folder.resolve("libtorn.so"), new byte[] {1, 2, 3}).toFile();
    String other = App.with(name -> {
      System.load(torn.getPath());
      return true;
    }).missing();
    assertTrue(other != null && other.contains("libtorn.so: file too short"), other);
  }

  /** the classes call natives that the library lacks. That shows when the engine is looked for, not later. */
  @Test
  void pitfall_a_03_classesAndLibraryOfTwoReleases() throws ReflectiveOperationException {
    String reason = App.with(name -> true).missing();
    assertTrue(reason != null && reason.contains("getRegisteredBackends()"), reason);
    assertNull(Runtimes.find("executorch").missing());
  }
}
