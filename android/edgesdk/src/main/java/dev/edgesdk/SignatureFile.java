package dev.edgesdk;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** The {@code signature.json} of a bundle. It has one form only, so no byte of it is free. */
final class SignatureFile {
  /** Always of one length. */
  static final int SIZE = render("", "", "").length
      + 2 * EdgeKey.SIZE // key_id in hex
      + 44 // 32 bytes in base64
      + 88; // 64 bytes in base64

  private SignatureFile() {}

  /** The key whose signature over {@code manifest} this file holds; null when it doesn't hold. */
  static @Nullable EdgeKey read(byte[] data, byte[] manifest) {
    EdgeKey key;
    byte[] signature;
    try {
      Fields fields = Fields.of(StrictJson.decode(data), "");
      key = EdgeKey.ofRaw(EdgeKey.base64(string(fields, "public_key")));
      signature = EdgeKey.base64(string(fields, "signature"));
    } catch (BadField bad) {
      return null;
    }
    if (key == null || signature == null || signature.length != EdgeKey.SIGNATURE_SIZE) {
      return null;
    }
    byte[] only = render(key.id(), EdgeKey.base64(key.raw()), EdgeKey.base64(signature));
    return Arrays.equals(data, only) && key.verifies(signature, manifest) ? key : null;
  }

  private static String string(Fields fields, String name) {
    return fields.text(name, TextRule.TEXT);
  }

  private static byte[] render(String id, String key, String signature) {
    String text = "{\"schema\":\"edgesdk.signature/1\",\"algorithm\":\"ed25519\",\"key_id\":\"" + id
        + "\",\"public_key\":\"" + key + "\",\"signature\":\"" + signature + "\"}";
    return text.getBytes(StandardCharsets.US_ASCII);
  }
}
