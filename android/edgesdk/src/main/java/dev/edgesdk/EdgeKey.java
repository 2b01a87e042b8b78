package dev.edgesdk;

import com.google.crypto.tink.subtle.Base64;
import com.google.crypto.tink.subtle.Ed25519Verify;
import java.security.GeneralSecurityException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The public key of whoever makes the bundles. An app that pins it refuses all others:
 *
 * <pre>{@code
 * EdgeKey maker = EdgeKey.fromPem("-----BEGIN PUBLIC KEY-----\nMCow…\n-----END PUBLIC KEY-----");
 * EdgeBundle bundle = EdgeBundle.open(file, maker);
 * }</pre>
 */
public final class EdgeKey {
  static final int SIZE = 32;
  static final int SIGNATURE_SIZE = 64;
  private static final String BEGIN = "-----BEGIN PUBLIC KEY-----";
  private static final String FINISH = "-----END PUBLIC KEY-----";

  // SubjectPublicKeyInfo of RFC 8410 up to the key's own bytes.
  private static final byte[] PREFIX = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};

  // The points whose order divides 8, in every encoding, without the sign bit; each "signs" arbitrary messages.
  private static final Set<String> SMALL_ORDER = new HashSet<>(Arrays.asList(
      "0000000000000000000000000000000000000000000000000000000000000000",
      "0100000000000000000000000000000000000000000000000000000000000000",
      "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
      "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
      "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
      "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
      "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"));

  private final byte[] raw;

  private EdgeKey(byte[] raw) {
    this.raw = raw;
  }

  /**
   * Reads the text of the {@code KEY.pub} that {@code edgesdk keys new} wrote.
   *
   * @throws EdgeException {@code bad_key}: no Ed25519 public key; a private key, too, which must not be in an app
   */
  public static EdgeKey fromPem(String pem) {
    if (pem.contains("PRIVATE KEY-----")) {
      throw bad("It is a private key: keep it to yourself and take the file that ends in .pub.");
    }
    int begin = pem.indexOf(BEGIN);
    int end = pem.indexOf(FINISH);
    byte[] der = begin < 0 || end < begin ? null : base64(pem.substring(begin + BEGIN.length(), end));
    boolean good = der != null
        && der.length == PREFIX.length + SIZE
        && Arrays.equals(Arrays.copyOf(der, PREFIX.length), PREFIX);
    if (!good) {
      throw bad("It is damaged, of another kind (RSA, SSH …), or no key at all.");
    }
    return new EdgeKey(Arrays.copyOfRange(der, PREFIX.length, der.length));
  }

  private static EdgeException bad(String why) {
    return new EdgeException(
        "bad_key",
        "This is no Ed25519 public key in PEM form.",
        why,
        "Make a key: edgesdk keys new -o release.key");
  }

  /** The key of these 32 bytes; null for another number of bytes. */
  static @Nullable EdgeKey ofRaw(byte @Nullable [] raw) {
    return raw == null || raw.length != SIZE ? null : new EdgeKey(raw.clone());
  }

  /** Tink's, as {@code java.util.Base64} came with Android 8. Null when it is none. */
  static byte @Nullable [] base64(String text) {
    try {
      return Base64.decode(text, Base64.DEFAULT);
    } catch (IllegalArgumentException cause) {
      return null;
    }
  }

  static String base64(byte[] data) {
    return Base64.encodeToString(data, Base64.NO_WRAP);
  }

  byte[] raw() {
    return raw.clone();
  }

  /** SHA-256 of the key's 32 bytes, in hex: what a signature calls it by. */
  public String id() {
    return Sha256.hex(Sha256.start().digest(raw));
  }

  /** Whether the point has small order: no honest key does. */
  boolean weak() {
    byte[] unsigned = raw.clone();
    unsigned[SIZE - 1] &= 0x7f;
    return SMALL_ORDER.contains(Sha256.hex(unsigned));
  }

  /** Whether the signature holds; never for a weak key. */
  boolean verifies(byte[] signature, byte[] message) {
    if (weak()) {
      return false;
    }
    try {
      new Ed25519Verify(raw).verify(signature, message);
      return true;
    } catch (GeneralSecurityException | IllegalArgumentException cause) {
      return false;
    }
  }

  @Override
  public boolean equals(@Nullable Object other) {
    return other instanceof EdgeKey && Arrays.equals(raw, ((EdgeKey) other).raw);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(raw);
  }

  @Override
  public String toString() {
    return "EdgeKey(" + id().substring(0, 16) + ")";
  }
}
