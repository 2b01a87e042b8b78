package dev.edgesdk;

import java.nio.ByteBuffer;

/** A number of a protobuf, of at most ten bytes: 64 bits, and whether there were more. */
final class Varint {
  final long low;
  final boolean overflowed;

  private Varint(long low, boolean overflowed) {
    this.low = low;
    this.overflowed = overflowed;
  }

  static Varint read(ByteBuffer data) {
    long low = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (!data.hasRemaining()) {
        throw new BadField("it ends within a number");
      }
      int digit = data.get();
      low |= (long) (digit & 0x7f) << shift;
      if (digit >= 0) {
        return new Varint(low, shift == 63 && digit > 1);
      }
    }
    throw new BadField("a number has more than ten bytes");
  }
}
