package dev.edgesdk;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The table of contents of a {@code .ptl}, which is a ZIP. T-03: a full TorchScript archive makes the engine speak of
 * missing bytecode; here it is called what it is. Other files, and those that were cut short, are refused before the
 * engine sees them.
 */
final class PtlFile {
  private static final int END = 0x06054b50;
  private static final int END_SIZE = 22;
  private static final int LOCATOR64 = 0x07064b50;
  private static final int END64 = 0x06064b50;
  private static final int ENTRY = 0x02014b50;
  private static final int ENTRY_SIZE = 46;
  private static final int LONGEST_COMMENT = 0xffff;
  private static final int NO_16 = 0xffff;
  private static final long NO_32 = 0xffff_ffffL;

  private PtlFile() {}

  /**
   * Looks at the names in the archive.
   *
   * @throws EdgeException {@code full_torchscript}, {@code not_torchscript_lite}
   */
  static void check(ByteBuffer file, String name) {
    Set<String> names = names(file.slice().order(ByteOrder.LITTLE_ENDIAN));
    if (names == null) {
      throw LiteErrors.bad(name, "it has no readable table of contents", null);
    }
    if (names.contains("bytecode.pkl")) {
      return;
    }
    if (names.contains("constants.pkl")) {
      throw LiteErrors.full(name);
    }
    throw LiteErrors.bad(name, "it holds no model", null);
  }

  /** The entries' names without the folder that they all lie in; null when the archive is damaged. */
  private static @Nullable Set<String> names(ByteBuffer file) {
    int end = end(file);
    if (end < 0) {
      return null;
    }
    long count = file.getShort(end + 10) & NO_16;
    long at = file.getInt(end + 16) & NO_32;
    if (count == NO_16 || at == NO_32) {
      int far = end - 20;
      if (far < 0 || file.getInt(far) != LOCATOR64) {
        return null;
      }
      long end64 = file.getLong(far + 8);
      if (end64 < 0 || end64 > far - 56 || file.getInt((int) end64) != END64) {
        return null;
      }
      count = file.getLong((int) end64 + 32);
      at = file.getLong((int) end64 + 48);
    }
    return at < 0 || at > end ? null : names(file, (int) at, count, end);
  }

  private static @Nullable Set<String> names(ByteBuffer file, int at, long count, int end) {
    Set<String> names = new HashSet<>();
    for (long i = 0; i < count; i++) {
      if (at > end - ENTRY_SIZE || file.getInt(at) != ENTRY) {
        return null;
      }
      int length = file.getShort(at + 28) & NO_16;
      long next = at + (long) ENTRY_SIZE + length + (file.getShort(at + 30) & NO_16) + (file.getShort(at + 32) & NO_16);
      if (next > end) {
        return null;
      }
      byte[] name = new byte[length];
      ByteBuffer one = file.duplicate();
      one.position(at + ENTRY_SIZE);
      one.get(name);
      String text = new String(name, StandardCharsets.UTF_8);
      names.add(text.substring(text.indexOf('/') + 1));
      at = (int) next;
    }
    return names;
  }

  /** Where the ZIP's end record starts; −1 when there is none. */
  private static int end(ByteBuffer file) {
    int last = file.limit() - END_SIZE;
    for (int at = last; at >= Math.max(0, last - LONGEST_COMMENT); at--) {
      if (file.getInt(at) == END) {
        return at;
      }
    }
    return -1;
  }
}
