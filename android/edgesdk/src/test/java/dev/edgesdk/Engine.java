package dev.edgesdk;

import java.util.Map;

/** The engines, each with the bundles of the same networks for it. */
enum Engine {
  EXECUTORCH("et-"),
  ONNX(""),
  TORCHSCRIPT("ts-");

  static final Session.Config ONE = Session.Config.DEFAULT.withThreads(1);

  private final String prefix;

  Engine(String prefix) {
    this.prefix = prefix;
  }

  EdgeBundle bundle(String net) {
    return EdgeBundle.open(Made.bundle(prefix + net));
  }

  Session open(String net) {
    try (EdgeBundle bundle = bundle(net)) {
      return bundle.session(ONE);
    }
  }

  /** Inputs of the network "pair". */
  static Map<String, Tensor> pair(int rows) {
    float[] a = new float[rows * 3];
    float[] b = new float[rows * 2];
    for (int i = 0; i < a.length; i++) {
      a[i] = (i * 7 % 11 - 5) / 4f;
    }
    for (int i = 0; i < b.length; i++) {
      b[i] = (i * 5 % 7 - 3) / 2f;
    }
    return Map.of("a", Tensor.of(a, rows, 3), "b", Tensor.of(b, rows, 2));
  }
}
