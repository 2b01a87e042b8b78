package dev.edgesdk;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** The canonical ZIP: every byte outside the payloads follows from names, sizes, CRCs and alignments. */
final class Layout {
  /** Alignment of payloads that are mapped: the greatest page size of Android and iOS devices. */
  static final int PAGE = 16384;
  /** Alignment of everything else. */
  static final int SMALL = 64;
  /** ZIP without the ZIP64 extension ends here. */
  static final long MAX_BUNDLE = (1L << 32) - 2;

  static final int END = 22;
  static final int END_MAGIC = 0x06054b50;

  // Larger than any bundle, and small enough that 4096 of them don't overflow.
  private static final long TOO_LARGE = 1L << 40;

  final List<Entry> entries = new ArrayList<>();
  private long names;

  private Layout() {}

  /**
   * Lays a bundle out.
   *
   * @param manifest its table gives names, sizes and CRCs
   * @param length of {@code manifest.json}, whose CRC is {@code crc}
   * @param signature the CRC of {@code signature.json}; null for an unsigned bundle
   */
  static Layout of(Manifest manifest, long length, long crc, @Nullable Long signature) {
    Layout layout = new Layout();
    Set<String> aligned = Rules.aligned(manifest);
    layout.add(Manifest.FILE, length, crc, SMALL);
    boolean open = signature != null;
    for (FileEntry file : manifest.files()) {
      if (open && Manifest.SIGNATURE.compareTo(file.name()) < 0) {
        layout.add(Manifest.SIGNATURE, SignatureFile.SIZE, signature, SMALL);
        open = false;
      }
      layout.add(file.name(), file.size(), file.crc32(), aligned.contains(file.name()) ? PAGE : SMALL);
    }
    if (open) {
      layout.add(Manifest.SIGNATURE, SignatureFile.SIZE, signature, SMALL);
    }
    return layout;
  }

  private void add(String name, long size, long crc, int align) {
    entries.add(new Entry(name, Math.min(size, TOO_LARGE), crc, align, directory()));
    names += name.length();
  }

  @Nullable Entry find(String name) {
    for (Entry entry : entries) {
      if (entry.name.equals(name)) {
        return entry;
      }
    }
    return null;
  }

  /** Offset of the central directory: the end of the last entry. */
  long directory() {
    return entries.isEmpty() ? 0 : entries.get(entries.size() - 1).end();
  }

  long size() {
    return directory() + (long) entries.size() * Entry.CENTRAL + names + END;
  }

  /** The central directory and the end record. */
  byte[] tail() {
    ByteBuffer out = Entry.little((int) (size() - directory()));
    for (Entry entry : entries) {
      out.put(entry.central());
    }
    int length = out.position();
    short count = (short) entries.size();
    out.putInt(END_MAGIC).putShort((short) 0).putShort((short) 0).putShort(count).putShort(count);
    out.putInt(length).putInt((int) directory()).putShort((short) 0);
    return out.array();
  }
}
