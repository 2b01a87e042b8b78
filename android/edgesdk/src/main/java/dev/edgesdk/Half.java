package dev.edgesdk;

/** IEEE half precision and bfloat16, bit by bit. */
final class Half {
  private Half() {}

  static float toFloat(short half) {
    int sign = (half & 0x8000) << 16;
    int exponent = (half >> 10) & 0x1f;
    int fraction = half & 0x3ff;
    if (exponent == 0x1f) {
      return Float.intBitsToFloat(sign | 0x7f800000 | fraction << 13);
    }
    if (exponent != 0) {
      return Float.intBitsToFloat(sign | (exponent + 112) << 23 | fraction << 13);
    }
    float tiny = fraction * 0x1p-24f;
    return sign == 0 ? tiny : -tiny;
  }

  /** Rounded once, to nearest, halves to even. */
  static short of(double value) {
    int sign = Double.doubleToRawLongBits(value) < 0 ? 0x8000 : 0;
    double size = Math.abs(value);
    if (Double.isNaN(value)) {
      return (short) (sign | 0x7e00);
    }
    if (size >= 65520) { // half-way between the largest half and the next power of two
      return (short) (sign | 0x7c00);
    }
    int exponent = Math.max(Math.getExponent(size), -14);
    // Dividing by a power of two is exact, so this is the only rounding. Carrying into the exponent is right as it is.
    int fraction = (int) Math.rint(Math.scalb(size, 10 - exponent));
    int bits = fraction < 0x400 ? fraction : ((exponent + 15) << 10) + fraction - 0x400;
    return (short) (sign | bits);
  }

  static float fromBrain(short upper) {
    return Float.intBitsToFloat(upper << 16);
  }

  /** Rounded to nearest, halves to even. */
  static short toBrain(float value) {
    int bits = Float.floatToRawIntBits(value);
    if (Float.isNaN(value)) {
      return (short) (bits >>> 16 | 0x40);
    }
    return (short) (bits + 0x7fff + (bits >>> 16 & 1) >>> 16);
  }
}
