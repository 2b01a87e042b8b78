package dev.edgesdk.bench;

import java.util.ArrayList;
import java.util.List;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** The figures over all processes. An absent figure is null, never 0. */
final class Results {
  final Stats all;
  private final List<Stats> each = new ArrayList<>();
  private final List<JSONObject> processes = new ArrayList<>();

  Results(List<JSONObject> runs) throws JSONException {
    int total = 0;
    for (JSONObject run : runs) {
      JSONObject process = run.getJSONObject("process");
      processes.add(process);
      Stats stats = new Stats(Report.longs(process.getJSONObject("measure").getJSONArray("samples_ns")));
      each.add(stats);
      total += stats.n();
    }
    long[] pooled = new long[total];
    int at = 0;
    for (Stats stats : each) {
      System.arraycopy(stats.order, 0, pooled, at, stats.n());
      at += stats.n();
    }
    all = new Stats(pooled);
  }

  /** Null where there are too few samples to state it. */
  Double percentile(double p) {
    return all.interval(p) == null ? null : Double.valueOf(all.percentile(p));
  }

  /** Of the processes' medians; null for one process. */
  Double betweenCv() {
    if (each.size() < 2) {
      return null;
    }
    double mean = 0;
    for (Stats stats : each) {
      mean += stats.median() / each.size();
    }
    double sum = 0;
    for (Stats stats : each) {
      sum += (stats.median() - mean) * (stats.median() - mean);
    }
    return Math.sqrt(sum / (each.size() - 1)) / mean;
  }

  JSONObject latency() throws JSONException {
    double within = 0;
    double lag = 0;
    for (Stats stats : each) {
      within += stats.stdev() / stats.mean() / each.size();
      lag += stats.lag1() / each.size();
    }
    JSONObject found = new JSONObject()
        .put("n", all.n())
        .put("processes", each.size())
        .put("min_ns", all.sorted[0])
        .put("mean_ns", all.mean())
        .put("p50_ns", all.median())
        .put("p90_ns", orNull(percentile(0.9)))
        .put("p95_ns", orNull(percentile(0.95)))
        .put("p99_ns", orNull(percentile(0.99)))
        .put("p999_ns", orNull(percentile(0.999)))
        .put("max_ns", all.sorted[all.n() - 1])
        .put("stdev_ns", all.stdev())
        .put("mad_ns", all.mad());
    return found
        // The interval of the median is over processes, and needs three of them.
        .put("p50_ci95_ns", JSONObject.NULL)
        .put("p90_ci95_ns", interval(0.9))
        .put("p99_ci95_ns", interval(0.99))
        .put("between_process_cv", orNull(betweenCv()))
        .put("within_process_cv", within)
        .put("lag1_autocorr", lag)
        .put("drift_pct", each.get(each.size() - 1).driftPercent())
        .put("outliers_mild", all.outliers(1.5))
        .put("outliers_severe", all.outliers(3))
        .put("percentile_method", "linear");
  }

  private Object interval(double p) throws JSONException {
    double[] found = all.interval(p);
    return found == null ? JSONObject.NULL : new JSONArray().put(found[0]).put(found[1]);
  }

  private static Object orNull(Double value) {
    return value == null ? JSONObject.NULL : value;
  }

  JSONObject load() throws JSONException {
    long[] first = new long[processes.size()];
    for (int i = 0; i < first.length; i++) {
      first[i] = processes.get(i).getLong("first_inference_ns");
    }
    double typical = new Stats(first).median();
    // Whether the file's pages were in memory isn't known, so neither "cold" nor "warm" is claimed.
    return new JSONObject()
        .put("cold_p50_ns", JSONObject.NULL)
        .put("warm_p50_ns", JSONObject.NULL)
        .put("first_inference_p50_ns", typical)
        .put("startup_overhead_ns", typical - all.median());
  }

  JSONObject memory() throws JSONException {
    Long peak = null;
    Long before = null;
    for (JSONObject process : processes) {
      JSONObject memory = process.getJSONObject("memory");
      for (String stage : new String[] {"after_load", "after_first", "end"}) {
        JSONObject one = memory.getJSONObject(stage);
        if (one.has("peak_rss_bytes")) {
          peak = Math.max(peak == null ? 0 : peak, one.getLong("peak_rss_bytes"));
        }
      }
      JSONObject baseline = memory.getJSONObject("baseline");
      if (baseline.has("rss_bytes")) {
        before = Math.min(before == null ? Long.MAX_VALUE : before, baseline.getLong("rss_bytes"));
      }
    }
    return new JSONObject()
        .put("peak_rss_bytes", peak == null ? JSONObject.NULL : peak)
        .put("model_increment_bytes", peak == null || before == null ? JSONObject.NULL : Long.valueOf(peak - before));
  }

  JSONObject thermal(Flags flags, List<JSONObject> marks) throws JSONException {
    Integer most = null;
    Integer start = null;
    Integer end = null;
    JSONArray series = new JSONArray();
    for (JSONObject process : processes) {
      for (String when : new String[] {"state_before", "state_after"}) {
        JSONObject state = process.optJSONObject(when);
        if (state != null) {
          series.put(state);
        }
        if (state != null && !state.isNull("thermal_status") && state.has("thermal_status")) {
          end = state.getInt("thermal_status");
          start = start == null ? end : start;
          most = Math.max(most == null ? 0 : most, end);
        }
      }
    }
    for (JSONObject mark : marks) {
      series.put(mark);
    }
    return new JSONObject()
        .put("status_start", start == null ? JSONObject.NULL : start)
        .put("status_max", most == null ? JSONObject.NULL : most)
        .put("status_end", end == null ? JSONObject.NULL : end)
        .put("throttled", flags.throttled())
        .put("evidence", flags.evidence())
        .put("series", series);
  }
}
