package dev.edgesdk;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * From a picture to a tensor, equal to Python's to the bit; the steps are defined in {@code preprocess/_image.py}.
 *
 * <p>Not thread-safe.
 */
final class ImageSpec {
  static final long MOST_PIXELS = 1 << 28;
  private static final int LARGEST_SIDE = 16384;
  private static final Set<String> FIELDS = words("kind", "version", "input", "color", "background", "resize", "crop",
      "fill", "align", "scale", "mean", "std", "layout", "dtype");

  /** How the size is changed. */
  static final class Resize {
    final String mode;
    final int[] size;
    final Filter filter;
    final boolean halfEven;

    private Resize(Fields from) {
      known(from, words("mode", "size", "interpolation", "antialias", "rounding"));
      mode = from.oneOf("mode", words("shorter", "stretch", "letterbox"));
      size = size(from);
      String filter = from.oneOf("interpolation", words("bilinear", "bicubic", "nearest", "lanczos", "box"));
      this.filter = Filter.valueOf(filter.toUpperCase(Locale.ROOT));
      halfEven = halfEven(from);
      if (!from.flag("antialias", true) && this.filter != Filter.NEAREST) {
        throw unsupported("Resizing without antialiasing isn't supported.",
            "Its results differ from Pillow's, which all sides implement, and it loses accuracy.");
      }
    }
  }

  final @Nullable String input;
  final @Nullable Resize resize;
  final int @Nullable [] crop;
  final boolean cropHalfEven;
  final boolean centered;
  private final Color color;
  private final byte[] fill;
  private final double scale;
  private final double[] mean;
  private final double[] std;
  private final boolean channelsFirst;
  private final DType dtype;
  private final ByteBuffer table;

  private ImageSpec(Fields from) {
    known(from, FIELDS);
    input = from.any("input") == null ? null : from.text("input", TextRule.TENSOR);
    Color.Order order = Color.Order.valueOf(from.oneOf("color", words("rgb", "bgr", "gray")).toUpperCase(Locale.ROOT));
    color = new Color(order, rgb(from, "background"));
    resize = from.any("resize") == null ? null : new Resize(Fields.of(from.any("resize"), "resize"));
    Fields crop = from.any("crop") == null ? null : Fields.of(from.any("crop"), "crop");
    this.crop = crop == null ? null : size(crop);
    cropHalfEven = crop != null && halfEven(crop);
    if (crop != null) {
      known(crop, words("size", "rounding"));
    }
    int[] fill = rgb(from, "fill");
    this.fill = new byte[color.channels()];
    color.put(this.fill, 0, fill[0], fill[1], fill[2]);
    centered = from.oneOf("align", words("center", "top_left")).equals("center");
    scale = from.real("scale");
    mean = reals(from, "mean");
    std = reals(from, "std");
    channelsFirst = from.oneOf("layout", words("nchw", "nhwc")).equals("nchw");
    DType dtype = DType.of(from.oneOf("dtype", words("float32", "float16", "uint8")));
    this.dtype = dtype == null ? DType.FLOAT32 : dtype;
    checkNumbers();
    table = table();
  }

  /**
   * Reads the manifest's form.
   *
   * @throws EdgeException {@code preprocess_unsupported}: a kind or version that this library doesn't know; {@code
   *     preprocess_invalid}: a field is missing, unknown or impossible
   */
  static ImageSpec read(Map<String, Object> document) {
    Object kind = document.get("kind");
    if ("text".equals(kind)) {
      throw unsupported("Preprocessing of kind 'text' isn't built.", "This version prepares pictures and sounds.");
    }
    Object version = document.get("version");
    if ("image".equals(kind) && version != null && !Long.valueOf(1).equals(version)) {
      throw unsupported("The image preprocessing has version " + version + "; 1 is known.",
          "A newer edgesdk wrote the bundle.");
    }
    try {
      if (!"image".equals(kind)) {
        throw new BadField("the kind " + kind + " is unknown; known: audio, image");
      }
      Fields fields = Fields.of(document, "");
      fields.any("version");
      return new ImageSpec(fields);
    } catch (BadField bad) {
      throw new EdgeException(
          "preprocess_invalid",
          "The preprocessing of the manifest can't be read.",
          bad.problem() + ".",
          "Write the bundle again with edgesdk package.");
    }
  }

  private static EdgeException unsupported(String message, String why) {
    return new EdgeException(
        "preprocess_unsupported", message, why, "Update dev.edgesdk:edgesdk, or feed the tensors with Session.run().");
  }

  private static Set<String> words(String... words) {
    return new LinkedHashSet<>(Arrays.asList(words));
  }

  private static void known(Fields from, Set<String> known) {
    for (String key : from.keys()) {
      if (!known.contains(key)) {
        throw new BadField("the field '" + from.path(key) + "' is unknown; " + Words.nearest(key, known));
      }
    }
  }

  private static int[] size(Fields from) {
    return wholes(from, "size", 2, 1, LARGEST_SIDE);
  }

  private static int[] rgb(Fields from, String key) {
    return wholes(from, key, 3, 0, 255);
  }

