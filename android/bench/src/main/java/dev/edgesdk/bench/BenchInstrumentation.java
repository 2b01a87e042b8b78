package dev.edgesdk.bench;

import android.app.Activity;
import android.app.Instrumentation;
import android.content.Intent;
import android.os.Bundle;
import java.io.File;
import java.util.concurrent.CountDownLatch;

/** The same run, for those who wait: {@code am instrument -w -e profile quick dev.edgesdk.bench/.BenchInstrumentation}. */
public final class BenchInstrumentation extends Instrumentation {
  private static final CountDownLatch DONE = new CountDownLatch(1);
  private static volatile File result;

  private Bundle arguments;

  static void finished(File file) {
    result = file;
    DONE.countDown();
  }

  @Override
  public void onCreate(Bundle given) {
    super.onCreate(given);
    arguments = given;
    start();
  }

  @Override
  public void onStart() {
    super.onStart();
    Intent intent = new Intent(getTargetContext(), BenchmarkActivity.class).addFlags(Intent.FLAG_ACTIVITY_NEW_TASK);
    for (String name : BenchmarkActivity.NAMES) {
      if (arguments.containsKey(name)) {
        intent.putExtra(name, arguments.getString(name));
      }
    }
    startActivitySync(intent);
    Bundle answer = new Bundle();
    try {
      DONE.await();
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
    boolean there = result != null && result.isFile();
    answer.putString("result", String.valueOf(result));
    finish(there ? Activity.RESULT_OK : Activity.RESULT_CANCELED, answer);
  }
}
