package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.HexFormat;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

final class EdgeKeyTest {
  private static byte[] hex(String text) {
    return HexFormat.of().parseHex(text);
  }

  /** RFC 8032, section 7.1, tests 1 to 3. */
  @ParameterizedTest
  @CsvSource({
      "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a,'',"
          + "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
          + "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
      "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c,72,"
          + "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
          + "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
      "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025,af82,"
          + "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
          + "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"})
  void signaturesOfTheStandardHold(String key, String message, String signature) {
    EdgeKey public_ = EdgeKey.ofRaw(hex(key));
    assertTrue(public_.verifies(hex(signature), hex(message)));
    byte[] changed = hex(signature);
    changed[40] ^= 1;
    assertFalse(public_.verifies(changed, hex(message)));
    assertFalse(public_.verifies(hex(signature), hex(message + "00")));
  }

  /** The neutral element as key and R, S = 0 "signs" everything. */
  @ParameterizedTest
  @ValueSource(strings = {
      "0000000000000000000000000000000000000000000000000000000000000000",
      "0100000000000000000000000000000000000000000000000000000000000000",
      "0100000000000000000000000000000000000000000000000000000000000080",
      "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
      "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
      "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"})
  void keysOfSmallOrderVerifyNothing(String key) {
    EdgeKey weak = EdgeKey.ofRaw(hex(key));
    assertTrue(weak.weak());
    assertFalse(weak.verifies(hex(key + "00".repeat(32)), new byte[] {1}));
  }

  @Test
  void keysAreReadFromPem() throws IOException {
    EdgeKey key = Made.key("release");
    assertEquals(key, Made.key("release"));
    assertEquals(key.hashCode(), Made.key("release").hashCode());
    assertFalse(key.equals(Made.key("other")));
    assertEquals("EdgeKey(" + key.id().substring(0, 16) + ")", key.toString());
  }

  @Test
  void otherTextsAreRefused() throws IOException {
    String secret = Files.readString(new File(Made.BUNDLES, "release.key").toPath());
    EdgeException error = Made.fails("bad_key", () -> EdgeKey.fromPem(secret));
    assertEquals("It is a private key: keep it to yourself and take the file that ends in .pub.", error.why());
    String good = Files.readString(new File(Made.BUNDLES, "release.pub").toPath());
    for (String bad : new String[] {
        "", "hello", good.substring(40), good.replace("MCow", "MCox"),
        good.substring(0, 60) + "\n-----END PUBLIC KEY-----"}) {
      assertEquals(
          "This is no Ed25519 public key in PEM form.", Made.fails("bad_key", () -> EdgeKey.fromPem(bad)).message());
    }
  }
}
