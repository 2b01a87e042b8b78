package dev.edgesdk;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.content.Context;
import android.content.Intent;
import android.content.pm.ApplicationInfo;
import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.net.Uri;
import android.os.BatteryManager;
import android.os.PowerManager;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.shadows.ShadowBuild;
import org.robolectric.shadows.ShadowVMRuntime;

/** What the Android layer does, on Android's own classes and Skia, with real bundles and a real engine. */
@RunWith(RobolectricTestRunner.class)
public final class AndroidTest {
  private static final File BUNDLES = new File(System.getProperty("edgesdk.bundles", "../edgesdk/target/bundles"));
  private final Context context = RuntimeEnvironment.getApplication();

  @Before
  public void allow() {
    MainThread.policy(MainThread.Policy.ALLOW);
    // A ZIP with assets as builds leave them: picture.edge stored, packed.edge compressed.
    assertTrue(context.getAssets().addAssetPath(new File("target/assets.apk").getPath()) > 0);
    ShadowVMRuntime.setIs64Bit(true);
    ShadowBuild.setSupported64BitAbis(new String[] {"x86_64", "arm64-v8a"});
  }

  @After
  public void forget() {
    MainThread.policy(null);
  }

  private static byte[] picture() throws IOException {
    return Files.readAllBytes(new File(BUNDLES, "picture.edge").toPath());
  }

  private static EdgeException fails(String code, org.junit.function.ThrowingRunnable call) {
    EdgeException error = assertThrows(EdgeException.class, call);
    assertEquals(error.getMessage(), code, error.code());
    return error;
  }

  private static int[] pixels() throws IOException {
    byte[] rgb = Files.readAllBytes(new File(BUNDLES, "picture.rgb").toPath());
    int[] made = new int[rgb.length / 3];
    for (int i = 0; i < made.length; i++) {
      made[i] = 0xff000000 | (rgb[3 * i] & 255) << 16 | (rgb[3 * i + 1] & 255) << 8 | rgb[3 * i + 2] & 255;
    }
    return made;
  }

  /** Python's answer to the same picture, from expected.json. */
  private static List<String> expected() throws IOException {
    String text = Files.readString(new File(BUNDLES, "expected.json").toPath());
    List<String> names = new ArrayList<>();
    for (String part : text.substring(text.indexOf("\"top\"")).split("\"name\": \"")) {
      names.add(part.substring(0, Math.max(0, part.indexOf('"'))));
    }
    return names.subList(1, names.size());
  }

  @Test
  public void aModelIsUnpackedOnceAndMendedWhenDamaged() throws IOException {
    try (EdgeBundle bundle = EdgeBundle.open(context, "picture.edge")) {
      ModelFile model = new ModelFile(bundle, bundle.manifest().variants().get(0));
      File file = model.file();
      assertTrue(file.getPath(), file.getPath().contains("no_backup"));
      byte[] wanted = new byte[model.buffer().remaining()];
      model.buffer().get(wanted);
      assertArrayEquals(wanted, Files.readAllBytes(file.toPath()));
      Object inode = inode(file);
      assertEquals("written once", inode, inode(new ModelFile(bundle, model.variant).file()));
      byte[] damaged = wanted.clone();
      damaged[wanted.length / 2] ^= 1;
      Files.write(file.toPath(), damaged);
      File again = new ModelFile(bundle, model.variant).file();
      assertArrayEquals(wanted, Files.readAllBytes(again.toPath()));
      model.delete();
      assertTrue("it stays for the next start", again.isFile());
    }
  }

  private static Object inode(File file) throws IOException {
    return Files.readAttributes(file.toPath(), BasicFileAttributes.class).fileKey();
  }

  /** As when the app has opened a newer bundle of that name meanwhile: a session that is open can still reset(). */
  @Test
  public void aModelThatIsGoneIsWrittenAgainAlsoAfterItsBundleWasClosed() throws IOException {
    EdgeBundle bundle = EdgeBundle.open(context, "picture.edge");
    ModelFile model = new ModelFile(bundle, bundle.manifest().variants().get(0));
    byte[] wanted = Files.readAllBytes(model.file().toPath());
    bundle.close();
    assertTrue(model.file().delete());
    assertArrayEquals(wanted, Files.readAllBytes(model.file().toPath()));
  }

