package dev.edgesdk;

/** Which samples are black and white; the colours are those of BT.601. */
public enum YuvRange {
  /** 0 to 255: JFIF, what Android's cameras give. */
  FULL,
  /** 16 to 235, colours 16 to 240: video. */
  LIMITED
}
