package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.function.Executable;

/** What Python made for these tests, and how they read it. */
final class Made {
  static final File ROOT = new File(System.getProperty("edgesdk.root", "../.."));
  static final File BUNDLES = new File(System.getProperty("edgesdk.bundles", "target/bundles"));

  private Made() {}

  static File bundle(String name) {
    return new File(BUNDLES, name + ".edge");
  }

  static EdgeKey key(String name) throws IOException {
    return EdgeKey.fromPem(Files.readString(new File(BUNDLES, name + ".pub").toPath()));
  }

  static Object json(File file) throws IOException {
    return StrictJson.decode(Files.readAllBytes(file.toPath()));
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> map(Object value) {
    return (Map<String, Object>) value;
  }

  @SuppressWarnings("unchecked")
  static List<Object> list(Object value) {
    return (List<Object>) value;
  }

  static int whole(Object value) {
    return ((Long) value).intValue();
  }

  static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** An error of that code, with all three sentences. */
  static EdgeException fails(String code, Executable call) {
    EdgeException error = assertThrows(EdgeException.class, call);
    assertEquals(code, error.code(), error.getMessage());
    assertFalse(error.message().isEmpty() || error.why().isEmpty() || error.fix().isEmpty(), error.getMessage());
    return error;
  }
}