  @Test
  public void aDamagedCopyOfACompressedAssetIsMended() throws IOException {
    File kept;
    try (EdgeBundle bundle = EdgeBundle.open(context, "packed.edge")) {
      kept = bundle.path();
    }
    byte[] damaged = picture();
    damaged[damaged.length / 2] ^= 1;
    Files.write(kept.toPath(), damaged);
    EdgeBundle.open(context, "packed.edge").close();
    assertArrayEquals(picture(), Files.readAllBytes(kept.toPath()));
    EdgeKey other = EdgeKey.fromPem(Files.readString(new File(BUNDLES, "other.pub").toPath()));
    fails("signature_untrusted", () -> EdgeBundle.open(context, "packed.edge", other));
  }

  @Test
  public void aBitmapIsClassifiedAsInPython() throws IOException {
    Bitmap bitmap = Bitmap.createBitmap(pixels(), 60, 45, Bitmap.Config.ARGB_8888);
    Uri uri = Uri.parse("content://some.app/picture");
    shadowOf(context.getContentResolver()).registerInputStream(uri, new ByteArrayInputStream(picture()));
    try (EdgeBundle bundle = EdgeBundle.open(context, uri);
        Session session = bundle.session(Session.Config.DEFAULT.withVariant("onnx-none"))) {
      List<String> found = new ArrayList<>();
      for (Label label : session.classify(bitmap, 6)) {
        found.add(label.name());
      }
      assertEquals(expected(), found);
      assertTrue(session.selfTest().ok());
    }
    String[] kept = new File(context.getNoBackupFilesDir(), "edgesdk").list();
    assertNotNull(kept);
    assertEquals("the file and its key", 2, kept.length);
  }

  @Test
  public void pixelsAreEqualToPythonsInputsBitForBit() throws IOException {
    int[] wanted = pixels();
    for (Bitmap.Config config : new Bitmap.Config[] {Bitmap.Config.ARGB_8888, Bitmap.Config.RGBA_F16}) {
      Bitmap bitmap = Bitmap.createBitmap(60, 45, config);
      bitmap.setPixels(wanted, 0, 60, 0, 0, 60, 45);
      Picture picture = Pictures.of(bitmap);
      assertEquals(60, picture.width());
      assertArrayEquals(config.name(), wanted, picture.ints);
    }
  }

  @Test
  public void alphaIsNotPremultipliedAnyMore() {
    // A colour that survives premultiplication: 200 · 51 / 255 = 40.
    Bitmap bitmap = Bitmap.createBitmap(new int[] {0x33c86400, 0x00ffffff}, 2, 1, Bitmap.Config.ARGB_8888);
    assertTrue(bitmap.isPremultiplied());
    assertArrayEquals(new int[] {0x33c86400, 0}, Pictures.of(bitmap).ints);
  }

  @Test
  public void aDecodedFileKeepsItsColoursUnderAlphaWhenAskedTo() {
    Bitmap made = Bitmap.createBitmap(2, 1, Bitmap.Config.ARGB_8888);
    made.setPremultiplied(false);
    made.setPixels(new int[] {0x07123456, 0xff010203}, 0, 2, 0, 0, 2, 1);
    ByteArrayOutputStream png = new ByteArrayOutputStream();
    assertTrue(made.compress(Bitmap.CompressFormat.PNG, 100, png));
    BitmapFactory.Options options = new BitmapFactory.Options();
    options.inPremultiplied = false;
    Bitmap read = BitmapFactory.decodeByteArray(png.toByteArray(), 0, png.size(), options);
    assertArrayEquals(new int[] {0x07123456, 0xff010203}, Pictures.of(read).ints);
  }

  @Test
  public void aClosedSessionSaysSo() {
    Session session = EdgeBundle.open(context, "picture.edge").session(Session.Config.DEFAULT.withVariant("onnx-none"));
    session.close();
    fails("session_closed", () -> session.classify(Bitmap.createBitmap(2, 2, Bitmap.Config.ARGB_8888), 1));
  }

  @Test
  public void aRecycledBitmapIsNamed() {
    Bitmap bitmap = Bitmap.createBitmap(2, 2, Bitmap.Config.ARGB_8888);
    bitmap.recycle();
    fails("image_unreadable", () -> Pictures.of(bitmap));
  }

