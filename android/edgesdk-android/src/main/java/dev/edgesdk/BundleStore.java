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
import java.util.HashSet;
import java.util.Set;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;

/**
 * Bundles that had to be unpacked, in one folder: {@code HASH.edge}, and {@code NAME.key}, which says what a name's hash
 * is. Both appear complete or not at all, so two processes may fill the folder at once: the second finds, or replaces
 * with the same bytes, what the first wrote.
 */
class BundleStore {
  private static final Logger LOG = Logger.getLogger("dev.edgesdk");
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
   * @throws EdgeException {@code disk_full}, {@code not_writable}, {@code bundle_missing}: the source breaks off; nothing
   *     is left behind then
   */
  File keep(String name, String stamp, long size, Opener source) {
    File key = new File(home, name(name) + ".key");
    String[] known = read(key);
    if (known.length == 3 && !stamp.isEmpty() && known[0].equals(stamp)) {
      File kept = file(known[1]);
      if (String.valueOf(kept.length()).equals(known[2])) {
        used(kept);
        return kept;
      }
    }
    if (!home.isDirectory() && !home.mkdirs() && !home.isDirectory()) {
      throw Errors.unwritable(home, new IOException("the folder can't be made"));
    }
    if (size > free()) {
      sweep();
    }
    if (size > free()) {
      throw Errors.unwritable(
          home, new IOException("No space left on device: " + size + " bytes are needed, " + free() + " are free"));
    }
    File kept = copy(name, source);
    String hash = kept.getName().replace(".edge", "");
    write(key, stamp + "\n" + hash + "\n" + kept.length());
    sweep();
    return kept;
  }

  private File file(String hash) {
    return new File(home, hash + ".edge");
  }

  /** Whoever gets the name of a file opens it soon: until then nobody may take it for an old one. */
  private static void used(File kept) {
    if (!kept.setLastModified(System.currentTimeMillis())) {
      LOG.log(Level.FINE, "{0} keeps its old time", kept);
    }
  }

  /** Forgets a file that {@link #holds} no more what it held. */
  void drop(File kept) {
    remove(kept);
  }

  /** Whether the file still has the content that it was kept with: its name says so. */
  boolean holds(File kept) {
    MessageDigest sha = Sha256.start();
    try (FileInputStream in = new FileInputStream(kept)) {
      byte[] chunk = new byte[1 << 16];
      for (int n = in.read(chunk); n >= 0; n = in.read(chunk)) {
        sha.update(chunk, 0, n);
      }
    } catch (IOException gone) {
      return false;
    }
    return file(Sha256.hex(sha.digest())).equals(kept);
  }

  private File copy(String name, Opener source) {
    File part = part();
    try {
      MessageDigest sha = Sha256.start();
      try (InputStream in = source.open(); OutputStream out = create(part)) {
        byte[] chunk = new byte[1 << 16];
        for (int n = read(in, chunk, name); n >= 0; n = read(in, chunk, name)) {
          sha.update(chunk, 0, n);
          out.write(chunk, 0, n);
        }
        sync(out);
      }
      File kept = file(Sha256.hex(sha.digest()));
      move(part, kept);
      return kept;
    } catch (IOException cause) {
      throw Errors.unwritable(part, cause);
    } finally {
      remove(part);
    }
  }

  /** A source that breaks off isn't a folder that can't be written. */
  private static int read(InputStream in, byte[] chunk, String name) {
    try {
      return in.read(chunk);
    } catch (IOException cause) {
      throw new EdgeException(
          "bundle_missing",
          name + " can't be read to its end: " + cause.getMessage() + ".",
          "Whoever provides it stopped half-way.",
          "Open it again.",
          cause);
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

  /**
   * Removes parts of processes that were killed, and contents that no name has any more, or only names whose content is
   * read each time (what users chose: it would pile up). All only when they are old:
   * another process, or another bundle of the same name, may be about to rename or to open a young one. Those that have
   * an old one mapped keep it.
   */
  private void sweep() {
    File[] all = home.listFiles();
    if (all == null) {
      return;
    }
    Set<String> named = new HashSet<>();
    for (File one : all) {
      String[] known = one.getName().endsWith(".key") ? read(one) : new String[0];
      if (known.length == 3 && !known[0].isEmpty()) {
        named.add(known[1] + ".edge");
      } else if (known.length == 3 && stale(one)) {
        remove(one);
      }
    }
    for (File one : all) {
      boolean content = one.getName().endsWith(".edge") && !named.contains(one.getName());
      if (stale(one) && (content || one.getName().endsWith(".part"))) {
        remove(one);
      }
    }
  }

  private static boolean stale(File file) {
    return System.currentTimeMillis() - file.lastModified() > STALE_MS;
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
