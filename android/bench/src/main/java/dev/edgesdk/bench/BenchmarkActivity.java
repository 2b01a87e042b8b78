package dev.edgesdk.bench;

import android.app.Activity;
import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.ServiceConnection;
import android.content.pm.PackageManager;
import android.os.Bundle;
import android.os.IBinder;
import android.util.Log;
import android.view.WindowManager;
import android.widget.TextView;
import dev.edgesdk.DeviceInfo;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * Runs a profile and writes {@code edgesdk.bench/1}:
 *
 * <pre>
 * adb shell am start -W -S -n dev.edgesdk.bench/.BenchmarkActivity --es profile quick --es threads 4
 * adb pull /sdcard/Android/media/dev.edgesdk.bench/result.json
 * </pre>
 *
 * The end is a line {@code BENCHMARK_DONE PATH} or {@code BENCHMARK_FAILED WHY} in the log, tag {@code edgesdk.bench}.
 */
public final class BenchmarkActivity extends Activity {
  static final String TAG = "edgesdk.bench";
  static final List<String> NAMES = Collections.unmodifiableList(
      Arrays.asList("profile", "bundle", "variant", "threads", "seed", "energy", "args"));
  private static final long PATIENCE_MS = 300_000;

  private TextView text;

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    getWindow().addFlags(WindowManager.LayoutParams.FLAG_KEEP_SCREEN_ON);
    text = new TextView(this);
    text.setFitsSystemWindows(true);
    text.setTextSize(16);
    setContentView(text);
    if (saved == null) {
      begin(getIntent());
    }
  }

  @Override
  protected void onNewIntent(Intent intent) {
    super.onNewIntent(intent);
    begin(intent);
  }

  private void begin(Intent intent) {
    Map<String, String> given = new HashMap<>();
    Bundle extras = intent.getExtras();
    for (String name : extras == null ? Collections.<String>emptySet() : extras.keySet()) {
      given.put(name, String.valueOf(extras.get(name)));
    }
    new Thread(() -> run(given), "bench").start();
  }

  /** Where {@code adb pull} may read on every Android, without root and without a debug build. */
  static File folder(Context context) {
    for (File media : context.getExternalMediaDirs()) {
      if (media != null && (media.isDirectory() || media.mkdirs())) {
        return media;
      }
    }
    File external = context.getExternalFilesDir(null);
    return external == null ? context.getFilesDir() : external;
  }

  private void run(Map<String, String> given) {
    File to = new File(folder(this), "result.json");
    try {
      if (to.exists() && !to.delete()) {
        throw new IOException(to + " can't be deleted.");
      }
      Proc.write(to, report(given).toString());
      tell("BENCHMARK_DONE " + to);
    } catch (IOException | JSONException | IllegalArgumentException | InterruptedException failure) {
      tell("BENCHMARK_FAILED " + failure.getMessage());
    }
    BenchInstrumentation.finished(to);
  }

  private void tell(String line) {
    Log.i(TAG, line);
    runOnUiThread(() -> text.append(line + "\n"));
  }

  private JSONObject report(Map<String, String> given) throws IOException, JSONException, InterruptedException {
    Options options = Options.of(given);
    DeviceInfo start = DeviceInfo.read(this);
    JSONArray preflight = Phone.preflight(start);
    long spin = Spin.probe();
    List<JSONObject> runs = new ArrayList<>();
    for (int index = 0; index < options.processes; index++) {
      Cooldown cooldown = Cooldown.await(this, options, start, spin);
      tell("process " + (index + 1) + " of " + options.processes);
      JSONObject run = process(given, index, PATIENCE_MS);
      if (run.has("error")) {
        throw new IOException(run.getString("error"));
      }
      JSONObject record = run.getJSONObject("process").put("cooldown_s", cooldown.seconds).put("retries", 0);
      if (cooldown.timedOut) {
        record.put("cooldown_timeout", true);
      }
      runs.add(run);
    }
    JSONObject energy = null;
    if (options.energySeconds > 0) { // a process of its own, after those that are timed
      tell("energy: 2 × " + options.energySeconds + " s");
      energy = process(given, BenchService.ENERGY, PATIENCE_MS + 2000L * options.energySeconds);
      if (energy.has("error")) {
        throw new IOException(energy.getString("error"));
      }
    }
    List<String> command = new ArrayList<>(Collections.singletonList("am start"));
    for (String name : NAMES) {
      if (given.containsKey(name)) {
        command.add(name + "=" + given.get(name));
      }
    }
    return new Report(options, Phone.device(start), preflight, runs, energy).make(version(), command, !given.isEmpty());
  }

  private JSONObject process(Map<String, String> given, int index, long patienceMs)
      throws IOException, JSONException, InterruptedException {
    File file = new File(getFilesDir(), "process-" + index + ".json");
    if (file.exists() && !file.delete()) {
      throw new IOException(file + " can't be deleted.");
    }
    Intent intent = new Intent(this, BenchService.class).putExtra(BenchService.INDEX, index)
        .putExtra(BenchService.FILE, file.getPath());
    for (Map.Entry<String, String> one : given.entrySet()) {
      intent.putExtra(one.getKey(), one.getValue());
    }
    AtomicBoolean gone = new AtomicBoolean();
    ServiceConnection connection = new ServiceConnection() {
      @Override
      public void onServiceConnected(ComponentName name, IBinder service) {}

      @Override
      public void onServiceDisconnected(ComponentName name) {
        gone.set(true);
      }
    };
    // As important as the screen: the system would give a service behind it the small cores.
    if (!bindService(intent, connection, BIND_AUTO_CREATE | BIND_IMPORTANT)) {
      throw new IOException("The measuring process does not start.");
    }
    try {
      long end = System.currentTimeMillis() + patienceMs;
      while (!file.exists() && !gone.get() && System.currentTimeMillis() < end) {
        Thread.sleep(50);
      }
    } finally {
      unbindService(connection);
    }
    if (!file.exists()) {
      return BenchService.failure(new IOException(gone.get()
          ? "RUNNER_CRASHED: process " + index + " died; adb logcat says why."
          : "Process " + index + " gave no result in " + patienceMs / 1000 + " s."));
    }
    return new JSONObject(Proc.read(file));
  }

  private String version() {
    try {
      String name = getPackageManager().getPackageInfo(getPackageName(), 0).versionName;
      return name == null ? "unknown" : name;
    } catch (PackageManager.NameNotFoundException impossible) {
      return "unknown";
    }
  }
}
