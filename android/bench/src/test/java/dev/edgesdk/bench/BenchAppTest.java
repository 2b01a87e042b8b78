package dev.edgesdk.bench;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.app.Application;
import android.content.Context;
import android.content.ContextWrapper;
import android.content.Intent;
import android.content.pm.ApplicationInfo;
import android.os.Looper;
import android.view.ViewGroup;
import android.widget.TextView;
import java.io.File;
import java.util.List;
import java.util.Map;
import org.json.JSONObject;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ServiceController;
import org.robolectric.shadows.ShadowBuild;
import org.robolectric.shadows.ShadowVMRuntime;

/** The app, started as {@code am start} starts it, with a real bundle and engine, up to the file that adb pulls. */
@RunWith(RobolectricTestRunner.class)
public final class BenchAppTest {
  private final Application app = RuntimeEnvironment.getApplication();

  @Before
  public void phone() {
    File assets = new File("../edgesdk-android/target/assets.apk");
    assertTrue(app.getAssets().addAssetPath(assets.getPath()) > 0);
    ShadowBuild.setType("user"); // as of Androids that people buy
    ShadowVMRuntime.setIs64Bit(true);
    ShadowBuild.setSupported64BitAbis(new String[] {"x86_64", "arm64-v8a"});
  }

  private static String said(BenchmarkActivity activity) {
    return ((TextView) ((ViewGroup) activity.findViewById(android.R.id.content)).getChildAt(0)).getText().toString();
  }

  /** Starts the app, and its measuring service when it asks for it: the system would do so, in a process of its own. */
  private BenchmarkActivity run(Map<String, String> extras) throws InterruptedException {
    Intent intent = new Intent(app, BenchmarkActivity.class);
    extras.forEach(intent::putExtra);
    BenchmarkActivity activity = Robolectric.buildActivity(BenchmarkActivity.class, intent).setup().get();
    for (int i = 0; i < 1200 && !said(activity).contains("BENCHMARK_"); i++) {
      Intent service = shadowOf(app).getNextStartedService();
      if (service != null) {
        ServiceController<BenchService> controller = Robolectric.buildService(BenchService.class, service).create();
        controller.get().onBind(service);
      }
      shadowOf(Looper.getMainLooper()).idle();
      Thread.sleep(50);
    }
    return activity;
  }

  @Test
  public void amStartLeavesAReportWhereAdbReadsIt() throws Exception {
    app.getApplicationInfo().flags &= ~ApplicationInfo.FLAG_DEBUGGABLE;
    BenchmarkActivity activity = run(Map.of("profile", "smoke", "variant", "onnx-none", "threads", "1"));
    File file = new File(BenchmarkActivity.folder(activity), "result.json");
    assertTrue(said(activity), said(activity).contains("BENCHMARK_DONE " + file));
    String text = Proc.read(file);
    assertEquals(List.of(), BenchTest.faults(text));
    JSONObject report = new JSONObject(text);
    assertEquals("picture", report.getJSONObject("model").getString("name"));
    assertFalse(BenchTest.codes(report).contains("DEBUG_BUILD"));
    assertFalse("a smoke run claims no timing", report.getJSONObject("target").getBoolean("timing_valid"));
  }

  /** Android/media/PACKAGE is the one folder of an app that adb's user may read on every release, without root. */
  @Test
  public void theReportGoesIntoTheMediaFolder() {
    File media = new File(app.getCacheDir(), "Android/media/dev.edgesdk.bench");
    assertEquals(media, BenchmarkActivity.folder(with(null, media)));
    assertTrue(media.isDirectory());
    assertEquals("no shared storage", app.getExternalFilesDir(null), BenchmarkActivity.folder(with()));
  }

  private Context with(File... media) {
    return new ContextWrapper(app) {
      @Override
      public File[] getExternalMediaDirs() {
        return media;
      }
    };
  }

  @Test
  public void pitfall_b_04_timingsOfADebuggableBuildAreInvalid() throws Exception {
    app.getApplicationInfo().flags |= ApplicationInfo.FLAG_DEBUGGABLE;
    BenchmarkActivity activity = run(Map.of("profile", "smoke", "variant", "onnx-none"));
    JSONObject report = new JSONObject(Proc.read(new File(BenchmarkActivity.folder(activity), "result.json")));
    assertTrue(BenchTest.codes(report).contains("DEBUG_BUILD"));
    assertEquals("invalid", report.getJSONObject("validity").getString("status"));
    assertFalse(report.getJSONObject("target").getBoolean("timing_valid"));
  }

  @Test
  public void whatIsNotPossibleIsSaidAndLeavesNoReport() throws Exception {
    BenchmarkActivity activity = run(Map.of("profle", "smoke"));
    assertTrue(said(activity), said(activity).contains("BENCHMARK_FAILED profle: unknown; known: "));
    assertFalse(new File(BenchmarkActivity.folder(activity), "result.json").exists());
    activity = run(Map.of("profile", "smoke", "variant", "onnx-nine"));
    assertTrue(said(activity), said(activity).contains("has no variant 'onnx-nine'"));
  }
}
