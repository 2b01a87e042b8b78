package dev.edgesdk.bench;

import android.app.Service;
import android.content.Intent;
import android.os.Binder;
import android.os.IBinder;
import android.os.Process;
import java.io.File;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.json.JSONException;
import org.json.JSONObject;

/** One measurement in a process that lives for nothing else. The screen's process waits for the file it writes. */
public final class BenchService extends Service {
  static final String INDEX = "index";
  static final int ENERGY = -1;
  static final String FILE = "file";

  @Override
  public IBinder onBind(Intent intent) {
    Map<String, String> given = new HashMap<>();
    for (String name : BenchmarkActivity.NAMES) {
      if (intent.hasExtra(name)) {
        given.put(name, intent.getStringExtra(name));
      }
    }
    File to = new File(String.valueOf(intent.getStringExtra(FILE)));
    int index = intent.getIntExtra(INDEX, 0);
    new Thread(() -> write(to, result(given, index)), "measure").start();
    return new Binder();
  }

  private JSONObject result(Map<String, String> given, int index) {
    try {
      Options options = Options.of(given);
      ProcessRun run = new ProcessRun(options, new Phone(this, options));
      if (index == ENERGY) {
        return run.energy();
      }
      JSONObject found = run.run(index);
      found.getJSONObject("process").put("pid", Process.myPid());
      return found;
    } catch (Exception | LinkageError | OutOfMemoryError failure) { // of engines and files: the report tells it
      return failure(failure);
    }
  }

  static JSONObject failure(Throwable failure) {
    JSONObject found = new JSONObject();
    try {
      found.put("error", failure.getClass().getSimpleName() + ": " + failure.getMessage());
    } catch (JSONException never) {
      throw new IllegalStateException(never); // only a null name is refused
    }
    return found;
  }

  private static void write(File to, JSONObject result) {
    try {
      Proc.write(to, result.toString());
    } catch (IOException full) {
      android.util.Log.e(BenchmarkActivity.TAG, "The result can't be written.", full);
      Process.killProcess(Process.myPid()); // the screen then sees that this process is gone
    }
  }

  @Override
  public boolean onUnbind(Intent intent) {
    Process.killProcess(Process.myPid());
    return false;
  }
}
