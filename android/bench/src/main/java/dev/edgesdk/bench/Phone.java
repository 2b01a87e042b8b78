package dev.edgesdk.bench;

import android.content.Context;
import android.os.SystemClock;
import dev.edgesdk.Cpu;
import dev.edgesdk.DeviceInfo;
import dev.edgesdk.EdgeBundle;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** The phone, in the words of the report. */
final class Phone implements ProcessRun.Platform {
  private final Context context;
  private final Options options;

  Phone(Context context, Options options) {
    this.context = context;
    this.options = options;
  }

  @Override
  public EdgeBundle open() throws IOException {
    if (options.bundle.startsWith("/")) {
      return EdgeBundle.open(new File(options.bundle));
    }
    return EdgeBundle.open(context, options.bundle.isEmpty() ? asset() : options.bundle);
  }

  private String asset() throws IOException {
    String[] names = context.getAssets().list("");
    for (String name : names == null ? new String[0] : names) {
      if (name.endsWith(".edge")) {
        return name;
      }
    }
    throw new FileNotFoundException("There is no .edge file in the assets; name one: --es bundle /PATH/NAME.edge");
  }

  @Override
  public int threads() {
    return Cpu.here().threads();
  }

  @Override
  public boolean debuggable() {
    return DeviceInfo.read(context).debuggable();
  }

  @Override
  public Trace.Source trace() {
    return new Trace.Source() {
      @Override
      public String residency() {
        return Trace.residency(new File("/sys/devices/system/cpu/cpufreq"));
      }

      @Override
      public String stat() {
        return Proc.readOrNull(new File("/proc/thread-self/stat"));
      }

      @Override
      public String schedstat() {
        return Proc.readOrNull(new File("/proc/thread-self/schedstat"));
      }
    };
  }

  @Override
  public JSONObject state() throws JSONException {
    return state(DeviceInfo.read(context));
  }

  static JSONObject state(DeviceInfo info) throws JSONException {
    JSONObject now = new JSONObject();
    JSONObject caps = new JSONObject();
    for (Cpu.Cluster cluster : info.cpu().clusters()) {
      put(now, "policy" + cluster.cpus().get(0), cluster.nowHz());
      put(caps, "policy" + cluster.cpus().get(0), cluster.capHz());
    }
    JSONObject state = new JSONObject().put("t_ns", SystemClock.elapsedRealtimeNanos());
    put(state, "thermal_status", info.thermalStatus());
    put(state, "thermal_headroom", info.thermalHeadroom() == null ? null : info.thermalHeadroom().doubleValue());
    put(state, "battery_c", info.batteryCelsius());
    put(state, "battery_level_pct", info.batteryLevel());
    put(state, "charging", info.charging());
    put(state, "voltage_uv", info.batteryVolts() == null ? null : Math.round(info.batteryVolts() * 1e6));
    put(state, "charge_uah", info.batteryMicroampereHours());
    return state.put("freq_hz", now).put("freq_cap_hz", caps);
  }

  private static void put(JSONObject to, String name, Object value) throws JSONException {
    if (value != null) {
      to.put(name, value);
    }
  }

  /** The schema's {@code device}, with what else {@link Report} asks for. */
  static JSONObject device(DeviceInfo info) throws JSONException {
    JSONArray clusters = new JSONArray();
    List<Cpu.Cluster> all = info.cpu().clusters();
    for (int i = 0; i < all.size(); i++) {
      clusters.put(cluster(i, all.get(i)));
    }
    JSONObject os = new JSONObject().put("name", "Android").put("version", info.osVersion())
        .put("sdk_int", info.sdk()).put("build_fingerprint", info.fingerprint())
        .put("security_patch", info.securityPatch()).put("build_type", info.buildType());
    put(os, "kernel", info.kernel());
    JSONObject device = new JSONObject()
        .put("manufacturer", info.manufacturer()).put("model", info.model()).put("device", info.device())
        .put("os", os).put("abi", info.abi())
        .put("memory_total_bytes", info.memoryTotal()).put("page_size_bytes", info.pageSize())
        .put("cpu", new JSONObject().put("count", info.cpu().count()).put("clusters", clusters));
    put(device, "soc_manufacturer", info.socManufacturer());
    put(device, "soc_model", info.socModel());
    put(device, "battery_present", info.batteryLevel() == null ? null : Boolean.TRUE);
    return new JSONObject().put("device", device).put("emulated", info.emulator())
        .put("debuggable", info.debuggable());
  }

  private static JSONObject cluster(int id, Cpu.Cluster cluster) throws JSONException {
    long mask = 0;
    for (int cpu : cluster.cpus()) {
      mask |= 1L << cpu;
    }
    JSONObject found = new JSONObject().put("id", id).put("cpus", new JSONArray(cluster.cpus()))
        .put("mask", Long.toHexString(mask));
    put(found, "capacity", cluster.capacity());
    put(found, "min_freq_hz", cluster.minHz());
    put(found, "max_freq_hz", cluster.maxHz());
    put(found, "governor", cluster.governor());
    return found;
  }

  /** §3 step 1, as far as an app can look. */
  static JSONArray preflight(DeviceInfo info) throws JSONException {
    JSONArray checks = new JSONArray();
    check(checks, "emulator", info.emulator() ? "fail" : "pass", info.emulator(), "Timings of an emulator say nothing.");
    check(checks, "build_type", info.buildType().equals("user") ? "pass" : "fail", info.buildType(), "user is wanted.");
    check(checks, "debuggable", info.debuggable() ? "warn" : "pass", info.debuggable(), "Code of debug builds is slow.");
    Integer level = info.batteryLevel();
    check(checks, "battery_level", level == null ? "skipped" : level < 25 ? "fail" : "pass", level, ">= 25 %");
    check(checks, "low_power_mode", info.powerSave() ? "fail" : "pass", info.powerSave(), "Saving power slows down.");
    Integer thermal = info.thermalStatus();
    check(checks, "thermal_status", thermal == null ? "skipped" : thermal > 0 ? "fail" : "pass", thermal, "0");
    check(checks, "screen_on", info.screenOn() ? "pass" : "warn", info.screenOn(), "Apps behind a dark screen are slow.");
    load(checks, Proc.readOrNull(new File("/proc/loadavg")), info.cpu().count());
    return checks;
  }

  /** Most Androids hide it from apps; then {@code wait_share} of each process tells of others that want the cores. */
  static void load(JSONArray checks, String text, int cores) throws JSONException {
    try {
      Double average = text == null ? null : Double.valueOf(text.trim().split("\\s+")[0]);
      String status = average == null ? "skipped" : average > 0.5 * cores ? "warn" : "pass";
      check(checks, "load_average", status, average,
          average == null ? "Android hides it from apps." : "At most half of the cores.");
    } catch (NumberFormatException other) {
      check(checks, "load_average", "skipped", null, "It isn't a number.");
    }
  }

  private static void check(JSONArray to, String name, String status, Object value, String message)
      throws JSONException {
    to.put(new JSONObject().put("check", name).put("status", status)
        .put("value", value == null ? JSONObject.NULL : value).put("message", message));
  }
}
