package dev.edgesdk.bench;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** The flags of the protocol, §12, and what they make of a run. */
final class Flags {
  private static final Set<String> INVALID = new HashSet<>(Arrays.asList(
      "EMULATED_TIMING", "OUTPUT_MISMATCH", "MODEL_HASH_MISMATCH", "RUNNER_CRASHED", "TOO_FEW_SAMPLES", "DEBUG_BUILD",
      "DEVICE_LOST"));
  private static final Set<String> INFO = new HashSet<>(Arrays.asList("CHARGING", "CLOCKS_FIXED"));
  private static final Set<String> THROTTLE = new HashSet<>(Arrays.asList(
      "THERMAL_STATUS_NONZERO", "FREQ_CAPPED", "FREQ_DROPPED", "SPIN_PROBE_SLOW"));

  private final JSONArray flags = new JSONArray();
  private final Set<String> codes = new HashSet<>();
  private final JSONArray evidence = new JSONArray();

  void add(String code, String message, Integer process) throws JSONException {
    String severity = INVALID.contains(code) ? "invalid" : INFO.contains(code) ? "info" : "warning";
    JSONObject flag = new JSONObject().put("code", code).put("severity", severity).put("message", message);
    if (process != null) {
      flag.put("process", process.intValue());
    }
    flags.put(flag);
    codes.add(code);
    if (THROTTLE.contains(code)) {
      evidence.put(code + ": " + message);
    }
  }

  /** A flag that is a sign of throttling in this case only: §6 counts a drift upwards, not one downwards. */
  void addSign(String code, String message, Integer process) throws JSONException {
    add(code, message, process);
    evidence.put(code + ": " + message);
  }

  boolean has(String code) {
    return codes.contains(code);
  }

  boolean throttled() {
    return evidence.length() > 0;
  }

  JSONArray evidence() {
    return evidence;
  }

  boolean invalid() {
    for (String code : codes) {
      if (INVALID.contains(code)) {
        return true;
      }
    }
    return false;
  }

  /** Semivalid: too few iterations although the duration was met, or any sign of throttling. */
  JSONObject validity() throws JSONException {
    boolean few = codes.contains("MIN_ITERATIONS_NOT_MET");
    String status = invalid() ? "invalid" : few || throttled() ? "semivalid" : "valid";
    return new JSONObject().put("status", status).put("flags", flags);
  }
}
