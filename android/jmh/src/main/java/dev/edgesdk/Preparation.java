package dev.edgesdk;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/** A picture of 12 megapixels becomes a tensor [1, 3, 224, 224]; {@code pictures.py} does the same with Pillow. */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.SampleTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
public class Preparation {
  /** The filter, as the manifest names it. */
  @Param({"bilinear", "bicubic"})
  public String filter;

  private ImageSpec spec;
  private Picture picture;

  /** What pictures.py left: the spec, the samples, and the tensor that must come out. */
  @Setup
  @SuppressWarnings("unchecked")
  public void open() throws IOException {
    Path folder = Path.of(System.getProperty("edgesdk.pictures"));
    spec = ImageSpec.read((Map<String, Object>) StrictJson.decode(Files.readAllBytes(folder.resolve(filter + ".json"))));
    byte[] rgb = Files.readAllBytes(folder.resolve("picture.rgb"));
    int[] pixels = new int[rgb.length / 3];
    for (int i = 0; i < pixels.length; i++) {
      pixels[i] = 0xff000000 | (rgb[3 * i] & 255) << 16 | (rgb[3 * i + 1] & 255) << 8 | rgb[3 * i + 2] & 255;
    }
    picture = Picture.argb(pixels, 4000, 3000); // as Bitmap.getPixels gives it
    if (!Arrays.equals(Files.readAllBytes(folder.resolve(filter + ".tensor")), spec.apply(picture).bytes())) {
      throw new IllegalStateException("Java and Python don't make the same tensor");
    }
  }

  /** Pixels to tensor. */
  @Benchmark
  public ByteBuffer java() {
    return spec.apply(picture).data();
  }
}
