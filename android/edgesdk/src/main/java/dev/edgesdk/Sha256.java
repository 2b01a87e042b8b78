package dev.edgesdk;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** SHA-256, which every Java and every Android has. */
final class Sha256 {
  private static final char[] HEX = "0123456789abcdef".toCharArray();

  private Sha256() {}

  static MessageDigest start() {
    try {
      return MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException cause) {
      throw new IllegalStateException("every Java platform has SHA-256", cause);
    }
  }

  static String hex(byte[] bytes) {
    StringBuilder text = new StringBuilder();
    for (byte b : bytes) {
      text.append(HEX[(b >> 4) & 15]).append(HEX[b & 15]);
    }
    return text.toString();
  }
}
