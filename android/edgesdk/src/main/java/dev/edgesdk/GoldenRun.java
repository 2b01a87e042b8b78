package dev.edgesdk;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** The comparison behind {@link Session#selfTest()}. */
final class GoldenRun {
  private final Manifest manifest;
  private final Variant variant;
  private final Map<String, ByteBuffer> golden;
  private final Map<String, OutputTest> tests = new LinkedHashMap<>();

  GoldenRun(Manifest manifest, Variant variant, Map<String, ByteBuffer> golden) {
    this.manifest = manifest;
    this.variant = variant;
    this.golden = golden;
    for (TensorSpec output : manifest.outputs()) {
      Double tolerance = variant.tolerances().get(output.name());
      tests.put(output.name(), new OutputTest(output.name(), tolerance == null ? 0 : tolerance));
    }
  }

  Map<String, Tensor> inputs(Golden call) {
    Map<String, Tensor> found = new LinkedHashMap<>();
    for (int i = 0; i < call.inputs().size(); i++) {
      Tensor stored = read(call.inputs().get(i));
      boolean brain = manifest.inputs().get(i).dtype() == DType.BFLOAT16 && stored.dtype() == DType.FLOAT32;
      found.put(call.inputs().get(i).name, brain ? toBrain(stored) : stored);
    }
    return found;
  }

  void compare(Golden call, Map<String, Tensor> outputs) {
    for (GoldenTensor wanted : call.outputs()) {
      OutputTest test = tests.get(wanted.name);
      Tensor got = outputs.get(wanted.name);
      if (test == null || got == null) {
        continue; // the manifest's rules exclude it
      }
      if (Arrays.equals(wanted.shape, got.sizes())) {
        test.add(numbers(read(wanted)), numbers(got));
      } else {
        test.fail();
      }
    }
  }

  SelfTest result() {
    int calls = manifest.golden().size();
    boolean any = calls > 0;
    return new SelfTest(variant.id(), calls, any ? new ArrayList<>(tests.values()) : new ArrayList<OutputTest>());
  }

  /** A complex number as its two parts: its error is then bounded by √2 of theirs, and is exact when one is zero. */
  private static double[] numbers(Tensor tensor) {
    if (tensor.dtype() != DType.COMPLEX64) {
      return tensor.toDoubles();
    }
    return Tensor.wrap(DType.FLOAT32, tensor.data(), tensor.size() * 2L).toDoubles();
  }

  /** Golden tensors are little-endian, as is every Android device. */
  private Tensor read(GoldenTensor golden) {
    ByteBuffer bytes = this.golden.get(golden.file);
    Tensor made = Tensor.allocate(golden.dtype, golden.shape);
    if (bytes != null) {
      made.data().put(bytes.duplicate());
    }
    return made;
  }

  private static Tensor toBrain(Tensor stored) {
    Tensor made = Tensor.allocate(DType.BFLOAT16, stored.sizes());
    ByteBuffer data = made.data();
    for (float value : stored.floats()) {
      data.putShort(Half.toBrain(value));
    }
    return made;
  }
}
