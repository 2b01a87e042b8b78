package dev.edgesdk;

import java.util.Map;
import org.jspecify.annotations.Nullable;

/** How a picture or a sound becomes the input, read once from the manifest. */
final class Preparer {
  private final Manifest manifest;
  private final @Nullable ImageSpec image;
  private final @Nullable AudioSpec audio;

  private Preparer(Manifest manifest, @Nullable ImageSpec image, @Nullable AudioSpec audio) {
    this.manifest = manifest;
    this.image = image;
    this.audio = audio;
  }

  /**
   * The manifest's preprocessing.
   *
   * @throws EdgeException {@code preprocess_unsupported}, {@code preprocess_invalid}
   */
  static @Nullable Preparer of(Manifest manifest) {
    Map<String, Object> document = manifest.preprocess();
    if (document == null) {
      return null;
    }
    return "audio".equals(document.get("kind"))
        ? new Preparer(manifest, null, AudioSpec.read(document))
        : new Preparer(manifest, ImageSpec.read(document), null);
  }

  /** The input that is fed. */
  String input() {
    String named = image != null ? image.input : audio == null ? null : audio.input;
    return named == null ? manifest.inputs().get(0).name() : named;
  }

  Tensor tensor(Picture picture) {
    if (image == null) {
      throw other("pictures", "sounds");
    }
    return image.apply(picture);
  }

  Tensor tensor(Sound sound) {
    if (audio == null) {
      throw other("sounds", "pictures");
    }
    return audio.apply(sound);
  }

  private EdgeException other(String given, String wanted) {
    return new EdgeException(
        "no_preprocess",
        manifest.name() + " takes " + wanted + ", not " + given + ".",
        "Its manifest says how " + wanted + " become the input '" + input() + "'.",
        "Give it what it was packaged for, or feed the tensor with Session.run().");
  }

  static EdgeException lacking(Manifest manifest) {
    return new EdgeException(
        "no_preprocess",
        manifest.name() + " doesn't say how a picture or a sound becomes its input.",
        "The manifest holds only what was known when the model was packaged.",
        "Feed the tensor with Session.run(), or build the bundle again: edgesdk package MODEL --image 224 --mean … --std …");
  }
}
