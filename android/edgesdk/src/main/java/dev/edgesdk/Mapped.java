package dev.edgesdk;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.security.MessageDigest;
import java.util.zip.CRC32;
import org.jspecify.annotations.Nullable;

/**
 * A file in memory. The file may be deleted or replaced meanwhile, but must not be shortened in place.
 *
 * <p>A buffer of Java ends at 2 GiB and a bundle at 4: windows of 2 GiB begin at every GiB, so whatever has up to 1 GiB
 * lies in one of them. No descriptor stays open, so nothing is lost when a reading thread is interrupted.
 */
final class Mapped {
  private static final long STEP = 1L << 30;

  private final long size;
  private final ByteBuffer[] windows;

  private Mapped(long size, ByteBuffer[] windows) {
    this.size = size;
    this.windows = windows;
  }

  static Mapped open(File file) {
    if (file.isDirectory()) {
      throw Errors.missing(file, "is a folder", null);
    }
    if (!file.exists()) {
      throw Errors.missing(file, "does not exist", null);
    }
    if (!file.isFile()) {
      throw Errors.missing(file, "is no ordinary file", null);
    }
    try (RandomAccessFile open = new RandomAccessFile(file, "r")) {
      return of(file, open.getChannel(), 0, open.length());
    } catch (IOException cause) {
      String reason = cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage();
      throw Errors.missing(file, "can't be read (" + reason + ")", cause);
    }
  }

  /** A range of an open file. The channel may be closed afterwards. */
  static Mapped of(File file, FileChannel open, long at, long size) throws IOException {
    if (size == 0) {
      throw Errors.corrupt(file, "it is empty");
    }
    if (size > Layout.MAX_BUNDLE) {
      throw Errors.corrupt(file, "it has " + size + " bytes; the limit is " + Layout.MAX_BUNDLE);
    }
    ByteBuffer[] windows = new ByteBuffer[(int) ((size + STEP - 1) / STEP)];
    boolean interrupted = Thread.interrupted(); // a channel would close itself, as if the file couldn't be read
    try {
      for (int i = 0; i < windows.length; i++) {
        long length = Math.min(size - i * STEP, Integer.MAX_VALUE);
        windows[i] = open.map(FileChannel.MapMode.READ_ONLY, at + i * STEP, length);
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
    return new Mapped(size, windows);
  }

  long size() {
    return size;
  }

  /** A read-only view, or null when it doesn't fit into one buffer. */
  @Nullable ByteBuffer view(long at, long length) {
    ByteBuffer window = windows[(int) Math.min(at / STEP, windows.length - 1)].duplicate();
    long from = at - Math.min(at / STEP, windows.length - 1) * STEP;
    if (from + length > window.capacity()) {
      return null;
    }
    window.limit((int) (from + length)).position((int) from);
    return window.slice().asReadOnlyBuffer();
  }

  /** A copy of {@code length} bytes, or of fewer where the file ends. */
  byte[] bytes(long at, int length) {
    byte[] copy = new byte[(int) Math.max(0, Math.min(length, size - at))];
    if (copy.length > 0) {
      ByteBuffer window = windows[(int) (at / STEP)].duplicate();
      window.position((int) (at % STEP));
      window.get(copy);
    }
    return copy;
  }

  /** SHA-256 and CRC-32 of a range, in one pass. */
  void digest(long at, long length, MessageDigest sha, CRC32 crc) {
    for (long done = 0; done < length; ) {
      byte[] chunk = bytes(at + done, (int) Math.min(length - done, 1 << 18));
      sha.update(chunk);
      crc.update(chunk, 0, chunk.length);
      done += chunk.length;
    }
  }
}
