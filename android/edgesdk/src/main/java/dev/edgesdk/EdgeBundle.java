package dev.edgesdk;

import java.io.Closeable;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;
import org.jspecify.annotations.Nullable;

/**
 * An open bundle. Entries are views into the mapped file: nothing is copied until it is asked for.
 *
 * <p>The file may be deleted or replaced meanwhile, but must not be shortened in place. Several threads may use it.
 */
public final class EdgeBundle extends PlatformBundle implements Closeable {
  /** How much {@link #open(File, EdgeKey, Check)} looks at. */
  public enum Check {
    /** Manifest, headers and signature: enough to read the manifest. {@link #session()} checks the rest. */
    LAYOUT,
    /** Every byte. */
    ALL
  }

  private final File path;
  private final Manifest manifest;
  private final Layout layout;
  private final @Nullable EdgeKey signer;
  private volatile @Nullable Mapped data;
  private volatile boolean checked;

  private EdgeBundle(File path, Manifest manifest, Layout layout, @Nullable EdgeKey signer, Mapped data) {
    this.path = path;
    this.manifest = manifest;
    this.layout = layout;
    this.signer = signer;
    this.data = data;
  }

  /**
   * Opens a bundle and checks every byte of it.
   *
   * @throws EdgeException {@code bundle_missing}, {@code bundle_corrupt}, {@code bundle_layout}, {@code
   *     manifest_invalid}, {@code bundle_too_new}, {@code hash_mismatch}, {@code signature_invalid}
   */
  public static EdgeBundle open(File path) {
    return open(path, null, Check.ALL);
  }

  /**
   * Opens a bundle that must be signed by {@code key}.
   *
   * @throws EdgeException as {@link #open(File)}, and {@code signature_untrusted}: unsigned, or signed by another key
   */
  public static EdgeBundle open(File path, EdgeKey key) {
    return open(path, key, Check.ALL);
  }

  /**
   * Opens a bundle.
   *
   * @param key the key that it must be signed by, or null
   * @throws EdgeException as {@link #open(File, EdgeKey)}; {@code hash_mismatch} only with {@link Check#ALL}
   */
  public static EdgeBundle open(File path, @Nullable EdgeKey key, Check check) {
    return open(path, Mapped.open(path), key, check);
  }

  /** The same, from memory that is mapped already. */
  static EdgeBundle open(File path, Mapped data, @Nullable EdgeKey key, Check check) {
    byte[] raw = BundleReader.manifest(data, path);
    Manifest manifest = Manifest.parse(raw, path.getName());
    try {
      Rules.check(manifest);
    } catch (BadField bad) {
      throw Errors.invalid(path.getName(), bad.problem());
    }
    Layout layout = BundleReader.layout(data, path, manifest, raw);
    EdgeKey signer = BundleReader.signer(data, path, layout, raw, key);
    EdgeBundle bundle = new EdgeBundle(path, manifest, layout, signer, data);
    if (check == Check.ALL) {
      bundle.check();
    }
    return bundle;
  }

  /** The file that was opened. */
  public File path() {
    return path;
  }

  /** Everything that is known about the model. */
  public Manifest manifest() {
    return manifest;
  }

  /** Whether the bundle is signed. A signature that doesn't hold doesn't open. */
  public SignatureState signature() {
    return signer == null ? SignatureState.ABSENT : SignatureState.VALID;
  }

  /** Id of the key that signed; null when the bundle is not signed. */
  public @Nullable String signer() {
    return signer == null ? null : signer.id();
  }

  /** Every entry, in file order. */
  public List<String> names() {
    List<String> names = new ArrayList<>();
    for (Entry entry : layout.entries) {
      names.add(entry.name);
    }
    return names;
  }

  /**
   * The bytes of one entry: a read-only view, little-endian, that stays valid when the bundle is closed.
   *
   * @throws EdgeException {@code unknown_entry}, {@code bundle_closed}, {@code entry_too_large}: beyond what one buffer
   *     of Java holds
   */
  public ByteBuffer file(String name) {
    Entry entry = layout.find(name);
    if (entry == null) {
      throw new EdgeException(
          "unknown_entry",
          path + " has no entry '" + name + "'.",
          Words.nearest(name, names()),
          "Ask for one of them.");
    }
    ByteBuffer view = data().view(entry.data, entry.size);
    if (view == null) {
      throw new EdgeException(
          "entry_too_large",
          "'" + name + "' of " + path + " has " + entry.size + " bytes, more than one buffer of Java holds.",
          "Buffers end at 2 GiB.",
          "Package a smaller or quantized variant of the model.");
    }
    return view.order(ByteOrder.LITTLE_ENDIAN);
  }

  /**
   * Hashes every entry, and sees that no model would make its engine open files outside the bundle.
   *
   * @throws EdgeException {@code hash_mismatch}, {@code external_data_outside}, {@code bundle_corrupt}
   */
  public void check() {
    for (FileEntry file : manifest.files()) {
      Entry entry = layout.find(file.name());
      MessageDigest sha = Sha256.start();
      CRC32 crc = new CRC32();
      data().digest(entry == null ? 0 : entry.data, file.size(), sha, crc);
      if (!Sha256.hex(sha.digest()).equals(file.sha256()) || crc.getValue() != file.crc32()) {
        throw Errors.mismatch(path, file.name());
      }
    }
    for (Variant variant : manifest.variants()) {
      BundleReader.checkExternalData(this, variant);
    }
    checked = true;
  }

  /** SHA-256 of the whole file, in hex. */
  public String sha256() {
    MessageDigest sha = Sha256.start();
    data().digest(0, data().size(), sha, new CRC32());
    return Sha256.hex(sha.digest());
  }

  /** Loads the first variant that runs here; see {@link #session(Session.Config)}. */
  public Session session() {
    return session(Session.Config.DEFAULT);
  }

  /**
   * Loads a variant. The session keeps nothing of this bundle open.
   *
   * @throws EdgeException {@code unknown_variant}; {@code runtime_missing}: no engine is in the app; {@code
   *     no_variant_runs} and {@code variant_unsupported}: for another reason, which is named for each variant; {@code
   *     bundle_closed}
   */
  public Session session(Session.Config config) {
    data(); // says that the bundle is closed, before each variant would
    if (!checked) {
      check();
    }
    return Chooser.open(this, tuned(config));
  }

  /** Lets go of the file. Views of entries and open sessions stay valid. */
  @Override
  public void close() {
    data = null;
  }

  @Override
  public String toString() {
    return "EdgeBundle(" + path.getName() + ", " + manifest.variants().size() + " variants, signature "
        + signature().word() + ")";
  }

  private Mapped data() {
    Mapped open = data;
    if (open == null) {
      throw new EdgeException(
          "bundle_closed",
          path + " is closed.",
          "close() was called, or a try block ended.",
          "Keep the bundle open while its entries are read; sessions and views don't need it.");
    }
    return open;
  }
}
