package dev.edgesdk;

import android.app.ActivityManager;
import android.content.Context;
import android.content.Intent;
import android.content.IntentFilter;
import android.content.pm.ApplicationInfo;
import android.os.BatteryManager;
import android.os.Build;
import android.os.PowerManager;
import android.os.Process;
import android.system.Os;
import android.system.OsConstants;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * The device, and the state it was in when this was read. What the device doesn't tell is null.
 *
 * <p>Cheap enough for once a second; not for the inside of a loop that is timed.
 */
public final class DeviceInfo {
  private final Context context;
  private final @Nullable Intent battery;
  private final @Nullable Integer thermalStatus;
  private final @Nullable Float thermalHeadroom;
  private final boolean powerSave;
  private final boolean screenOn;

  private DeviceInfo(Context context) {
    this.context = context;
    this.battery = context.registerReceiver(null, new IntentFilter(Intent.ACTION_BATTERY_CHANGED));
    PowerManager power = (PowerManager) context.getSystemService(Context.POWER_SERVICE);
    this.thermalStatus = Build.VERSION.SDK_INT >= 29 ? Api29.thermalStatus(power) : null;
    this.thermalHeadroom = Build.VERSION.SDK_INT >= 30 ? Api30.thermalHeadroom(power) : null;
    this.powerSave = power.isPowerSaveMode();
    this.screenOn = power.isInteractive();
  }

  /** Reads everything now. */
  public static DeviceInfo read(Context context) {
    return new DeviceInfo(context.getApplicationContext() == null ? context : context.getApplicationContext());
  }

  /** Of the maker: {@code Google}. */
  public String manufacturer() {
    return Build.MANUFACTURER;
  }

  /** As sold: {@code Pixel 8}. */
  public String model() {
    return Build.MODEL;
  }

  /** The code name of the hardware. */
  public String device() {
    return Build.DEVICE;
  }

  /** Maker of the chip, from Android 12. */
  public @Nullable String socManufacturer() {
    return Build.VERSION.SDK_INT >= 31 ? Api31.socManufacturer() : null;
  }

  /** Name of the chip, from Android 12. */
  public @Nullable String socModel() {
    return Build.VERSION.SDK_INT >= 31 ? Api31.socModel() : null;
  }

  /** Of Android: {@code 15}. */
  public String osVersion() {
    return Build.VERSION.RELEASE;
  }

  /** The API level. */
  public int sdk() {
    return Build.VERSION.SDK_INT;
  }

  /** Names the build exactly. */
  public String fingerprint() {
    return Build.FINGERPRINT;
  }

  /** {@code user}, {@code userdebug} or {@code eng}; timings are to be trusted only for the first. */
  public String buildType() {
    return Build.TYPE;
  }

  /** The date of the security patches. */
  public String securityPatch() {
    return Build.VERSION.SECURITY_PATCH;
  }

  /** The release of Linux. */
  public @Nullable String kernel() {
    return System.getProperty("os.version");
  }

  /** Whether it only pretends to be a phone: its timings say nothing. */
  public boolean emulator() {
    String print = Build.FINGERPRINT.toLowerCase(Locale.ROOT);
    return print.startsWith("generic") || print.startsWith("unknown") || print.contains("emulator")
        || print.contains("vbox") || Build.MODEL.startsWith("sdk_gphone") || Build.HARDWARE.contains("ranchu")
        || Build.HARDWARE.contains("goldfish") || Build.HARDWARE.contains("cutf");
  }

  /** What this process runs. */
  public String abi() {
    List<String> all = abis();
    return all.isEmpty() ? Build.SUPPORTED_ABIS[0] : all.get(0);
  }

  /** What this process could load, the best first. */
  public List<String> abis() {
    String[] all = Process.is64Bit() ? Build.SUPPORTED_64_BIT_ABIS : Build.SUPPORTED_32_BIT_ABIS;
    return Collections.unmodifiableList(Arrays.asList(all.clone()));
  }

  /** The cores. */
  public Cpu cpu() {
    return Cpu.here();
  }

  /** How many threads an engine gets when the app doesn't say. */
  public int threads() {
    return Cpu.here().threads();
  }

  /** In bytes: 4096, or 16384 on newer devices. */
  public long pageSize() {
    return Os.sysconf(OsConstants._SC_PAGESIZE);
  }

