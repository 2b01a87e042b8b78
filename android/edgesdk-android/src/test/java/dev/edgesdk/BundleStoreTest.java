package dev.edgesdk;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Unpacked once, whole or not at all. */
public final class BundleStoreTest {
  @Rule public final TemporaryFolder folder = new TemporaryFolder();

  private static byte[] bytes(int seed, int length) {
    byte[] made = new byte[length];
    new Random(seed).nextBytes(made);
    return made;
  }

  private File home() {
    return new File(folder.getRoot(), "store");
  }

  private List<String> names(String suffix) {
    String[] all = home().list((dir, name) -> name.endsWith(suffix));
    return all == null ? List.of() : List.of(all);
  }

  @Test
  public void theContentIsReadOnceForAStamp() throws IOException {
    BundleStore store = new BundleStore(home());
    byte[] wanted = bytes(1, 200_000);
    File kept = store.keep("asset:a", "1", wanted.length, () -> new ByteArrayInputStream(wanted));
    assertArrayEquals(wanted, Files.readAllBytes(kept.toPath()));
    assertEquals(kept, store.keep("asset:a", "1", -1, () -> {
      throw new AssertionError("read again");
    }));
    assertTrue(kept.delete());
    assertEquals(kept, store.keep("asset:a", "1", -1, () -> new ByteArrayInputStream(wanted)));
    assertTrue(kept.isFile());
  }

  @Test
  public void anUpdateOfTheAppReplacesTheContentAndRemovesTheOld() throws IOException {
    BundleStore store = new BundleStore(home());
    store.keep("asset:a", "1", -1, () -> new ByteArrayInputStream(bytes(1, 100)));
    store.keep("asset:b", "1", -1, () -> new ByteArrayInputStream(bytes(2, 100)));
    store.keep("asset:a", "2", -1, () -> new ByteArrayInputStream(bytes(2, 100)));
    assertEquals("the same content is kept once", 1, names(".edge").size());
    File kept = store.keep("asset:a", "3", -1, () -> new ByteArrayInputStream(bytes(3, 100)));
    assertEquals("the other name still has the old content", 2, names(".edge").size());
    assertArrayEquals(bytes(3, 100), Files.readAllBytes(kept.toPath()));
  }

  @Test
  public void aDiskThatFillsUpLeavesNothing() {
    BundleStore store = new BundleStore(home()) {
      @Override
      OutputStream create(File file) throws IOException {
        return new FilterOutputStream(super.create(file)) {
          private int written;

          @Override
          public void write(byte[] data, int from, int length) throws IOException {
            written += length;
            if (written > 100_000) {
              throw new IOException("write failed: ENOSPC (No space left on device)");
            }
            out.write(data, from, length);
          }
        };
      }
    };
    EdgeException error = assertThrows(EdgeException.class, () ->
        store.keep("asset:a", "1", -1, () -> new ByteArrayInputStream(bytes(1, 300_000))));
    assertEquals("disk_full", error.code());
    assertArrayEquals(new String[0], home().list());
  }

  @Test
  public void tooLittleSpaceIsSaidBeforeAnythingIsWritten() {
    EdgeException error = assertThrows(EdgeException.class, () ->
        new BundleStore(home()).keep("asset:a", "1", Long.MAX_VALUE, () -> {
          throw new AssertionError("read");
        }));
    assertEquals("disk_full", error.code());
    assertTrue(error.message(), error.message().contains("bytes are needed"));
  }

  @Test
  public void aFileInPlaceOfTheFolderIsAnError() throws IOException {
    Files.writeString(home().toPath(), "x");
    EdgeException error = assertThrows(EdgeException.class, () ->
        new BundleStore(home()).keep("asset:a", "1", -1, () -> new ByteArrayInputStream(bytes(1, 10))));
    assertEquals("not_writable", error.code());
  }

  @Test
  public void partsOfKilledProcessesAreRemoved() throws IOException {
    assertTrue(home().mkdirs());
    File old = new File(home(), "old.part");
    File young = new File(home(), "young.part");
    Files.writeString(old.toPath(), "x");
    Files.writeString(young.toPath(), "x");
    assertTrue(old.setLastModified(System.currentTimeMillis() - 7_200_000));
    new BundleStore(home()).keep("asset:a", "1", -1, () -> new ByteArrayInputStream(bytes(1, 10)));
    assertFalse(old.exists());
    assertTrue(young.exists());
  }

  @Test
  public void processesThatStartAtOnceAllGetTheWholeFile() throws Exception {
    List<Process> started = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      ProcessBuilder builder = new ProcessBuilder(
          System.getProperty("java.home") + "/bin/java", "-Xshare:auto", "-cp",
          new File("target/classes") + File.pathSeparator + new File("target/test-classes") + File.pathSeparator
              + new File("../edgesdk/target/classes"),
          Child.class.getName(), home().getPath());
      started.add(builder.redirectErrorStream(true).start());
    }
    for (Process process : started) {
      String said = new String(process.getInputStream().readAllBytes());
      assertTrue(process.waitFor(60, TimeUnit.SECONDS));
      assertEquals(said, 0, process.exitValue());
    }
    assertEquals(List.of(), names(".part"));
    assertEquals(1, names(".edge").size());
  }

  /** Another process of the app. */
  public static final class Child {
    private Child() {}

    /** Unpacks a content many times, slowly. */
    public static void main(String[] args) throws IOException {
      byte[] wanted = bytes(5, 1_000_000);
      for (int round = 0; round < 20; round++) {
        InputStream slow = new ByteArrayInputStream(wanted) {
          @Override
          public synchronized int read(byte[] into, int from, int length) {
            Thread.yield();
            return super.read(into, from, Math.min(length, 8000));
          }
        };
        File kept = new BundleStore(new File(args[0])).keep("asset:a", "", -1, () -> slow);
        if (!java.util.Arrays.equals(wanted, Files.readAllBytes(kept.toPath()))) {
          throw new AssertionError("round " + round + " found half a file");
        }
      }
    }
  }
}
