package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Every picture becomes the same bytes as in Python, of any size, kind and orientation, by any filter. */
final class PictureGoldenTest {
  /** Cases, and the bytes that they point into. */
  private record Vectors(List<Map<String, Object>> cases, byte[] data) {
    static Vectors in(File folder, int least) throws IOException {
      Map<String, Object> document = Made.map(Made.json(new File(folder, "images.json")));
      List<Map<String, Object>> cases = Made.list(document.get("cases")).stream().map(Made::map).toList();
      assertTrue(cases.size() >= least, "only " + cases.size());
      Figures.say("preprocessing vectors in " + folder.getName() + ": " + cases.size());
      return new Vectors(cases, Files.readAllBytes(new File(folder, (String) document.get("data")).toPath()));
    }
  }

  /** The shared vectors, chosen case by case. */
  @TestFactory
  Stream<DynamicTest> pitfall_n_04_and_n_08_picturesBecomeTheSameBytes() throws IOException {
    Vectors vectors = Vectors.in(new File(Made.ROOT, "tests/golden/preprocess"), 104);
    return vectors.cases().stream().map(one ->
        DynamicTest.dynamicTest((String) one.get("name"), () -> check(one, vectors.data())));
  }

  /** Pictures and specifications at random, made for this run by Python. */
  @Test
  void pitfall_n_04_randomPicturesDoSoToo() throws IOException {
    Vectors vectors = Vectors.in(Made.BUNDLES, 400);
    for (Map<String, Object> one : vectors.cases()) {
      assertDoesNotThrow(() -> check(one, vectors.data()), () -> one.get("name") + " " + one.get("spec"));
    }
  }

  private static void check(Map<String, Object> one, byte[] data) {
    ImageSpec spec = ImageSpec.read(Made.map(one.get("spec")));
    byte[] wanted = stored(one.get("pixels"), data);
    for (Picture picture : pictures(one, stored(one.get("input"), data))) {
      int height = picture.orientation >= 5 ? picture.width() : picture.height();
      int width = picture.orientation >= 5 ? picture.height() : picture.width();
      assertArrayEquals(wanted, spec.pixels(picture, new Plan(spec, height, width)));
      if (one.get("tensor") != null) {
        Tensor tensor = spec.apply(picture);
        Map<String, Object> place = Made.map(one.get("tensor"));
        assertEquals(place.get("dtype"), tensor.dtype().word());
        assertEquals(place.get("shape").toString(), Arrays.toString(tensor.shape()));
        assertArrayEquals(stored(place, data), tensor.bytes());
      }
    }
  }

  private static byte[] stored(Object place, byte[] data) {
    int offset = Made.whole(Made.map(place).get("offset"));
    return Arrays.copyOfRange(data, offset, offset + Made.whole(Made.map(place).get("bytes")));
  }

  /** The picture in each form that can hold it. */
  private static List<Picture> pictures(Map<String, Object> one, byte[] samples) {
    int width = Made.whole(one.get("width"));
    int height = Made.whole(one.get("height"));
    List<Picture> found = new ArrayList<>();
    switch ((String) one.get("mode")) {
      case "RGB":
        found.add(Picture.rgb(samples, width, height));
        found.add(Picture.argb(packed(samples, 3), width, height));
        break;
      case "RGBA":
        found.add(Picture.rgba(samples, width, height));
        found.add(Picture.argb(packed(samples, 4), width, height));
        break;
      case "L":
        found.add(Picture.gray(samples, width, height));
        break;
      case "LA":
        found.add(Picture.grayAlpha(samples, width, height));
        break;
      case "CMYK":
        found.add(Picture.cmyk(samples, width, height));
        break;
      case "I;16":
        short[] wide = new short[width * height];
        ByteBuffer.wrap(samples).order(ByteOrder.LITTLE_ENDIAN).asShortBuffer().get(wide);
        found.add(Picture.gray16(wide, width, height));
        break;
      default:
        throw new AssertionError(one.get("mode"));
    }
    found.replaceAll(picture -> picture.withOrientation(Made.whole(one.get("orientation"))));
    return found;
  }

  private static int[] packed(byte[] samples, int bands) {
    int[] pixels = new int[samples.length / bands];
    for (int i = 0; i < pixels.length; i++) {
      int at = i * bands;
      int alpha = bands == 4 ? samples[at + 3] & 255 : 255;
      pixels[i] = alpha << 24 | (samples[at] & 255) << 16 | (samples[at + 1] & 255) << 8 | samples[at + 2] & 255;
    }
    return pixels;
  }
}
