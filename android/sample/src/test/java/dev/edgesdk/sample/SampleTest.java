package dev.edgesdk.sample;

import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.app.Activity;
import android.content.Intent;
import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.net.Uri;
import android.os.Looper;
import android.view.View;
import android.view.ViewGroup;
import android.widget.Button;
import android.widget.TextView;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Predicate;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.shadows.ShadowBuild;
import org.robolectric.shadows.ShadowVMRuntime;

/** The sample's screens, used as a person would, with a real bundle and engine. */
@RunWith(RobolectricTestRunner.class)
public final class SampleTest {
  @Before
  public void phone() {
    File assets = new File("../edgesdk-android/target/assets.apk");
    assertTrue(RuntimeEnvironment.getApplication().getAssets().addAssetPath(assets.getPath()) > 0);
    ShadowVMRuntime.setIs64Bit(true);
    ShadowBuild.setSupported64BitAbis(new String[] {"x86_64", "arm64-v8a"});
  }

  private static List<View> views(View root) {
    List<View> found = new ArrayList<>(List.of(root));
    if (root instanceof ViewGroup) {
      for (int i = 0; i < ((ViewGroup) root).getChildCount(); i++) {
        found.addAll(views(((ViewGroup) root).getChildAt(i)));
      }
    }
    return found;
  }

  private static String text(Activity activity) {
    StringBuilder all = new StringBuilder();
    for (View view : views(activity.getWindow().getDecorView())) {
      if (view instanceof TextView) {
        all.append(((TextView) view).getText()).append('\n');
      }
    }
    return all.toString();
  }

  private static void press(Activity activity, String name) {
    for (View view : views(activity.getWindow().getDecorView())) {
      if (view instanceof Button && ((Button) view).getText().toString().equals(name)) {
        assertTrue(view.performClick());
        return;
      }
    }
    throw new AssertionError("there is no button " + name);
  }

  /** The model has a thread of its own, which answers in its own time. */
  private static String wait(Activity activity, Predicate<String> wanted) throws InterruptedException {
    for (int i = 0; i < 600; i++) {
      shadowOf(Looper.getMainLooper()).idle();
      if (wanted.test(text(activity))) {
        return text(activity);
      }
      Thread.sleep(50);
    }
    throw new AssertionError(text(activity));
  }

  @Test
  public void aPictureBecomesLabelsWithTheTimeItTook() throws InterruptedException {
    Activity activity = Robolectric.buildActivity(MainActivity.class).setup().get();
    Bitmap bitmap = Bitmap.createBitmap(60, 45, Bitmap.Config.ARGB_8888);
    bitmap.eraseColor(0xff4080c0);
    ByteArrayOutputStream png = new ByteArrayOutputStream();
    assertTrue(bitmap.compress(Bitmap.CompressFormat.PNG, 100, png));
    assertTrue(BitmapFactory.decodeByteArray(png.toByteArray(), 0, png.size()) != null);
    Uri uri = Uri.parse("content://some.app/photo");
    shadowOf(activity.getContentResolver())
        .registerInputStreamSupplier(uri, () -> new ByteArrayInputStream(png.toByteArray()));
    press(activity, "Choose a picture");
    Intent asked = shadowOf(activity).getNextStartedActivityForResult().intent;
    shadowOf(activity).receiveResult(asked, Activity.RESULT_OK, new Intent().setData(uri));
    String answer = wait(activity, text -> text.contains("ms with preprocessing"));
    assertTrue(answer, answer.contains("%  ") && answer.contains("onnx-none"));
  }

  @Test
  public void theModelPageShowsTheManifestAndTheSelfTest() throws InterruptedException {
    Activity activity = Robolectric.buildActivity(ModelActivity.class).setup().get();
    String about = wait(activity, text -> text.contains("6 labels"));
    assertTrue(about, about.contains("▶ onnx-none") && about.contains("float32"));
    press(activity, "Run the self-test");
    wait(activity, text -> text.contains("Self-test passed"));
  }

  @Test
  public void aPictureThatIsNoneIsSaid() throws InterruptedException {
    Activity activity = Robolectric.buildActivity(MainActivity.class).setup().get();
    Uri uri = Uri.parse("content://some.app/text");
    shadowOf(activity.getContentResolver())
        .registerInputStreamSupplier(uri, () -> new ByteArrayInputStream("no picture".getBytes()));
    press(activity, "Choose a picture");
    Intent asked = shadowOf(activity).getNextStartedActivityForResult().intent;
    shadowOf(activity).receiveResult(asked, Activity.RESULT_OK, new Intent().setData(uri));
    wait(activity, text -> text.contains("no picture that Android reads"));
  }
}
