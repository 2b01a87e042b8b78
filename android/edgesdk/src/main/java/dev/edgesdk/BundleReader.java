package dev.edgesdk;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.zip.CRC32;
import org.jspecify.annotations.Nullable;

/** What {@link EdgeBundle#open} checks, step by step; the specification is in Python's {@code bundle/__init__.py}. */
final class BundleReader {
  private BundleReader() {}

  /** The manifest's bytes, found through the first local header alone. */
  static byte[] manifest(Mapped data, File path) {
    ByteBuffer head = ByteBuffer.wrap(data.bytes(0, Entry.LOCAL)).order(ByteOrder.LITTLE_ENDIAN);
    if (head.capacity() < 4 || head.getInt(0) != Entry.LOCAL_MAGIC) {
      throw Errors.corrupt(path, "it does not begin like a ZIP");
    }
    if (head.capacity() < Entry.LOCAL) {
      throw Errors.corrupt(path, "it is cut short");
    }
    int nameLength = head.getShort(26) & 0xffff;
    String name = new String(data.bytes(Entry.LOCAL, nameLength), StandardCharsets.ISO_8859_1);
    if (!name.equals(Manifest.FILE)) {
      throw Errors.corrupt(
          path,
          "its first entry is not " + Manifest.FILE,
          "It is a ZIP of another kind, or was packed again.");
    }
    if (head.getShort(6) != 0 || head.getShort(8) != 0) {
      throw Errors.layout(path, Manifest.FILE + " is compressed, encrypted, or streamed");
    }
    long size = head.getInt(22) & 0xffffffffL;
    if (size > Manifest.MAX_BYTES) {
      throw Errors.invalid(path.getName(), "it has " + size + " bytes; the limit is " + Manifest.MAX_BYTES);
    }
    int extra = head.getShort(28) & 0xffff;
    byte[] raw = data.bytes(Entry.LOCAL + nameLength + extra, (int) size);
    if (raw.length != size) {
      throw Errors.corrupt(path, "it is cut short within the manifest");
    }
    return raw;
  }

  /** Lays the bundle out from its manifest and compares every byte that is not payload. */
  static Layout layout(Mapped data, File path, Manifest manifest, byte[] raw) {
    long crc = crc(raw);
    Layout plain = Layout.of(manifest, raw.length, crc, null);
    Layout signed = Layout.of(manifest, raw.length, crc, 0L);
    if (data.size() == signed.size()) {
      // The signature's own CRC is the one thing that follows from no manifest, so it is taken from the bytes.
      signed = Layout.of(manifest, raw.length, crc, crc(signature(data, signed)));
      compare(data, path, signed);
      return signed;
    }
    if (data.size() == plain.size()) {
      compare(data, path, plain);
      return plain;
    }
    byte[] end = data.bytes(Math.max(0, data.size() - Layout.END), 4);
    if (data.size() < plain.size() && ByteBuffer.wrap(end).getInt() != Integer.reverseBytes(Layout.END_MAGIC)) {
      throw Errors.corrupt(path, "it is cut short: " + data.size() + " of " + plain.size() + " bytes are there");
    }
    throw Errors.layout(
        path, "it has " + data.size() + " bytes, not " + plain.size() + ", or " + signed.size() + " if signed");
  }

  private static void compare(Mapped data, File path, Layout layout) {
    for (Entry entry : layout.entries) {
      byte[] local = entry.local();
      if (!Arrays.equals(data.bytes(entry.start, local.length), local)) {
        throw Errors.layout(path, "the header or padding of '" + entry.name + "' differs");
      }
    }
    byte[] tail = layout.tail();
    if (!Arrays.equals(data.bytes(layout.directory(), tail.length), tail)) {
      throw Errors.layout(path, "the directory or the end record differs");
    }
  }

  private static byte[] signature(Mapped data, Layout layout) {
    Entry entry = layout.find(Manifest.SIGNATURE);
    return entry == null ? new byte[0] : data.bytes(entry.data, (int) entry.size);
  }

  private static long crc(byte[] bytes) {
    CRC32 crc = new CRC32();
    crc.update(bytes, 0, bytes.length);
    return crc.getValue();
  }

  /** The key that signed; null for an unsigned bundle when no key is pinned. */
  static @Nullable EdgeKey signer(Mapped data, File path, Layout layout, byte[] raw, @Nullable EdgeKey pinned) {
    EdgeKey signer = null;
    if (layout.find(Manifest.SIGNATURE) != null) {
      signer = SignatureFile.read(signature(data, layout), raw);
      if (signer == null) {
        throw Errors.signature(path, SignatureState.INVALID, "its signature does not fit its manifest");
      }
    }
    if (pinned != null && signer == null) {
      throw Errors.signature(path, SignatureState.UNTRUSTED, "it is not signed, but a key is pinned");
    }
    if (pinned != null && !pinned.equals(signer)) {
      throw Errors.signature(path, SignatureState.UNTRUSTED, "it is signed by another key than the pinned one");
    }
    return signer;
  }

  /**
   * Refuses an ONNX variant whose model names files other than its own {@code extra_files}. ONNX Runtime has a format of
   * its own without such fields. It knows one in a file by the suffix {@code .ort}, one in memory by its first bytes:
   * only what is one by both is left out, everything else is read as a protobuf.
   */
  static void checkExternalData(EdgeBundle bundle, Variant variant) {
    if (!variant.runtime().equals("onnx")) {
      return;
    }
    ByteBuffer model = bundle.file(variant.file());
    if (variant.file().endsWith(".ort") && OnnxFile.isOrt(model)) {
      return;
    }
    String folder = variant.file().substring(0, variant.file().lastIndexOf('/') + 1);
    try {
      for (String location : OnnxFile.locations(model)) {
        if (location.startsWith("/") || !variant.extraFiles().contains(folder + location)) {
          throw outside(bundle, variant, location);
        }
      }
    } catch (BadField bad) {
      throw Errors.corrupt(bundle.path(), "'" + variant.file() + "' is no ONNX file (" + bad.problem() + ")");
    }
  }

  private static EdgeException outside(EdgeBundle bundle, Variant variant, String location) {
    return new EdgeException(
        "external_data_outside",
        "'" + variant.file() + "' of " + bundle.path() + " reads its weights from '" + location
            + "', which is not part of the variant.",
        "A bundle may not make the engine open other files of this machine.",
        Errors.AGAIN);
  }
}
