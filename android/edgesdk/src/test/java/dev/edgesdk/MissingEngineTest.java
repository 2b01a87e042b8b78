package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** An app without an engine: our classes are loaded again, by a loader that lacks the engine's. */
final class MissingEngineTest {
  private static final class Without extends ClassLoader {
    private final String lacking;

    Without(String lacking) {
      super(MissingEngineTest.class.getClassLoader());
      this.lacking = lacking;
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      if (name.startsWith(lacking)) {
        throw new ClassNotFoundException(name);
      }
      if (!name.startsWith("dev.edgesdk.")) {
        return super.loadClass(name, resolve);
      }
      Class<?> known = findLoadedClass(name);
      return known != null ? known : defined(name);
    }

    private Class<?> defined(String name) throws ClassNotFoundException {
      try (InputStream in = getResourceAsStream(name.replace('.', '/') + ".class")) {
        byte[] bytes = in.readAllBytes();
        return defineClass(name, bytes, 0, bytes.length);
      } catch (IOException cause) {
        throw new ClassNotFoundException(name, cause);
      }
    }
  }

  private static String read(Throwable error, String method) throws ReflectiveOperationException {
    return (String) error.getClass().getMethod(method).invoke(error);
  }

  @ParameterizedTest
  @CsvSource({
      "ai.onnxruntime.,pair,onnx-none,ONNX Runtime is not in the app: the class ai.onnxruntime.OrtEnvironment is absent.,"
          + "com.microsoft.onnxruntime:onnxruntime-android",
      "org.pytorch.,ts-pair,torchscript-none,PyTorch Mobile's Lite interpreter is not in the app: the class "
          + "org.pytorch.LiteModuleLoader is absent.,org.pytorch:pytorch_android_lite"})
  void pitfall_a_01_anAbsentEngineIsNamedWithItsDependency(
      String lacking, String name, String variant, String reason, String dependency)
      throws ReflectiveOperationException {
    Class<?> bundles = new Without(lacking).loadClass("dev.edgesdk.EdgeBundle");
    Object bundle = bundles.getMethod("open", File.class).invoke(null, Made.bundle(name));
    Throwable error = assertThrows(
        InvocationTargetException.class, () -> bundles.getMethod("session").invoke(bundle)).getCause();
    assertEquals("runtime_missing", read(error, "code"));
    assertTrue(read(error, "message").endsWith("pair runs here."));
    assertEquals(variant + ": " + reason, read(error, "why"));
    assertEquals("Add the engine: implementation(\"" + dependency + ":VERSION\")", read(error, "fix"));
  }

  /** The next variant is taken, and the reason is kept. */
  @Test
  void theNextEngineIsTaken() throws ReflectiveOperationException {
    Without app = new Without("org.pytorch.");
    Class<?> bundles = app.loadClass("dev.edgesdk.EdgeBundle");
    Object bundle = bundles.getMethod("open", File.class).invoke(null, Made.bundle("ts-picture"));
    Object session;
    try (Log log = new Log()) {
      session = bundles.getMethod("session").invoke(bundle);
      assertTrue(log.lines().get(0).startsWith("torchscript-none is passed over: PyTorch Mobile's Lite interpreter is not "
          + "in the app"), log.lines().toString());
    }
    assertEquals("Session(ts-picture, onnx-none)", session.toString());
    assertTrue(session.getClass().getMethod("skipped").invoke(session).toString()
        .contains("torchscript-none: PyTorch Mobile's Lite interpreter is not in the app"));
    session.getClass().getMethod("close").invoke(session);
  }
}
