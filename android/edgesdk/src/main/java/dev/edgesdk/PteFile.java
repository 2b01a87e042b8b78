package dev.edgesdk;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.jspecify.annotations.Nullable;

/**
 * The head of an ExecuTorch program. The Android library checks little before it follows the file's offsets, so a file
 * that is cut short or of another kind is refused here.
 *
 * <p>Layout: {@code exir/_serialize/_program.py} of executorch 1.5.1.
 */
final class PteFile {
  private static final int HEAD = 32;
  private static final short IDENTIFIER = 0x5445; // "ET"; two digits follow
  private static final int EXTENDED = 0x3030_6865; // "eh00"

  private PteFile() {}

  /**
   * Looks at the head.
   *
   * @throws EdgeException {@code bad_pte}
   */
  static void check(ByteBuffer file, String name) {
    String problem = problem(file.duplicate().order(ByteOrder.LITTLE_ENDIAN));
    if (problem != null) {
      throw EtErrors.bad(name, problem, null);
    }
  }

  private static @Nullable String problem(ByteBuffer file) {
    long size = file.remaining();
    int at = file.position();
    if (size < HEAD) {
      return "it has only " + size + " bytes";
    }
    if (file.getShort(at + 4) != IDENTIFIER) {
      return "its first bytes aren't those of a program";
    }
    long program = size;
    if (file.getInt(at + 8) == EXTENDED) {
      program = file.getLong(at + 16);
      long segments = file.getLong(at + 24);
      int length = file.getInt(at + 12);
      boolean apart = segments == 0 || (segments >= program && segments <= size);
      if (program < HEAD || program > size || !apart) {
        return "it should be longer than " + size + " bytes";
      }
      if (length >= 32 && size >= HEAD + 8) {
        long bytes = file.getLong(at + 32);
        if (bytes < 0 || bytes > size - segments) {
          return "it should be longer than " + size + " bytes";
        }
      }
    }
    long root = file.getInt(at) & 0xffff_ffffL;
    return root < 8 || root > program - 4 ? "its table of contents lies outside" : null;
  }
}