  /** All memory of the device, in bytes. */
  public long memoryTotal() {
    return memory().totalMem;
  }

  /** Memory that is free now, in bytes. */
  public long memoryFree() {
    return memory().availMem;
  }

  /** How many MB of Java heap the app may use. Models are outside of it. */
  public int memoryClass() {
    return activities().getMemoryClass();
  }

  /** Whether it has so little memory that apps should do without extras. */
  public boolean lowRam() {
    return activities().isLowRamDevice();
  }

  /** 0 none, 1 light, 2 moderate, 3 severe, … from Android 10. */
  public @Nullable Integer thermalStatus() {
    return thermalStatus;
  }

  /** 1.0 is where throttling becomes severe, from Android 11; null when asked more than once a second. */
  public @Nullable Float thermalHeadroom() {
    return thermalHeadroom;
  }

  /** In percent. */
  public @Nullable Integer batteryLevel() {
    Integer level = extra(BatteryManager.EXTRA_LEVEL);
    Integer scale = extra(BatteryManager.EXTRA_SCALE);
    return level == null || scale == null || scale == 0 ? null : 100 * level / scale;
  }

  /** In degrees Celsius. */
  public @Nullable Double batteryCelsius() {
    Integer tenths = extra(BatteryManager.EXTRA_TEMPERATURE);
    return tenths == null ? null : tenths / 10.0;
  }

  /** In volts. */
  public @Nullable Double batteryVolts() {
    Integer millivolts = extra(BatteryManager.EXTRA_VOLTAGE);
    return millivolts == null ? null : millivolts / 1000.0;
  }

  /** What the battery holds, in µAh; it falls while the device works. Null where there is no counter. */
  public @Nullable Integer batteryMicroampereHours() {
    BatteryManager manager = (BatteryManager) context.getSystemService(Context.BATTERY_SERVICE);
    int value = manager == null ? 0 : manager.getIntProperty(BatteryManager.BATTERY_PROPERTY_CHARGE_COUNTER);
    return value <= 0 ? null : Integer.valueOf(value); // Integer.MIN_VALUE, or 0 on older ones
  }

  /** Whether it hangs on a charger. */
  public @Nullable Boolean charging() {
    Integer plugged = extra(BatteryManager.EXTRA_PLUGGED);
    return plugged == null ? null : plugged != 0;
  }

  /** Whether the user or the system saves power, which slows models down. */
  public boolean powerSave() {
    return powerSave;
  }

  /** Whether the screen is on; the system slows apps behind a dark one. */
  public boolean screenOn() {
    return screenOn;
  }

  /** Whether the app is a debug build: its timings say nothing about a released one. */
  public boolean debuggable() {
    return (context.getApplicationInfo().flags & ApplicationInfo.FLAG_DEBUGGABLE) != 0;
  }

  private ActivityManager activities() {
    return (ActivityManager) context.getSystemService(Context.ACTIVITY_SERVICE);
  }

  private ActivityManager.MemoryInfo memory() {
    ActivityManager.MemoryInfo info = new ActivityManager.MemoryInfo();
    activities().getMemoryInfo(info);
    return info;
  }

  private @Nullable Integer extra(String name) {
    return battery == null || !battery.hasExtra(name) ? null : Integer.valueOf(battery.getIntExtra(name, 0));
  }

  /** One line for a log or a screen. */
  @Override
  public String toString() {
    return manufacturer() + " " + model() + ", Android " + osVersion() + ", " + abi() + ", " + Cpu.here().count()
        + " cores, " + threads() + " threads";
  }

  @SinceApi(29)
  private static final class Api29 {
    static int thermalStatus(PowerManager power) {
      return power.getCurrentThermalStatus();
    }
  }

  @SinceApi(30)
  private static final class Api30 {
    static @Nullable Float thermalHeadroom(PowerManager power) {
      float headroom = power.getThermalHeadroom(10);
      return Float.isNaN(headroom) ? null : Float.valueOf(headroom);
    }
  }

  @SinceApi(31)
  private static final class Api31 {
    static String socManufacturer() {
      return Build.SOC_MANUFACTURER;
    }

    static String socModel() {
      return Build.SOC_MODEL;
    }
  }
}
