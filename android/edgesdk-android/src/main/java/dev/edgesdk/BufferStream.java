package dev.edgesdk;

import java.io.InputStream;
import java.nio.ByteBuffer;

/** Reads a buffer from its beginning, without moving its position. */
final class BufferStream extends InputStream {
  private final ByteBuffer rest;

  BufferStream(ByteBuffer buffer) {
    rest = buffer.duplicate();
  }

  @Override
  public int read() {
    return rest.hasRemaining() ? rest.get() & 255 : -1;
  }

  @Override
  public int read(byte[] into, int from, int length) {
    if (length > 0 && !rest.hasRemaining()) {
      return -1;
    }
    int count = Math.min(length, rest.remaining());
    rest.get(into, from, count);
    return count;
  }
}
