package dev.edgesdk;

import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * From a sound to a tensor {@code [1, n]} or {@code [frames, frame]}; the steps are defined in {@code
 * preprocess/_audio.py}. Without normalisation it is equal to Python's to the bit; sums have no agreed order, so
 * normalised samples agree within 1e-6.
 */
final class AudioSpec {
  static final long MOST_SAMPLES = 1 << 28;
  private static final double EPSILON = 1e-7;
  private static final Set<String> FIELDS = words("input", "sample_rate", "samples", "frame", "hop", "normalize");
  private static final Set<String> LATER = words("resample", "mel");

  final @Nullable String input;
  private final int rate;
  private final int samples; // 0: as long as the sound is
  private final int frame; // 0: no frames
  private final int hop;
  private final String normalize;

  private AudioSpec(Fields from) {
    for (String key : from.keys()) {
      if (!FIELDS.contains(key) && !key.equals("kind") && !key.equals("version")
          && !(LATER.contains(key) && from.any(key) == null)) {
        throw new BadField("the field '" + from.path(key) + "' is unknown; " + Words.nearest(key, FIELDS));
      }
    }
    input = from.textOrNull("input", TextRule.TENSOR);
    rate = (int) from.whole("sample_rate", 1, Integer.MAX_VALUE, 16000);
    samples = number(from, "samples");
    frame = number(from, "frame");
    int step = number(from, "hop");
    if (step > 0 && frame == 0) {
      throw new BadField("a hop without a frame says nothing");
    }
    hop = step > 0 ? step : frame;
    normalize = from.has("normalize") ? from.oneOf("normalize", words("none", "peak", "standard")) : "none";
  }

  private static int number(Fields from, String key) {
    Long found = from.has(key) ? from.wholeOrNull(key, 1, Integer.MAX_VALUE) : null;
    return found == null ? 0 : found.intValue();
  }

  private static Set<String> words(String... words) {
    return new LinkedHashSet<>(Arrays.asList(words));
  }

  /**
   * Reads the manifest's form.
   *
   * @throws EdgeException {@code preprocess_unsupported}: a step that isn't built; {@code preprocess_invalid}: a field is
   *     missing, unknown or impossible
   */
  static AudioSpec read(Map<String, Object> document) {
    for (String step : LATER) {
      if (document.get(step) != null) {
        throw new EdgeException(
            "preprocess_unsupported",
            "The audio step '" + step + "' isn't built.",
            "This version of edgesdk frames and normalises sounds, no more.",
            "Compute it inside the model (torchaudio's transforms export), or feed the tensor with Session.run().");
      }
    }
    try {
      Fields fields = Fields.of(document, "");
      Object version = fields.any("version");
      if (!Long.valueOf(1).equals(version)) {
        throw new BadField("version " + version + " is unknown; 1 is known");
      }
      return new AudioSpec(fields);
    } catch (BadField bad) {
      throw new EdgeException(
          "preprocess_invalid",
          "The audio preprocessing of the manifest can't be read.",
          bad.problem() + ".",
          "Write the bundle again with edgesdk package.");
    }
  }

  /**
   * The tensor of a sound.
   *
   * @throws EdgeException {@code sound_unreadable}: no samples, another rate, or more frames than memory holds
   */
  Tensor apply(Sound sound) {
    if (sound.rate != rate) {
      throw Sound.bad("has " + sound.rate + " samples per second, not " + rate, "Resampling isn't built.");
    }
    if (sound.wave.length == 0) {
      throw Sound.bad("holds no samples", "The sound is empty.");
    }
    double[] wave = samples > 0 ? Arrays.copyOf(sound.wave, samples) : sound.wave;
    int length = frame > 0 ? frame : wave.length;
    long count = frame > 0 ? 1 + (Math.max(0L, (long) wave.length - frame) + hop - 1) / hop : 1;
    if (count * length > MOST_SAMPLES) {
      throw Sound.bad("becomes " + count + " frames of " + length + " samples", "That is more than memory should hold.");
    }
    Tensor made = Tensor.allocate(DType.FLOAT32, count, length);
    FloatBuffer out = made.data().asFloatBuffer();
    double[] one = new double[length];
    for (int i = 0; i < count; i++) {
      long from = Math.min(wave.length, (long) i * hop);
      int have = (int) Math.min(length, wave.length - from);
      System.arraycopy(wave, (int) from, one, 0, have);
      Arrays.fill(one, have, length, 0);
      normalise(one);
      for (double value : one) {
        out.put((float) value);
      }
    }
    return made;
  }

  private void normalise(double[] one) {
    if (normalize.equals("peak")) {
      double peak = 0;
      for (double value : one) {
        peak = Math.max(peak, Math.abs(value));
      }
      for (int i = 0; peak != 0 && i < one.length; i++) {
        one[i] /= peak;
      }
    } else if (normalize.equals("standard")) {
      double sum = 0;
      for (double value : one) {
        sum += value;
      }
      double mean = sum / one.length;
      double squares = 0;
      for (int i = 0; i < one.length; i++) {
        one[i] -= mean;
        squares += one[i];
      }
      double rest = squares / one.length; // numpy's variance takes the mean of what is left once more
      squares = 0;
      for (double value : one) {
        squares += (value - rest) * (value - rest);
      }
      double width = Math.sqrt(squares / one.length + EPSILON);
      for (int i = 0; i < one.length; i++) {
        one[i] /= width;
      }
    }
  }
}
