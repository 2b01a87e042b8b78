package dev.edgesdk;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** One file of the archive, at its place; it can write the headers that belong to it. */
final class Entry {
  static final int LOCAL = 30;
  static final int CENTRAL = 46;
  static final int LOCAL_MAGIC = 0x04034b50;
  private static final int CENTRAL_MAGIC = 0x02014b50;

  // "Android ZIP Alignment Extra Field": id, length, alignment, zeros. Known to zipalign and apksig.
  private static final int PADDING_ID = 0xD935;
  static final int PADDING_HEAD = 6;
  private static final int VERSION = 20;
  private static final int MADE_BY = (3 << 8) | VERSION; // Unix, so that unzip gives plain files that can be read
  private static final int ATTRIBUTES = 0100644 << 16;
  private static final int DATE = 0x21; // 1980-01-01, the first that ZIP can say

  final String name;
  final long size;
  final long crc;
  final int align;
  /** Offset of the local header. */
  final long start;
  /** Offset of the first payload byte. */
  final long data;

  Entry(String name, long size, long crc, int align, long start) {
    this.name = name;
    this.size = size;
    this.crc = crc;
    this.align = align;
    this.start = start;
    long least = start + LOCAL + name.length() + PADDING_HEAD;
    this.data = (least + align - 1) / align * align;
  }

  long end() {
    return data + size;
  }

  byte[] local() {
    ByteBuffer out = little((int) (data - start));
    int extra = out.capacity() - LOCAL - name.length();
    out.putInt(LOCAL_MAGIC).putShort((short) VERSION);
    common(out);
    out.putShort((short) extra).put(name.getBytes(StandardCharsets.US_ASCII));
    out.putShort((short) PADDING_ID).putShort((short) (extra - 4)).putShort((short) align);
    return out.array();
  }

  byte[] central() {
    ByteBuffer out = little(CENTRAL + name.length());
    out.putInt(CENTRAL_MAGIC).putShort((short) MADE_BY).putShort((short) VERSION);
    common(out);
    out.putShort((short) 0).putShort((short) 0).putShort((short) 0).putShort((short) 0);
    out.putInt(ATTRIBUTES).putInt((int) start).put(name.getBytes(StandardCharsets.US_ASCII));
    return out.array();
  }

  /** What both headers have: flags, method, time, date, CRC, two sizes, length of the name. */
  private void common(ByteBuffer out) {
    out.putShort((short) 0).putShort((short) 0).putShort((short) 0).putShort((short) DATE);
    out.putInt((int) crc).putInt((int) size).putInt((int) size).putShort((short) name.length());
  }

  static ByteBuffer little(int size) {
    return ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
  }
}
