package dev.edgesdk;

import java.util.List;
import java.util.Map;

/** What {@link Session#classify} needs, read once from the manifest. */
final class Classifier {
  private final Manifest manifest;
  private final Preparer before;
  private final Postprocess after;

  private Classifier(Manifest manifest, Preparer before, Postprocess after) {
    this.manifest = manifest;
    this.before = before;
    this.after = after;
  }

  static Classifier of(Manifest manifest) {
    Preparer before = Preparer.of(manifest);
    Map<String, Object> after = manifest.postprocess();
    if (before == null) {
      throw lacks(manifest, "preprocessing", "package MODEL --image 224 --mean … --std …");
    }
    if (after == null || !"classify".equals(after.get("kind"))) {
      throw lacks(manifest, "classification", "package MODEL --labels FILE");
    }
    if (manifest.inputs().size() != 1) {
      throw lacks(manifest, "single input", "inspect FILE");
    }
    return new Classifier(manifest, before, Postprocess.of(after));
  }

  private static EdgeException lacks(Manifest manifest, String what, String command) {
    return new EdgeException(
        "not_a_classifier",
        manifest.name() + " has no " + what + ", so it can't classify a picture.",
        "The manifest holds only what was known when the model was packaged.",
        "Use Session.run(), or build the bundle again: edgesdk " + command);
  }

  /** The input that the picture or the sound feeds. */
  String input() {
    return before.input();
  }

  Tensor tensor(Picture picture) {
    return before.tensor(picture);
  }

  Tensor tensor(Sound sound) {
    return before.tensor(sound);
  }

  List<Label> answer(Map<String, Tensor> outputs, int top) {
    return after.labels(outputs, manifest.labels(), top);
  }
}
