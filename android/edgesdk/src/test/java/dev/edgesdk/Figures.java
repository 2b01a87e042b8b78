package dev.edgesdk;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Numbers that tests find out, for people: {@code target/figures.txt}, which {@code tools/test_java} prints. */
final class Figures {
  private Figures() {}

  static synchronized void say(String line) throws IOException {
    Files.writeString(
        Path.of("target/figures.txt"), line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
  }
}
