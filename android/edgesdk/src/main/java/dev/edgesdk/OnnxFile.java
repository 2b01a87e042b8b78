package dev.edgesdk;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Set;
import java.util.TreeSet;

/**
 * Where an {@code .onnx} keeps its weights: read from the protobuf alone.
 *
 * <p>ONNX Runtime opens the files that external-data fields name. A bundle's model may only name files of its variant.
 */
final class OnnxFile {
  private static final int MAX_NESTING = 64;
  /** protobuf cuts a tag to 32 bits: what a longer one says above them must not hide its field from us. */
  private static final long TAG = 0xffff_ffffL;
  /** The file identifier of ONNX Runtime's own format ({@code ort.fbs}), as a big-endian number. */
  private static final int ORT = 0x4f52544d;
  private static final byte[] LOCATION = "location".getBytes(StandardCharsets.US_ASCII);

  /** Messages of onnx.proto that lead to tensors. */
  private enum Kind { MODEL, TRAINING, FUNCTION, GRAPH, NODE, ATTRIBUTE, SPARSE, TENSOR, ENTRY, OTHER }

  private static final class Message {
    final ByteBuffer data;
    final Kind kind;
    final int depth;

    Message(ByteBuffer data, Kind kind, int depth) {
      this.data = data;
      this.kind = kind;
      this.depth = depth;
    }
  }

  private final Deque<Message> open = new ArrayDeque<>();
  private final Set<String> found = new TreeSet<>();

  private OnnxFile() {}

  /**
   * The {@code location} of every external tensor of a serialised model.
   *
   * @throws BadField the bytes are no protobuf; never when the word {@code location} isn't anywhere in them
   */
  static Set<String> locations(ByteBuffer model) {
    OnnxFile file = new OnnxFile();
    if (mentions(model)) {
      file.open.push(new Message(model.duplicate(), Kind.MODEL, 0));
      while (!file.open.isEmpty()) {
        file.read(file.open.pop());
      }
    }
    return file.found;
  }

  /** Whether it is no protobuf but ONNX Runtime's own format, which names no other files. */
  static boolean isOrt(ByteBuffer model) {
    return model.remaining() >= 8 && model.duplicate().getInt(model.position() + 4) == ORT;
  }

  /** Every external tensor has this key: without it anywhere there is nothing to look for. */
  private static boolean mentions(ByteBuffer model) {
    byte[] chunk = new byte[1 << 16];
    ByteBuffer rest = model.duplicate();
    int kept = 0;
    while (rest.hasRemaining()) {
      int length = kept + Math.min(rest.remaining(), chunk.length - kept);
      rest.get(chunk, kept, length - kept);
      if (contains(chunk, length)) {
        return true;
      }
      kept = Math.min(length, LOCATION.length - 1);
      System.arraycopy(chunk, length - kept, chunk, 0, kept);
    }
    return false;
  }

  private static boolean contains(byte[] chunk, int length) {
    for (int i = 0; i + LOCATION.length <= length; i++) {
      int same = 0;
      while (same < LOCATION.length && chunk[i + same] == LOCATION[same]) {
        same++;
      }
      if (same == LOCATION.length) {
        return true;
      }
    }
    return false;
  }

  private void read(Message message) {
    if (message.depth > MAX_NESTING) {
      throw new BadField("graphs are nested deeper than " + MAX_NESTING + " levels");
    }
    ByteBuffer data = message.data;
    String key = "";
    String value = "";
    while (data.hasRemaining()) {
      Varint tag = Varint.read(data);
      int wire = (int) (tag.low & 7);
      if (wire == 0) {
        Varint.read(data);
      } else if (wire == 1 || wire == 5) {
        take(data, wire == 1 ? 8 : 4);
      } else if (wire == 2) {
        Varint size = Varint.read(data);
        ByteBuffer field = take(data, size.overflowed || size.low < 0 ? Long.MAX_VALUE : size.low);
        long number = (tag.low & TAG) >>> 3;
        Kind inner = inner(message.kind, number);
        if (inner != Kind.OTHER) {
          open.push(new Message(field, inner, message.depth + 1));
        } else if (message.kind == Kind.ENTRY && number == 1) {
          key = text(field);
        } else if (message.kind == Kind.ENTRY && number == 2) {
          value = text(field);
        }
      } else {
        throw new BadField("unknown wire type " + wire);
      }
    }
    if (key.equals("location")) {
      found.add(value);
    }
  }

  private static ByteBuffer take(ByteBuffer data, long size) {
    if (size > data.remaining()) {
      throw new BadField("a field is longer than the file");
    }
    ByteBuffer field = data.slice();
    field.limit((int) size);
    data.position(data.position() + (int) size);
    return field;
  }

  private static String text(ByteBuffer field) {
    byte[] bytes = new byte[field.remaining()];
    field.get(bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** Field numbers of onnx.proto. */
  private static Kind inner(Kind kind, long number) {
    switch (kind) {
      case MODEL:
        return number == 7 ? Kind.GRAPH : number == 20 ? Kind.TRAINING : number == 25 ? Kind.FUNCTION : Kind.OTHER;
      case TRAINING:
        return number == 1 || number == 2 ? Kind.GRAPH : Kind.OTHER;
      case FUNCTION:
        return number == 7 ? Kind.NODE : number == 11 ? Kind.ATTRIBUTE : Kind.OTHER;
      case GRAPH:
        return number == 1 ? Kind.NODE : number == 5 ? Kind.TENSOR : number == 15 ? Kind.SPARSE : Kind.OTHER;
      case NODE:
        return number == 5 ? Kind.ATTRIBUTE : Kind.OTHER;
      case ATTRIBUTE:
        return number == 5 || number == 10 ? Kind.TENSOR
            : number == 6 || number == 11 ? Kind.GRAPH
            : number == 22 || number == 23 ? Kind.SPARSE : Kind.OTHER;
      case SPARSE:
        return number == 1 || number == 2 ? Kind.TENSOR : Kind.OTHER;
      case TENSOR:
        return number == 13 ? Kind.ENTRY : Kind.OTHER;
      default:
        return Kind.OTHER;
    }
  }
}
