package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/** The type of a tensor's elements. {@link #word()} is the name in the manifest. */
public enum DType {
  /** IEEE single precision. */
  FLOAT32("float32", 4),
  /** IEEE double precision. */
  FLOAT64("float64", 8),
  /** IEEE half precision, as raw 16 bits. */
  FLOAT16("float16", 2),
  /** The upper half of a float32, as raw 16 bits. */
  BFLOAT16("bfloat16", 2),
  /** {@code long}. */
  INT64("int64", 8),
  /** {@code int}. */
  INT32("int32", 4),
  /** {@code short}. */
  INT16("int16", 2),
  /** {@code byte}. */
  INT8("int8", 1),
  /** 0 to 255, in a {@code byte}. */
  UINT8("uint8", 1),
  /** 0 to 65535, in a {@code short}. */
  UINT16("uint16", 2),
  /** One byte, 0 or 1. */
  BOOL("bool", 1),
  /** Two floats: real and imaginary part. */
  COMPLEX64("complex64", 8);

  private final String word;
  private final int bytes;

  DType(String word, int bytes) {
    this.word = word;
    this.bytes = bytes;
  }

  /** The name in the manifest: {@code float32}. */
  public String word() {
    return word;
  }

  /** Bytes of one element. */
  public int bytes() {
    return bytes;
  }

  static @Nullable DType of(String word) {
    for (DType dtype : values()) {
      if (dtype.word.equals(word)) {
        return dtype;
      }
    }
    return null;
  }

  static DType read(Fields fields, String key) {
    Object value = fields.any(key);
    DType dtype = value instanceof String ? of((String) value) : null;
    if (dtype == null) {
      throw new BadField("'" + fields.path(key) + "' is no known dtype: " + value);
    }
    return dtype;
  }

  @Override
  public String toString() {
    return word;
  }
}
