package dev.edgesdk;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.SecureRandom;
import org.jspecify.annotations.Nullable;

/** A variant's files, for an engine to load: as mapped memory, or as files in a folder of their own. */
final class ModelFile {
  final Manifest manifest;
  final Variant variant;
  private final EdgeBundle bundle;
  private @Nullable ByteBuffer model;
  private @Nullable File kept;
  private @Nullable File folder;

  ModelFile(EdgeBundle bundle, Variant variant) {
    this.bundle = bundle;
    this.manifest = bundle.manifest();
    this.variant = variant;
  }

  /** The model, mapped; nothing is copied. Once asked for, it stays when the bundle is closed. */
  ByteBuffer buffer() {
    ByteBuffer mapped = model;
    if (mapped == null) {
      mapped = bundle.file(variant.file());
      model = mapped;
    }
    return mapped.duplicate().order(mapped.order());
  }

  /** Whether the model needs other files beside it. */
  boolean alone() {
    return variant.extraFiles().isEmpty();
  }

  /**
   * The model as a file, with what must lie beside it. The bundle has been checked, so these are the right bytes. Asked
   * again, it is the same file, written anew if the platform's store has dropped it for a newer one of its name.
   */
  File file() {
    File before = kept;
    if (before != null && before.isFile()) {
      return before;
    }
    File stored = alone() ? PlatformBundle.unpacked(manifest.name() + "/" + variant.id(), variant, buffer()) : null;
    if (stored != null) {
      kept = stored;
      return stored;
    }
    File into = folder;
    if (into == null) {
      into = makeFolder();
      folder = into;
      for (String name : variant.files()) {
        write(new File(into, name), bundle.file(name));
      }
    }
    return new File(into, variant.file());
  }

  private static File makeFolder() {
    byte[] random = new byte[8];
    new SecureRandom().nextBytes(random);
    File made = new File(System.getProperty("java.io.tmpdir", "."), "edgesdk-" + Sha256.hex(random));
    if (!made.mkdir()) {
      throw Errors.unwritable(made, new IOException("the folder can't be made"));
    }
    return made;
  }

  private static void write(File to, ByteBuffer bytes) {
    File parent = to.getParentFile();
    if (parent != null && !parent.isDirectory() && !parent.mkdirs()) {
      throw Errors.unwritable(to, new IOException("the folder can't be made"));
    }
    try (FileOutputStream out = new FileOutputStream(to)) {
      byte[] chunk = new byte[1 << 16];
      while (bytes.hasRemaining()) {
        int length = Math.min(chunk.length, bytes.remaining());
        bytes.get(chunk, 0, length);
        out.write(chunk, 0, length);
      }
    } catch (IOException cause) {
      throw Errors.unwritable(to, cause);
    }
  }

  /** Removes the folder, if there is one. */
  void delete() {
    File made = folder;
    folder = null;
    if (made != null) {
      delete(made);
    }
  }

  private static void delete(File file) {
    File[] inside = file.listFiles();
    for (File one : inside == null ? new File[0] : inside) {
      delete(one);
    }
    if (!file.delete()) {
      file.deleteOnExit();
    }
  }
}
