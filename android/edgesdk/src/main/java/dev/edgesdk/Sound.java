package dev.edgesdk;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * A recorded sound: samples of one or more channels, side by side, and their rate. Channels are averaged; the samples
 * that were given aren't changed.
 */
public final class Sound {
  private static final int RIFF = 0x46464952;
  private static final int WAVE = 0x45564157;
  private static final int FORMAT = 0x20746d66;
  private static final int DATA = 0x61746164;
  private static final int PCM = 1;
  private static final int EXTENSIBLE = 0xfffe;
  private static final double TOP = 2147483648.0;

  final int rate;
  final double[] wave;

  private Sound(double[] wave, int rate) {
    this.wave = wave;
    this.rate = rate;
  }

  /** Samples from −1 to 1, as {@code AudioRecord} gives them with {@code ENCODING_PCM_FLOAT}. */
  public static Sound floats(float[] samples, int channels, int rate) {
    double[] values = new double[samples.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = samples[i];
    }
    return mixed(values, channels, rate);
  }

  /** Samples of 16 bits, as {@code AudioRecord} gives them with {@code ENCODING_PCM_16BIT}. */
  public static Sound pcm16(short[] samples, int channels, int rate) {
    double[] values = new double[samples.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = samples[i] / 32768.0;
    }
    return mixed(values, channels, rate);
  }

  /**
   * A PCM {@code .wav} file of 8, 16, 24 or 32 bits.
   *
   * @throws EdgeException {@code sound_unreadable}
   */
  public static Sound wav(byte[] file) {
    ByteBuffer in = ByteBuffer.wrap(file).order(ByteOrder.LITTLE_ENDIAN);
    if (file.length < 12 || in.getInt(0) != RIFF || in.getInt(8) != WAVE) {
      throw bad("can't be read", "It isn't a PCM .wav file.");
    }
    int channels = 0;
    int rate = 0;
    int width = 0;
    long at = 12;
    while (at + 8 <= file.length) {
      int kind = in.getInt((int) at);
      long size = in.getInt((int) at + 4) & 0xffff_ffffL;
      int start = (int) at + 8;
      if (kind == FORMAT && size >= 16 && start + size <= file.length) {
        int code = in.getShort(start) & 0xffff;
        if (code == EXTENSIBLE && size >= 40) {
          code = in.getShort(start + 24) & 0xffff; // the true format: ffmpeg writes floats so
        }
        if (code != PCM) {
          throw bad("can't be read", "It isn't a PCM .wav file: its format is " + code + ".");
        }
        channels = in.getShort(start + 2) & 0xffff;
        rate = in.getInt(start + 4);
        width = ((in.getShort(start + 14) & 0xffff) + 7) / 8;
      } else if (kind == DATA) {
        if (channels < 1 || width < 1 || width > 4) {
          throw bad("can't be read", "It isn't a PCM .wav file of 8, 16, 24 or 32 bits.");
        }
        int frames = (int) (Math.min(size, file.length - start) / (width * channels));
        return mixed(samples(in, start, frames * channels, width), channels, rate);
      }
      at = start + size + (size & 1);
    }
    throw bad("can't be read", "It isn't a PCM .wav file: it ends before its samples.");
  }

  /** Little-endian integers in the high bytes of 32 bits, rounded to float32 as Python does; 8 bits are unsigned. */
  private static double[] samples(ByteBuffer in, int start, int count, int width) {
    double[] values = new double[count];
    for (int i = 0; i < count; i++) {
      int at = start + i * width;
      if (width == 1) {
        values[i] = (in.get(at) & 255) / 128.0 - 1;
        continue;
      }
      int value = 0;
      for (int b = 0; b < width; b++) {
        value |= (in.get(at + b) & 255) << (8 * (4 - width + b));
      }
      values[i] = (float) (value / TOP);
    }
    return values;
  }

  private static Sound mixed(double[] samples, int channels, int rate) {
    if (channels < 1 || samples.length % channels != 0) {
      throw bad(
          "of " + samples.length + " samples has no " + channels + " channels",
          "Samples of the channels lie side by side, the same number of each.");
    }
    if (channels == 1) {
      return new Sound(samples, rate);
    }
    double[] wave = new double[samples.length / channels];
    for (int i = 0; i < wave.length; i++) {
      double sum = 0;
      for (int c = 0; c < channels; c++) {
        sum += samples[i * channels + c];
      }
      wave[i] = sum / channels;
    }
    return new Sound(wave, rate);
  }

  static EdgeException bad(String problem, String why) {
    return new EdgeException(
        "sound_unreadable",
        "The sound " + problem + ".",
        why,
        "Convert it: ffmpeg -i SOUND -ac 1 -ar RATE -c:a pcm_s16le sound.wav");
  }

  /** Samples of each channel. */
  public int size() {
    return wave.length;
  }

  /** Samples per second. */
  public int rate() {
    return rate;
  }
}
