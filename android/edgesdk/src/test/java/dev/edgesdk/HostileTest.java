package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** Every bundle of {@code tests/bundle/hostile.py} is refused with the code that Python refuses it with. */
final class HostileTest {
  private static final File FOLDER = new File(Made.BUNDLES, "hostile");

  @TestFactory
  Stream<DynamicTest> pitfall_s_03_hostileBundles() throws IOException {
    List<Object> listed = Made.list(Made.json(new File(FOLDER, "expected.json")));
    assertTrue(listed.size() >= 125, "only " + listed.size() + " bundles: the dump is incomplete");
    Figures.say("hostile bundles, each with Python's code: " + listed.size());
    return listed.stream().map(Made::map).map(one ->
        DynamicTest.dynamicTest(one.get("file") + ": " + one.get("why"), () -> check(one)));
  }

  private static void check(Map<String, Object> one) {
    File file = new File(FOLDER, (String) one.get("file"));
    List<Object> codes = Made.list(one.get("codes"));
    if (codes.isEmpty()) {
      EdgeBundle.open(file).close();
      return;
    }
    EdgeException error = assertThrows(EdgeException.class, () -> EdgeBundle.open(file));
    assertEquals(codes.get(0), error.code(), error.getMessage());
    assertTrue(error.getMessage().length() < 1000, error.getMessage());
  }

  /** A signed bundle has no byte that can change unnoticed. */
  @Test
  void everyChangedByteIsFound(@TempDir Path folder) throws IOException {
    byte[] whole = Files.readAllBytes(new File(FOLDER, "signed.edge").toPath());
    File file = folder.resolve("flipped.edge").toFile();
    int tried = 0;
    for (int at = 0; at < whole.length; at += at < 6000 ? 11 : 97) {
      byte[] flipped = whole.clone();
      flipped[at] ^= (byte) (1 << at % 8);
      Files.write(file.toPath(), flipped);
      int place = at;
      assertThrows(EdgeException.class, () -> EdgeBundle.open(file), () -> "byte " + place);
      tried++;
    }
    assertTrue(tried > 600, "only " + tried);
  }

  /** Cut, insert, overwrite anywhere: an EdgeException or the very same bytes, never another exception. */
  @Test
  void aReaderSurvivesAnyEdit(@TempDir Path folder) throws IOException {
    byte[] whole = Files.readAllBytes(new File(FOLDER, "good.edge").toPath());
    Random random = new Random(5);
    File file = folder.resolve("edited.edge").toFile();
    for (int i = 0; i < 300; i++) {
      int at = random.nextInt(random.nextBoolean() ? 3000 : whole.length);
      int cut = Math.min(random.nextInt(64), whole.length - at);
      byte[] added = new byte[1 + random.nextInt(64)];
      random.nextBytes(added);
      byte[] edited = new byte[whole.length - cut + added.length];
      System.arraycopy(whole, 0, edited, 0, at);
      System.arraycopy(added, 0, edited, at, added.length);
      System.arraycopy(whole, at + cut, edited, at + added.length, whole.length - at - cut);
      Files.write(file.toPath(), edited);
      assertThrows(EdgeException.class, () -> EdgeBundle.open(file));
    }
  }
}
