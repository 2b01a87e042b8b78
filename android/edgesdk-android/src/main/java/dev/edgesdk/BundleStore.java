package dev.edgesdk;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.SecureRandom;
import org.jspecify.annotations.Nullable;

/**
 * Bundles that had to be unpacked, in one folder: {@code HASH.edge}, and {@code NAME.key}, which says what a name's hash
 * is. Both appear complete or not at all, so two processes may fill the folder at once: the second finds, or replaces
 * with the same bytes, what the first wrote.
 */
class BundleStore {
  private static final long STALE_MS = 3_600_000;

  /** Where the bytes come from, when they are needed. */
  interface Opener {
    InputStream open() throws IOException;
  }

  private final File home;

  BundleStore(File home) {
    this.home = home;
  }

  /** How a file is written; tests give a disk that fills up. */
  OutputStream create(File file) throws IOException {
    return new FileOutputStream(file);
  }

  /** Bytes that may still be written. */
  long free() {
    return home.getUsableSpace();
  }

  /**
   * The file with the content of {@code name}.
   *
   * @param stamp changes when the content may have; empty: read it each time
   * @param size bytes to come, -1 when unknown
   * @throws EdgeException {@code disk_full}, {@code not_writable}; nothing is left behind then
   */
  File keep(String name, String stamp, long size, Opener source) {
    File key = new File(home, name(name) + ".key");
    String[] known = read(key);
    if (known.length == 3 && !stamp.isEmpty() && known[0].equals(stamp)) {
      File kept = new File(home, known[1] + ".edge");
      if (String.valueOf(kept.length()).equals(known[2])) {
        return kept;
      }
    }
    if (!home.isDirectory() && !home.mkdirs() && !home.isDirectory()) {
      throw Errors.unwritable(home, new IOException("the folder can't be made"));
    }
    sweep();
    if (size > free()) {
      throw Errors.unwritable(
          home, new IOException("No space left on device: " + size + " bytes are needed, " + free() + " are free"));
    }
    File kept = copy(source);
    String hash = kept.getName().replace(".edge", "");
    write(key, stamp + "\n" + hash + "\n" + kept.length());
    if (known.length == 3 && !known[1].equals(hash)) {
      forget(known[1]);
    }
    return kept;
  }

  /** Whether the file still has that content. */
  boolean holds(File kept, String sha256) {
    MessageDigest sha = Sha256.start();
    try (FileInputStream in = new FileInputStream(kept)) {
      byte[] chunk = new byte[1 << 16];
      for (int n = in.read(chunk); n >= 0; n = in.read(chunk)) {
        sha.update(chunk, 0, n);
      }
    } catch (IOException gone) {
      return false;
    }
    return Sha256.hex(sha.digest()).equals(sha256);
  }

  private File copy(Opener source) {
    File part = part();
    try {
      MessageDigest sha = Sha256.start();
      try (InputStream in = source.open(); OutputStream out = create(part)) {
        byte[] chunk = new byte[1 << 16];
        for (int n = in.read(chunk); n >= 0; n = in.read(chunk)) {
          sha.update(chunk, 0, n);
          out.write(chunk, 0, n);
        }
        sync(out);
      }
      File kept = new File(home, Sha256.hex(sha.digest()) + ".edge");
      move(part, kept);
      return kept;
    } catch (IOException cause) {
      throw Errors.unwritable(part, cause);
    } finally {
      remove(part);
    }
  }

  private void write(File to, String text) {
    File part = part();
    try {
      try (OutputStream out = create(part)) {
        out.write(text.getBytes(StandardCharsets.UTF_8));
        sync(out);
      }
      move(part, to);
    } catch (IOException cause) {
      throw Errors.unwritable(to, cause);
    } finally {
      remove(part);
    }
  }

  /** Before the rename, or a phone that loses power keeps the name without the bytes. */
  private static void sync(OutputStream out) throws IOException {
    out.flush();
    if (out instanceof FileOutputStream) {
      ((FileOutputStream) out).getFD().sync();
    }
  }

  private static void move(File from, File to) throws IOException {
    if (!from.renameTo(to)) {
      throw new IOException("it can't be renamed from " + from.getName());
    }
  }

  private File part() {
    byte[] random = new byte[8];
    new SecureRandom().nextBytes(random);
    return new File(home, Sha256.hex(random) + ".part");
  }

  /** Parts of processes that were killed. Those of living ones are younger. */
  private void sweep() {
    File[] parts = home.listFiles((folder, name) -> name.endsWith(".part"));
    for (File part : parts == null ? new File[0] : parts) {
      if (System.currentTimeMillis() - part.lastModified() > STALE_MS) {
        remove(part);
      }
    }
  }

  /** Deletes a content that no name has any more. Processes that have it mapped keep it. */
  private void forget(String hash) {
    File[] keys = home.listFiles((folder, name) -> name.endsWith(".key"));
    for (File key : keys == null ? new File[0] : keys) {
      String[] known = read(key);
      if (known.length == 3 && known[1].equals(hash)) {
        return;
      }
    }
    remove(new File(home, hash + ".edge"));
  }

  private static void remove(@Nullable File file) {
    if (file != null && file.exists() && !file.delete()) {
      file.deleteOnExit();
    }
  }

  private static String name(String name) {
    MessageDigest sha = Sha256.start();
    sha.update(name.getBytes(StandardCharsets.UTF_8));
    return Sha256.hex(sha.digest()).substring(0, 32);
  }

  /** Stamp, hash and size; nothing when there is no such file. */
  private static String[] read(File key) {
    if (!key.isFile()) {
      return new String[0];
    }
    try (FileInputStream in = new FileInputStream(key)) {
      ByteArrayOutputStream all = new ByteArrayOutputStream();
      byte[] chunk = new byte[1024];
      for (int n = in.read(chunk); n >= 0; n = in.read(chunk)) {
        all.write(chunk, 0, n);
      }
      return new String(all.toByteArray(), StandardCharsets.UTF_8).split("\n", -1);
    } catch (IOException gone) {
      return new String[0];
    }
  }
}