  private static int[] wholes(Fields from, String key, int count, int least, int most) {
    List<?> values = from.list(key, count, count);
    int[] found = new int[count];
    for (int i = 0; i < count; i++) {
      Object value = values.get(i);
      if (!(value instanceof Long) || (Long) value < least || (Long) value > most) {
        throw new BadField(
            "'" + from.path(key) + "' holds " + value + ", no whole number from " + least + " to " + most);
      }
      found[i] = ((Long) value).intValue();
    }
    return found;
  }

  private static boolean halfEven(Fields from) {
    return from.oneOf("rounding", words("floor", "half_even")).equals("half_even");
  }

  private double[] reals(Fields from, String key) {
    List<?> values = from.list(key, color.channels(), color.channels());
    double[] found = new double[values.size()];
    for (int i = 0; i < found.length; i++) {
      if (!(values.get(i) instanceof Number)) {
        throw new BadField("'" + key + "' holds " + values.get(i) + ", no number");
      }
      found[i] = ((Number) values.get(i)).doubleValue();
    }
    return found;
  }

  private void checkNumbers() {
    double top = 255 * scale;
    boolean plain = scale == 1;
    boolean good = scale > 0;
    for (int c = 0; c < mean.length; c++) {
      good &= std[c] != 0 && Math.abs(mean[c]) <= top + 1e-9 && Math.abs(std[c]) <= 4 * top;
      plain &= mean[c] == 0 && std[c] == 1;
    }
    if (!good || (dtype == DType.UINT8 && !plain)) {
      throw new BadField("scale, mean and std can't be computed with");
    }
  }

  /** Step 6 as a table: the element of each sample of each channel, as the tensor holds it. */
  private ByteBuffer table() {
    Tensor made = Tensor.allocate(dtype, mean.length, 256);
    ByteBuffer data = made.data();
    for (int c = 0; c < mean.length; c++) {
      for (int sample = 0; sample < 256; sample++) {
        double value = (sample * scale - mean[c]) / std[c];
        if (dtype == DType.FLOAT32) {
          data.putFloat((float) value);
        } else if (dtype == DType.FLOAT16) {
          data.putShort(Half.of(value));
        } else {
          data.put((byte) sample);
        }
      }
    }
    return made.data();
  }

  /** Steps 1 to 5: 8-bit samples of the canvas, row by row. */
  byte[] pixels(Picture picture, Plan plan) {
    int channels = color.channels();
    byte[] canvas = new byte[plan.canvas[0] * plan.canvas[1] * channels];
    boolean whole = plan.window[0] == plan.canvas[0] && plan.window[1] == plan.canvas[1];
    for (int i = 0; !whole && i < canvas.length; i++) {
      canvas[i] = fill[i % channels];
    }
    Rows rows = window(new UprightRows(picture, color), plan);
    byte[] line = new byte[plan.window[1] * channels];
    for (int y = 0; y < plan.window[0]; y++) {
      rows.row(y, line);
      int at = ((plan.target[0] + y) * plan.canvas[1] + plan.target[1]) * channels;
      System.arraycopy(line, 0, canvas, at, line.length);
    }
    return canvas;
  }

  /** Step 4, and of it only the window that step 5 keeps. */
  private Rows window(Rows source, Plan plan) {
    Filter filter = resize == null ? Filter.NEAREST : resize.filter;
    Weights down = Weights.of(filter, source.height, plan.resized[0], plan.source[0], plan.window[0]);
    Weights across = Weights.of(filter, source.width, plan.resized[1], plan.source[1], plan.window[1]);
    // Pillow 13's rule; the order matters, since the result of the first pass is rounded to 8 bits.
    boolean vertical = plan.resized[0] < source.height
        && source.height - plan.resized[0] > 2 * (source.width - plan.resized[1]);
    return vertical
        ? new AcrossRows(new DownRows(source, down), across)
        : new DownRows(new AcrossRows(source, across), down);
  }

  /** The tensor of one picture. */
  Tensor apply(Picture picture) {
    boolean swapped = picture.orientation >= 5;
    Plan plan = new Plan(this, swapped ? picture.width : picture.height, swapped ? picture.height : picture.width);
    byte[] pixels = pixels(picture, plan);
    long height = plan.canvas[0];
    long width = plan.canvas[1];
    int channels = color.channels();
    Tensor made = channelsFirst
        ? Tensor.allocate(dtype, 1, channels, height, width)
        : Tensor.allocate(dtype, 1, height, width, channels);
    ByteBuffer data = made.data();
    int area = (int) (height * width);
    for (int c = 0; c < channels; c++) {
      int from = channelsFirst ? c * area : c;
      int step = channelsFirst ? 1 : channels;
      for (int i = 0; i < area; i++) {
        put(data, from + i * step, c * 256 + (pixels[i * channels + c] & 255));
      }
    }
    return made;
  }

  /** Element {@code to} of the tensor is element {@code from} of the table. */
  private void put(ByteBuffer data, int to, int from) {
    if (dtype == DType.FLOAT32) {
      data.putFloat(4 * to, table.getFloat(4 * from));
    } else if (dtype == DType.FLOAT16) {
      data.putShort(2 * to, table.getShort(2 * from));
    } else {
      data.put(to, table.get(from));
    }
  }
}
