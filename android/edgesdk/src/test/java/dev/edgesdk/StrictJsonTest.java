package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class StrictJsonTest {
  @Test
  void valuesKeepTheirKind() {
    Object read = StrictJson.decode(Made.utf8(" {\"a\":[1,-0,1.5,1e3,true,null,\"\\u00e9\\n\\ud83d\\ude00\"]} "));
    assertEquals(
        Arrays.asList(1L, 0L, 1.5, 1000.0, true, null, "é\n😀"), Made.map(read).get("a"));
    assertNull(StrictJson.decode(Made.utf8("null")));
  }

  @ParameterizedTest
  @ValueSource(strings = {
      "", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "{'a':1}", "[01]", "[.5]", "[5.]", "[+1]", "[1e]", "[-]", "[0x10]",
      "NaN", "[Infinity]", "[-Infinity]", "[1e999]", "[-1e999]", "9223372036854775808", "-9223372036854775808",
      "[100000000000000000000000]", "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}", "\"\\ud800\"", "\"\\udc00\\ud800\"",
      "\"\\x\"", "\"\\u12\"", "\"\\u００６１\"", "\"a\nb\"", "\"a", "[1] 2", "{}{}", "// x\n1", "[1 2]", "tru", "True",
      "\ufeff{}", "\u00a0{}", "[1]\u0000"})
  void everythingElseIsRefused(String text) {
    assertThrows(BadField.class, () -> StrictJson.decode(Made.utf8(text)));
  }

  @Test
  void malformedUtf8IsRefused() {
    for (byte[] bytes : new byte[][] {
        {'"', (byte) 0xff, '"'}, {'"', (byte) 0xc0, (byte) 0x80, '"'},
        {'"', (byte) 0xed, (byte) 0xa0, (byte) 0x80, '"'}}) {
      assertThrows(BadField.class, () -> StrictJson.decode(bytes));
    }
  }

  /** The same bound as Python's: a value may be a member of 32 others. */
  @Test
  void depthIsBounded() {
    StrictJson.decode(Made.utf8("[".repeat(33) + "]".repeat(33)));
    StrictJson.decode(Made.utf8("[".repeat(32) + "1" + "]".repeat(32)));
    for (String deep : new String[] {
        "[".repeat(34) + "]".repeat(34), "[".repeat(33) + "1" + "]".repeat(33), "[".repeat(100_000)}) {
      BadField error = assertThrows(BadField.class, () -> StrictJson.decode(Made.utf8(deep)));
      assertEquals("it is nested deeper than 32 levels", error.problem());
    }
  }
}
