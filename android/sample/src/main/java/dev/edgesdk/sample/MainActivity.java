package dev.edgesdk.sample;

import android.app.Activity;
import android.content.ActivityNotFoundException;
import android.content.ContentResolver;
import android.content.Intent;
import android.content.pm.ApplicationInfo;
import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.media.ExifInterface;
import android.net.Uri;
import android.os.Bundle;
import android.provider.MediaStore;
import android.widget.ImageView;
import android.widget.TextView;
import dev.edgesdk.Label;
import dev.edgesdk.Picture;
import dev.edgesdk.Pictures;
import dev.edgesdk.Session;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Locale;

/** A picture in, labels out, with the time it took. */
public final class MainActivity extends Activity {
  private static final int CHOSEN = 1;
  private static final int TAKEN = 2;
  private static final int LONGEST_SIDE = 2048;

  private ImageView image;
  private TextView answer;

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    Screen screen = new Screen(this);
    screen.button("Choose a picture", () -> ask(
        new Intent(Intent.ACTION_OPEN_DOCUMENT).addCategory(Intent.CATEGORY_OPENABLE).setType("image/*"), CHOSEN));
    screen.button("Take a picture", () -> ask(new Intent(MediaStore.ACTION_IMAGE_CAPTURE), TAKEN));
    screen.button("Model and self-test", () -> startActivity(new Intent(this, ModelActivity.class)));
    image = new ImageView(this);
    image.setAdjustViewBounds(true);
    screen.add(image);
    answer = screen.text("");
  }

  private void ask(Intent intent, int request) {
    try {
      startActivityForResult(intent, request);
    } catch (ActivityNotFoundException none) {
      answer.setText("No app on this device can do that.");
    }
  }

  @Override
  protected void onActivityResult(int request, int result, Intent data) {
    super.onActivityResult(request, result, data);
    if (result != RESULT_OK || data == null) {
      return;
    }
    if (request == CHOSEN && data.getData() != null) {
      Uri uri = data.getData();
      ContentResolver resolver = getContentResolver();
      classify(session -> answer(session, decode(resolver, uri), orientation(resolver, uri)));
    } else if (request == TAKEN && data.getExtras() != null) {
      Bitmap small = data.getExtras().getParcelable("data"); // camera apps return it upright
      classify(session -> answer(session, small, ExifInterface.ORIENTATION_NORMAL));
    }
  }

  private void classify(Model.Work<Answer> work) {
    answer.setText("…");
    Model.with(
        this,
        work,
        found -> {
          image.setImageBitmap(found.bitmap);
          answer.setText(found.text + debugNote());
        },
        answer::setText);
  }

  private String debugNote() {
    boolean debug = (getApplicationInfo().flags & ApplicationInfo.FLAG_DEBUGGABLE) != 0;
    return debug ? "\nThis is a debug build: the times are not those of a release." : "";
  }

  private static Answer answer(Session session, Bitmap bitmap, int exif) {
    Picture picture = Pictures.of(bitmap).withOrientation(exif);
    long start = System.nanoTime();
    List<Label> top = session.classify(picture, 5);
    double millis = (System.nanoTime() - start) / 1e6;
    StringBuilder text = new StringBuilder();
    for (Label label : top) {
      String name = label.name() == null ? "class " + label.index() : label.name();
      text.append(String.format(Locale.ROOT, "%5.1f %%  %s%n", 100 * label.score(), name));
    }
    text.append(String.format(
        Locale.ROOT, "%n%.1f ms with preprocessing, %s%n", millis, session.variant().id()));
    return new Answer(bitmap, text.toString());
  }

  private static Bitmap decode(ContentResolver resolver, Uri uri) throws IOException {
    BitmapFactory.Options options = new BitmapFactory.Options();
    options.inJustDecodeBounds = true;
    read(resolver, uri, options);
    options.inSampleSize = Math.max(1, Math.max(options.outWidth, options.outHeight) / LONGEST_SIDE);
    options.inJustDecodeBounds = false;
    Bitmap bitmap = read(resolver, uri, options);
    if (bitmap == null) {
      throw new IOException("This file is no picture that Android reads.");
    }
    return bitmap;
  }

  private static Bitmap read(ContentResolver resolver, Uri uri, BitmapFactory.Options options) throws IOException {
    try (InputStream in = open(resolver, uri)) {
      return BitmapFactory.decodeStream(in, null, options);
    }
  }

  private static int orientation(ContentResolver resolver, Uri uri) throws IOException {
    try (InputStream in = open(resolver, uri)) {
      return new ExifInterface(in).getAttributeInt(ExifInterface.TAG_ORIENTATION, ExifInterface.ORIENTATION_NORMAL);
    } catch (FileNotFoundException gone) {
      throw gone;
    } catch (IOException noExif) {
      return ExifInterface.ORIENTATION_NORMAL;
    }
  }

  private static InputStream open(ContentResolver resolver, Uri uri) throws IOException {
    InputStream in = resolver.openInputStream(uri);
    if (in == null) {
      throw new FileNotFoundException(uri + " can't be read any more.");
    }
    return in;
  }

  private static final class Answer {
    final Bitmap bitmap;
    final String text;

    Answer(Bitmap bitmap, String text) {
      this.bitmap = bitmap;
      this.text = text;
    }
  }
}
