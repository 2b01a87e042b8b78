package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import org.junit.jupiter.api.Test;

/** An app without an engine: our classes are loaded again, by a loader that has no ONNX Runtime. */
final class MissingEngineTest {
  private static final class Without extends ClassLoader {
    Without() {
      super(MissingEngineTest.class.getClassLoader());
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      if (name.startsWith("ai.onnxruntime.")) {
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

  @Test
  void pitfall_a_01_anAbsentEngineIsNamedWithItsDependency() throws ReflectiveOperationException {
    Class<?> bundles = new Without().loadClass("dev.edgesdk.EdgeBundle");
    Object bundle = bundles.getMethod("open", File.class).invoke(null, Made.bundle("pair"));
    Throwable error = assertThrows(
        InvocationTargetException.class, () -> bundles.getMethod("session").invoke(bundle)).getCause();
    assertEquals("runtime_missing", read(error, "code"));
    assertEquals("No variant of pair runs here.", read(error, "message"));
    assertEquals(
        "onnx-none: ONNX Runtime is not in the app: the class ai.onnxruntime.OrtEnvironment is absent.",
        read(error, "why"));
    assertEquals(
        "Add the engine: implementation(\"com.microsoft.onnxruntime:onnxruntime-android:VERSION\")",
        read(error, "fix"));
  }
}
