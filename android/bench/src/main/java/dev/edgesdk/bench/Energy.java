package dev.edgesdk.bench;

import org.json.JSONException;
import org.json.JSONObject;

/**
 * Energy by the battery's charge counter, §7: what the battery lost in at least ten minutes of inferences, minus what it
 * lost in an idle run of the same length, at the mean voltage. The counter moves in steps, often of 1 mAh.
 */
final class Energy {
  static final double LEAST_SECONDS = 600;
  private static final double STEP_UAH = 1000;
  private static final double JOULES_PER_UAH_VOLT = 3600e-6;

  private Energy() {}

  /**
   * The report's block.
   *
   * @param run {@code idle_before, idle_after, load_before, load_after} (states) and {@code inferences}
   */
  static JSONObject of(JSONObject run) throws JSONException {
    JSONObject[] states = new JSONObject[4];
    String[] names = {"idle_before", "idle_after", "load_before", "load_after"};
    for (int i = 0; i < names.length; i++) {
      states[i] = run.getJSONObject(names[i]);
      if (states[i].optBoolean("charging")) {
        return none("The device hangs on a charger, so the counter measures charging. Use adb over Wi-Fi.");
      }
      if (!states[i].has("charge_uah") || !states[i].has("voltage_uv")) {
        return none("The device has no charge counter.");
      }
    }
    double idleSeconds = seconds(states[0], states[1]);
    double loadSeconds = seconds(states[2], states[3]);
    if (idleSeconds < LEAST_SECONDS || loadSeconds < LEAST_SECONDS) {
      return none("Less than " + (int) LEAST_SECONDS + " s: too few steps of the counter.");
    }
    double idleWatts = joules(states[0], states[1]) / idleSeconds;
    double loadWatts = joules(states[2], states[3]) / loadSeconds;
    double step = STEP_UAH * JOULES_PER_UAH_VOLT * volts(states[2], states[3]);
    double spent = (loadWatts - idleWatts) * loadSeconds;
    long inferences = run.getLong("inferences");
    boolean seen = spent > step && inferences > 0;
    return new JSONObject()
        .put("method", "charge_counter")
        .put("energy_per_inference_j", seen ? Double.valueOf(spent / inferences) : JSONObject.NULL)
        .put("mean_power_w", loadWatts)
        .put("idle_power_w", idleWatts)
        .put("duration_s", loadSeconds)
        .put("resolution_note", seen
            ? String.format(java.util.Locale.ROOT, "± %.5f J per inference: one step of 1 mAh over %d inferences.",
                step / inferences, inferences)
            : "The difference to the idle run is below one step of the counter (1 mAh).");
  }

  private static JSONObject none(String why) throws JSONException {
    return new JSONObject().put("method", "none").put("energy_per_inference_j", JSONObject.NULL)
        .put("resolution_note", why);
  }

  private static double seconds(JSONObject before, JSONObject after) throws JSONException {
    return (after.getLong("t_ns") - before.getLong("t_ns")) / 1e9;
  }

  private static double volts(JSONObject before, JSONObject after) throws JSONException {
    return (before.getDouble("voltage_uv") + after.getDouble("voltage_uv")) / 2e6;
  }

  /** What the battery lost: the counter falls. */
  private static double joules(JSONObject before, JSONObject after) throws JSONException {
    return (before.getDouble("charge_uah") - after.getDouble("charge_uah")) * JOULES_PER_UAH_VOLT
        * volts(before, after);
  }
}
