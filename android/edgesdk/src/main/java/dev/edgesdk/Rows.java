package dev.edgesdk;

/** A picture that is computed row by row: 8-bit samples, channels side by side. Steps wrap each other. */
abstract class Rows {
  final int width;
  final int height;
  final int channels;

  Rows(int width, int height, int channels) {
    this.width = width;
    this.height = height;
    this.channels = channels;
  }

  /** Computes row {@code y} into {@code out}, from its beginning. */
  abstract void row(int y, byte[] out);
}
