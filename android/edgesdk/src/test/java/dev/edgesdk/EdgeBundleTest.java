package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.ReadOnlyBufferException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class EdgeBundleTest {
  private static final File GOOD = new File(Made.BUNDLES, "hostile/good.edge");
  private static final File SIGNED = new File(Made.BUNDLES, "hostile/signed.edge");

  @Test
  void entriesAreMappedAndAligned() throws IOException {
    byte[] whole = Files.readAllBytes(GOOD.toPath());
    try (EdgeBundle bundle = EdgeBundle.open(GOOD)) {
      assertEquals(
          Arrays.asList("manifest.json", "golden/0.in.bin", "golden/0.out.bin", "model.pte"), bundle.names());
      ByteBuffer model = bundle.file("model.pte");
      assertTrue(model.isDirect() && model.isReadOnly() && model.order() == ByteOrder.LITTLE_ENDIAN);
      assertThrows(ReadOnlyBufferException.class, () -> model.put(0, (byte) 0));
      byte[] bytes = new byte[model.remaining()];
      model.get(bytes);
      assertArrayEquals(Arrays.copyOfRange(whole, 16384, 16384 + 20480), bytes);
      assertEquals(Sha256.hex(Sha256.start().digest(whole)), bundle.sha256());
      assertEquals("EdgeBundle(good.edge, 1 variants, signature absent)", bundle.toString());
    }
  }

  @Test
  void anUnknownEntryIsNamed() {
    EdgeException error = Made.fails("unknown_entry", () -> EdgeBundle.open(GOOD).file("model.pt"));
    assertEquals(GOOD + " has no entry 'model.pt'.", error.message());
    assertEquals(
        "Did you mean 'model.pte'? Known: golden/0.in.bin, golden/0.out.bin, manifest.json, model.pte.", error.why());
    assertEquals("Ask for one of them.", error.fix());
  }

  @Test
  void aClosedBundleSaysSo() {
    EdgeBundle bundle = EdgeBundle.open(GOOD);
    ByteBuffer before = bundle.file("golden/0.in.bin");
    bundle.close();
    bundle.close();
    assertEquals(5f, before.getFloat(20), "views stay valid");
    Made.fails("bundle_closed", bundle::session);
    EdgeException error = Made.fails("bundle_closed", () -> bundle.file("model.pte"));
    assertEquals(GOOD + " is closed.", error.message());
  }

  @Test
  void aBundleThatIsNotThereSaysSo(@TempDir Path folder) throws IOException {
    File none = folder.resolve("none.edge").toFile();
    assertEquals(none + " does not exist.", Made.fails("bundle_missing", () -> EdgeBundle.open(none)).message());
    assertEquals(
        folder + " is a folder.", Made.fails("bundle_missing", () -> EdgeBundle.open(folder.toFile())).message());
  }

  @Test
  void signaturesArePinned() throws IOException {
    EdgeKey release = Made.key("release");
    try (EdgeBundle bundle = EdgeBundle.open(Made.bundle("pair"), release)) {
      assertEquals(SignatureState.VALID, bundle.signature());
      assertEquals(release.id(), bundle.signer());
    }
    EdgeException other = Made.fails(
        "signature_untrusted", () -> EdgeBundle.open(Made.bundle("pair"), Made.key("other")));
    assertEquals(
        Made.bundle("pair") + " is not trusted: it is signed by another key than the pinned one.", other.message());
    EdgeException unsigned = Made.fails("signature_untrusted", () -> EdgeBundle.open(GOOD, release));
    assertEquals(GOOD + " is not trusted: it is not signed, but a key is pinned.", unsigned.message());
    assertNull(EdgeBundle.open(GOOD).signer());
    assertNotNull(EdgeBundle.open(SIGNED).signer());
  }

  @Test
  void aFirstLookHashesNothing() {
    File changed = new File(Made.BUNDLES, "hostile/payload_model.edge");
    EdgeBundle bundle = EdgeBundle.open(changed, null, EdgeBundle.Check.LAYOUT);
    assertEquals("hostile", bundle.manifest().name());
    EdgeException error = Made.fails("hash_mismatch", bundle::check);
    assertEquals(
        changed + ": the bytes of 'model.pte' are not those that the manifest names.", error.message());
    assertEquals("hash_mismatch", assertThrows(EdgeException.class, bundle::session).code());
  }

  @Test
  void theManifestSaysEverything() {
    Manifest manifest = EdgeBundle.open(Made.bundle("picture")).manifest();
    assertEquals("edgesdk.bundle/1", manifest.schema());
    assertEquals("picture", manifest.name());
    assertEquals("1.0.0", manifest.version());
    assertEquals("[input=float32[1..4,3,32,32]]", manifest.inputs().toString());
    assertEquals("[output=float32[1..4,6]]", manifest.outputs().toString());
    assertEquals(Arrays.asList("cat", "dog", "eel", "fox", "gnu", "hen"), manifest.labels());
    assertEquals(2, manifest.variants().size());
    Variant variant = manifest.variants().get(0);
    assertEquals("onnx-none", variant.id());
    assertEquals("onnx", variant.runtime());
    assertEquals(true, variant.verified());
    assertNull(variant.backend());
    assertEquals(Collections.singleton("output"), variant.tolerances().keySet());
    assertEquals("output", variant.fidelity().get(0).name());
    assertTrue(manifest.golden().size() >= 3);
    assertTrue(manifest.createdBy().startsWith("edgesdk "), manifest.createdBy());
    assertEquals("image", manifest.preprocess().get("kind"));
    assertEquals("classify", manifest.postprocess().get("kind"));
    assertTrue(manifest.tools().containsKey("torch") && manifest.source().sha256() != null);
    assertEquals(false, manifest.source().pickle());
  }

  /** Two GiB are one window; what begins behind the first GiB is found in the second one. */
  @Test
  void largeFilesAreMappedInWindows(@TempDir Path folder) throws IOException {
    File sparse = folder.resolve("sparse").toFile();
    try (java.io.RandomAccessFile file = new java.io.RandomAccessFile(sparse, "rw")) {
      file.setLength((3L << 30) + 10);
      for (long at : new long[] {5, (1L << 30) + 7, (3L << 30) + 9}) {
        file.seek(at);
        file.write((byte) (at % 251));
      }
    }
    Mapped mapped = Mapped.open(sparse);
    for (long at : new long[] {5, (1L << 30) + 7, (3L << 30) + 9}) {
      assertEquals((byte) (at % 251), mapped.bytes(at, 1)[0]);
      assertEquals((byte) (at % 251), mapped.view(at, 1).get(0));
    }
    assertEquals(1L << 30, mapped.view((2L << 30) - 5, 1L << 30).remaining());
    assertNull(mapped.view(1L << 30, 2L << 30));
    assertEquals(3, mapped.bytes((3L << 30) + 7, 100).length);
  }

  /** An executor that is shut down, a coroutine that is cancelled: the file is still there. */
  @Test
  void anInterruptedThreadOpensToo() {
    Thread.currentThread().interrupt();
    EdgeBundle.open(GOOD).close();
    assertTrue(Thread.interrupted(), "whoever interrupted it is not forgotten");
  }
}