  @Test
  public void aFileUriIsOpenedWhereItLies() {
    Uri uri = Uri.fromFile(new File(BUNDLES, "picture.edge"));
    try (EdgeBundle bundle = EdgeBundle.open(context, uri)) {
      assertEquals(new File(BUNDLES, "picture.edge").getAbsoluteFile(), bundle.path().getAbsoluteFile());
    }
  }

  @Test
  public void aUriOfAnotherKeyIsRefused() throws IOException {
    Uri uri = Uri.parse("content://some.app/signed");
    EdgeKey other = EdgeKey.fromPem(Files.readString(new File(BUNDLES, "other.pub").toPath()));
    EdgeKey maker = EdgeKey.fromPem(Files.readString(new File(BUNDLES, "release.pub").toPath()));
    shadowOf(context.getContentResolver()).registerInputStreamSupplier(uri, () -> stream());
    fails("signature_untrusted", () -> EdgeBundle.open(context, uri, other));
    try (EdgeBundle bundle = EdgeBundle.open(context, uri, maker)) {
      assertEquals(SignatureState.VALID, bundle.signature());
    }
  }

  private static InputStream stream() {
    try {
      return new ByteArrayInputStream(picture());
    } catch (IOException cause) {
      throw new AssertionError(cause);
    }
  }

  @Test
  public void aUriThatIsGoneSaysWhatToDo() {
    Uri uri = Uri.parse("content://some.app/gone");
    shadowOf(context.getContentResolver()).registerInputStreamSupplier(uri, () -> {
      throw new SecurityException("Permission Denial");
    });
    EdgeException error = fails("bundle_missing", () -> EdgeBundle.open(context, uri));
    assertTrue(error.fix(), error.fix().contains("takePersistableUriPermission"));
  }

  @Test
  public void anAssetThatIsNotThereIsNamed() {
    EdgeException error = fails("bundle_missing", () -> EdgeBundle.open(context, "pictur.edge"));
    assertTrue(error.message(), error.message().contains("pictur.edge"));
    assertTrue(error.why(), error.why().contains("'picture.edge'"));
  }

  @Test
  public void anUncompressedAssetIsMappedWhereItLies() throws IOException {
    EdgeKey maker = EdgeKey.fromPem(Files.readString(new File(BUNDLES, "release.pub").toPath()));
    try (EdgeBundle bundle = EdgeBundle.open(context, "picture.edge", maker);
        Session session = bundle.session(Session.Config.DEFAULT.withVariant("onnx-none").withSelfTest())) {
      assertEquals(new File("/android_asset/picture.edge"), bundle.path());
      assertTrue(session.selfTest().ok());
    }
    assertTrue("nothing is unpacked", !new File(context.getNoBackupFilesDir(), "edgesdk").exists());
  }

  @Test
  public void aCompressedAssetIsUnpackedOnce() throws IOException {
    try (EdgeBundle bundle = EdgeBundle.open(context, "packed.edge")) {
      assertTrue(bundle.path().getPath(), bundle.path().getPath().contains("no_backup"));
      assertArrayEquals(picture(), Files.readAllBytes(bundle.path().toPath()));
    }
    File[] kept = new File(context.getNoBackupFilesDir(), "edgesdk").listFiles();
    assertNotNull(kept);
    EdgeBundle.open(context, "packed.edge").close();
    assertEquals(kept.length, new File(context.getNoBackupFilesDir(), "edgesdk").listFiles().length);
  }

  @Test
  public void theMainThreadIsGuarded() throws InterruptedException {
    MainThread.policy(null);
    context.getApplicationInfo().flags |= ApplicationInfo.FLAG_DEBUGGABLE;
    Uri uri = Uri.fromFile(new File(BUNDLES, "picture.edge"));
    fails("on_main_thread", () -> EdgeBundle.open(context, uri));
    context.getApplicationInfo().flags &= ~ApplicationInfo.FLAG_DEBUGGABLE;
    EdgeBundle.open(context, uri).close();
    MainThread.policy(MainThread.Policy.THROW);
    List<Throwable> failures = new ArrayList<>();
    Thread worker = new Thread(() -> EdgeBundle.open(context, uri).close());
    worker.setUncaughtExceptionHandler((thread, failure) -> failures.add(failure));
    worker.start();
    worker.join();
    assertEquals(List.of(), failures);
  }

