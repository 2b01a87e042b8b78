package dev.edgesdk;

import java.nio.ByteBuffer;

/** An output that is no tensor but a number: the export kept an integer, a float or a bool as such. */
final class PlainNumber {
  private PlainNumber() {}

  /** Writes it; false when the tensor is of another dtype, or not of one element. */
  static boolean write(Tensor to, boolean isReal, double real, long whole) {
    if (to.size() != 1) {
      return false;
    }
    ByteBuffer data = to.data();
    switch (to.dtype()) {
      case FLOAT64:
        data.putDouble(isReal ? real : whole);
        return true;
      case FLOAT32:
        data.putFloat(isReal ? (float) real : whole);
        return true;
      case INT64:
        data.putLong(whole);
        return !isReal;
      case INT32:
        data.putInt((int) whole);
        return !isReal;
      case BOOL:
        data.put((byte) whole);
        return !isReal;
      default:
        return false;
    }
  }
}
