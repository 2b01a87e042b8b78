package dev.edgesdk;

import java.math.BigInteger;
import java.util.List;

/** A tensor of a golden call: where its bytes are, and what they are. */
final class GoldenTensor {
  final String name;
  final DType dtype;
  final long[] shape;
  final String file;

  private GoldenTensor(String name, DType dtype, long[] shape, String file) {
    this.name = name;
    this.dtype = dtype;
    this.shape = shape;
    this.file = file;
  }

  static GoldenTensor read(Fields fields) {
    List<?> sizes = fields.list("shape", 0, TensorSpec.MAX_RANK);
    long[] shape = new long[sizes.size()];
    for (int i = 0; i < shape.length; i++) {
      Object size = sizes.get(i);
      if (!(size instanceof Long) || (Long) size < 0 || (Long) size > Dim.LARGEST) {
        throw new BadField("'" + fields.path("shape") + "." + i + "' is no size: " + size);
      }
      shape[i] = (Long) size;
    }
    return new GoldenTensor(
        fields.text("name", TextRule.TENSOR),
        DType.read(fields, "dtype"),
        shape,
        fields.text("file", TextRule.ENTRY));
  }

  /** What its file must have; sixteen dimensions can multiply to more than a long holds. */
  BigInteger bytes() {
    BigInteger product = BigInteger.valueOf(dtype.bytes());
    for (long size : shape) {
      product = product.multiply(BigInteger.valueOf(size));
    }
    return product;
  }
}