  @Test
  public void variantsForOtherAbisArePassedOver() {
    List<String> here = List.of("arm64-v8a");
    assertNull(PlatformBundle.whyNot(List.of(), here));
    assertNull(PlatformBundle.whyNot(List.of("x86_64", "arm64-v8a"), here));
    String why = PlatformBundle.whyNot(List.of("x86_64"), here);
    assertTrue(why, why != null && why.contains("x86_64") && why.contains("arm64-v8a"));
  }

  @Test
  public void pitfall_p_06_aVariantForAnotherAbiIsNamedAndTheNextOneTaken() {
    EdgeBundle bundle = EdgeBundle.open(new File(BUNDLES, "abis.edge"));
    try (Session session = bundle.session()) {
      assertEquals("onnx-none", session.variant().id());
      assertEquals(1, session.skipped().size());
      String why = session.skipped().get(0);
      assertTrue(why, why.startsWith("onnx-old-phones: ") && why.contains("armeabi-v7a") && why.contains("x86_64"));
    }
    try {
      bundle.session(Session.Config.DEFAULT.withVariant("onnx-old-phones"));
      throw new AssertionError("it isn't for this device");
    } catch (EdgeException error) {
      assertEquals("variant_unsupported", error.code());
      assertTrue(error.why(), error.why().contains("armeabi-v7a"));
    }
  }

  /**
   * Pixels in the GPU's memory can't be read in place, so such a bitmap is copied, as one of half floats is, which the
   * test above has read. (Robolectric has no hardware bitmaps: it makes ordinary ones when asked for them.)
   */
  @Test
  public void hardwareBitmapsAreCopied() throws IOException {
    assertTrue(Pictures.needsCopy(Bitmap.Config.HARDWARE));
    assertTrue(Pictures.needsCopy(Bitmap.Config.RGBA_F16));
    assertTrue(Pictures.needsCopy(null));
    assertTrue(!Pictures.needsCopy(Bitmap.Config.ARGB_8888) && !Pictures.needsCopy(Bitmap.Config.RGB_565));
    int[] wanted = pixels();
    Bitmap asked = Bitmap.createBitmap(wanted, 60, 45, Bitmap.Config.ARGB_8888).copy(Bitmap.Config.HARDWARE, false);
    assertArrayEquals(wanted, Pictures.of(asked).ints);
    assertTrue(!asked.isRecycled());
  }

  @Test
  public void sessionsGetTheThreadsOfTheFastestCluster() {
    assertEquals(Cpu.here().threads(), PlatformBundle.tuned(Session.Config.DEFAULT).threads);
    assertEquals(3, PlatformBundle.tuned(Session.Config.DEFAULT.withThreads(3)).threads);
  }

  @Test
  public void pitfall_b_02_theStateOfTheDeviceIsRead() {
    PowerManager power = (PowerManager) context.getSystemService(Context.POWER_SERVICE);
    shadowOf(power).setCurrentThermalStatus(PowerManager.THERMAL_STATUS_MODERATE);
    context.sendStickyBroadcast(new Intent(Intent.ACTION_BATTERY_CHANGED)
        .putExtra(BatteryManager.EXTRA_LEVEL, 41)
        .putExtra(BatteryManager.EXTRA_SCALE, 50)
        .putExtra(BatteryManager.EXTRA_TEMPERATURE, 312)
        .putExtra(BatteryManager.EXTRA_VOLTAGE, 3987)
        .putExtra(BatteryManager.EXTRA_PLUGGED, BatteryManager.BATTERY_PLUGGED_USB));
    DeviceInfo device = DeviceInfo.read(context);
    assertEquals(Integer.valueOf(2), device.thermalStatus());
    assertEquals(Integer.valueOf(82), device.batteryLevel());
    assertEquals(31.2, device.batteryCelsius(), 0.001);
    assertEquals(3.987, device.batteryVolts(), 0.0001);
    assertEquals(Boolean.TRUE, device.charging());
    assertTrue(device.memoryClass() > 0);
    assertEquals(35, device.sdk());
    assertTrue(device.toString(), device.toString().contains(device.abi()));
  }

  @Test
  public void whatADeviceDoesNotTellIsNull() {
    DeviceInfo device = DeviceInfo.read(context);
    assertNull(device.batteryLevel());
    assertNull(device.charging());
    assertNull(device.batteryCelsius());
  }
}
