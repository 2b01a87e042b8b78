package dev.edgesdk.bench;

import android.content.Context;
import dev.edgesdk.DeviceInfo;

/** Waits until the device is as cool as it was: §3 step 4. */
final class Cooldown {
  final double seconds;
  final boolean timedOut;

  private Cooldown(double seconds, boolean timedOut) {
    this.seconds = seconds;
    this.timedOut = timedOut;
  }

  static Cooldown await(Context context, Options options, DeviceInfo start, long spin) throws InterruptedException {
    long begin = System.nanoTime();
    if (options.maxCooldownSeconds == 0) {
      return new Cooldown(0, false);
    }
    while (true) {
      double passed = (System.nanoTime() - begin) / 1e9;
      if (passed >= options.minCooldownSeconds && cool(DeviceInfo.read(context), start, spin)) {
        return new Cooldown(passed, false);
      }
      if (passed >= options.maxCooldownSeconds) {
        return new Cooldown(passed, true);
      }
      Thread.sleep(1000);
    }
  }

  private static boolean cool(DeviceInfo now, DeviceInfo start, long spin) {
    boolean status = now.thermalStatus() == null || now.thermalStatus() == 0;
    Double before = start.batteryCelsius();
    Double after = now.batteryCelsius();
    return status && (before == null || after == null || after <= before + 1.0) && Spin.probe() <= 1.02 * spin;
  }
}
