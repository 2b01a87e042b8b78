package dev.edgesdk;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.FileOutputStream;
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

  /** Nobody may lose a file under his hands: what an update replaced goes when it is old. */
  @Test
  public void anUpdateOfTheAppReplacesTheContentAndRemovesTheOld() throws IOException {
    BundleStore store = new BundleStore(home());
    File first = store.keep("asset:a", "1", -1, () -> new ByteArrayInputStream(bytes(1, 100)));
    store.keep("asset:b", "1", -1, () -> new ByteArrayInputStream(bytes(2, 100)));
    File kept = store.keep("asset:a", "2", -1, () -> new ByteArrayInputStream(bytes(2, 100)));
    assertEquals("the same content is kept once", 2, names(".edge").size());
    assertTrue("somebody may be about to open it", first.isFile());
    age(first);
    age(kept);
    store.keep("asset:a", "3", -1, () -> new ByteArrayInputStream(bytes(3, 100)));
    assertFalse("a new part is written, and the old content goes", first.exists());
    assertTrue("the other name still has that content", kept.isFile());
    assertEquals(2, names(".edge").size());
  }

  @Test
  public void whatWasJustHandedOutIsNotOld() throws IOException {
    BundleStore store = new BundleStore(home());
    File old = store.keep("model:m", "1", -1, () -> new ByteArrayInputStream(bytes(1, 100)));
    age(old);
    assertEquals(old, store.keep("model:m", "1", -1, () -> new ByteArrayInputStream(bytes(9, 100))));
    store.keep("model:m", "2", -1, () -> new ByteArrayInputStream(bytes(2, 100)));
    assertArrayEquals(bytes(1, 100), Files.readAllBytes(old.toPath()));
  }

  /** What users chose is read each time it is opened: kept, it would fill the phone. */
  @Test
  public void whatIsReadEachTimeIsNotKeptForever() throws IOException {
    BundleStore store = new BundleStore(home());
    File chosen = store.keep("content://app/1", "", -1, () -> new ByteArrayInputStream(bytes(1, 100)));
    File asset = store.keep("asset:a", "1", -1, () -> new ByteArrayInputStream(bytes(2, 100)));
    for (File one : home().listFiles()) {
      age(one);
    }
    File next = store.keep("content://app/2", "", -1, () -> new ByteArrayInputStream(bytes(3, 100)));
    assertFalse(chosen.exists());
    assertTrue(asset.isFile());
    assertTrue(next.isFile());
    assertEquals("and its name goes with it", 2, names(".key").size());
    assertEquals(chosen, store.keep("content://app/1", "", -1, () -> new ByteArrayInputStream(bytes(1, 100))));
  }

  private static void age(File file) {
    assertTrue(file.setLastModified(System.currentTimeMillis() - 7_200_000));
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

  /** The system's own words: /dev/full answers every write with "no space". */
  @Test
  public void aDiskThatIsFullIsTold() {
    BundleStore store = new BundleStore(home()) {
      @Override
      OutputStream create(File file) throws IOException {
        return new FileOutputStream("/dev/full");
      }
    };
    EdgeException error = assertThrows(EdgeException.class, () ->
        store.keep("asset:a", "1", -1, () -> new ByteArrayInputStream(bytes(1, 10))));
    assertEquals("disk_full", error.code());
    assertEquals("Free some space.", error.fix());
    assertArrayEquals(new String[0], home().list());
  }

  @Test
  public void aSourceThatBreaksOffIsNoFullDisk() {
    EdgeException error = assertThrows(EdgeException.class, () ->
        new BundleStore(home()).keep("content://some.app/far", "", -1, () -> new InputStream() {
          private int left = 3;

          @Override
          public int read() {
            throw new AssertionError("one by one");
          }

          @Override
          public int read(byte[] into, int from, int length) throws IOException {
            if (left-- == 0) {
              throw new IOException("connection reset");
            }
            return length;
          }
        }));
    assertEquals("bundle_missing", error.code());
    assertTrue(error.message(), error.message().startsWith("content://some.app/far can't be read to its end: conn"));
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
    together(5, 5, 5);
    assertEquals(1, names(".edge").size());
  }

  /** An app that opens two versions of a bundle, each in a process of its own: none takes the other's file away. */
  @Test
  public void processesWithTwoVersionsOfANameEachGetTheirOwn() throws Exception {
    together(5, 6, 5);
    assertEquals(2, names(".edge").size());
  }

  private void together(int... seeds) throws Exception {
    List<Process> started = new ArrayList<>();
    for (int seed : seeds) {
      ProcessBuilder builder = new ProcessBuilder(
          System.getProperty("java.home") + "/bin/java", "-Xshare:auto", "-cp",
          new File("target/classes") + File.pathSeparator + new File("target/test-classes") + File.pathSeparator
              + new File("../edgesdk/target/classes"),
          Child.class.getName(), home().getPath(), String.valueOf(seed));
      started.add(builder.redirectErrorStream(true).start());
    }
    for (Process process : started) {
      String said = new String(process.getInputStream().readAllBytes());
      assertTrue(process.waitFor(60, TimeUnit.SECONDS));
      assertEquals(said, 0, process.exitValue());
    }
    assertEquals(List.of(), names(".part"));
  }

  /** Another process of the app. */
  public static final class Child {
    private Child() {}

    /** Unpacks a content many times, slowly. */
    public static void main(String[] args) throws IOException {
      byte[] wanted = bytes(Integer.parseInt(args[1]), 1_000_000);
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
          throw new AssertionError("round " + round + " found half a file, or another");
        }
      }
    }
  }
}
