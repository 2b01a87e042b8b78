package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

final class ImageSpecTest {
  private static final String GOOD = "{'kind':'image','version':1,'input':null,'color':'rgb','background':[0,0,0],"
      + "'resize':{'mode':'shorter','size':[8,8],'interpolation':'bilinear','antialias':true,'rounding':'floor'},"
      + "'crop':{'size':[8,8],'rounding':'half_even'},'fill':[0,0,0],'align':'center','scale':0.00392156862745098,"
      + "'mean':[0.5,0.5,0.5],'std':[0.2,0.2,0.2],'layout':'nchw','dtype':'float32'}";

  private static Map<String, Object> document(String text) {
    return Made.map(StrictJson.decode(Made.utf8(text.replace('\'', '"'))));
  }

  @ParameterizedTest
  @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
      "'kind':'image'   | 'kind':'smell'   | preprocess_invalid",
      "'kind':'image'   | 'kind':'text'    | preprocess_unsupported",
      "'version':1      | 'version':2      | preprocess_unsupported",
      "'version':1,     | `` | preprocess_invalid",
      "'align':'center',| `` | preprocess_invalid",
      "'align':'center' | 'align':'center','gamma':2 | preprocess_invalid",
      "'antialias':true | 'antialias':false | preprocess_unsupported",
      "'color':'rgb'    | 'color':'hsv'    | preprocess_invalid",
      "'size':[8,8]     | 'size':[8,0]     | preprocess_invalid",
      "'size':[8,8]     | 'size':[8.0,8]   | preprocess_invalid",
      "[0.2,0.2,0.2]    | [0.2,0,0.2]      | preprocess_invalid",
      "[0.2,0.2,0.2]    | [0.2,0.2]        | preprocess_invalid",
      "[0.5,0.5,0.5]    | [123.7,116,103]  | preprocess_invalid",
      "'dtype':'float32'| 'dtype':'uint8'  | preprocess_invalid",
      "'background':[0,0,0] | 'background':[0,0,256] | preprocess_invalid"})
  void impossibleSpecsAreRefused(String old, String now, String code) {
    ImageSpec.read(document(GOOD));
    String changed = GOOD.replace(old.trim(), now.trim());
    assertTrue(!changed.equals(GOOD));
    Made.fails(code, () -> ImageSpec.read(document(changed)));
  }

  @Test
  void aPictureOfAnotherSizeIsRefused() {
    EdgeException error = Made.fails("image_unreadable", () -> Picture.rgb(new byte[10], 2, 2));
    assertEquals("10 samples are no picture of 2 × 2.", error.message());
    assertEquals("Such a picture has 12 samples.", error.why());
  }

  /** A strip whose shorter side becomes 8: only the window that the crop keeps is computed. */
  @Test
  void aLongStripNeedsNoMemory() {
    ImageSpec spec = ImageSpec.read(document(GOOD.replace("[8,8]", "[2000,2000]")));
    Tensor tensor = spec.apply(Picture.argb(new int[20_000], 20_000, 1));
    assertEquals("float32[1, 3, 2000, 2000]", tensor.toString());
  }

  @Test
  void aStripWithoutCropIsRefused() {
    String text = GOOD.replace("'crop':{'size':[8,8],'rounding':'half_even'}", "'crop':null")
        .replace("[8,8]", "[9000,9000]");
    EdgeException error = Made.fails(
        "image_unreadable", () -> ImageSpec.read(document(text)).apply(Picture.gray(new byte[5000], 5000, 1)));
    assertEquals("A picture of 5000 × 1 would become 45000000 × 9000.", error.message());
  }
}
