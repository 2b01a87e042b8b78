package dev.edgesdk;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/** The cores, grouped into clusters of equal ones, from sysfs. */
public final class Cpu {
  private static final int MOST_THREADS = 4;
  private static final String[] SPEEDS = {"cpu_capacity", "cpufreq/cpuinfo_max_freq"};

  /** Holds what this device has: it doesn't change. */
  private static final class Here {
    static final Cpu CPU = read(new File("/sys/devices/system/cpu"), Runtime.getRuntime().availableProcessors());
  }

  /** Cores of one kind. */
  public static final class Cluster {
    final List<Integer> cpus = new ArrayList<>();
    private final File sample;

    Cluster(File sample) {
      this.sample = sample;
    }

    /** Their numbers, ascending. */
    public List<Integer> cpus() {
      return Collections.unmodifiableList(cpus);
    }

    /** Speed relative to the fastest core, which has 1024; null when the system doesn't tell. */
    public @Nullable Long capacity() {
      return number(new File(sample, "cpu_capacity"));
    }

    /** In Hz; null when the system doesn't tell. */
    public @Nullable Long maxHz() {
      return hertz("cpufreq/cpuinfo_max_freq");
    }

    /** In Hz; null when the system doesn't tell. */
    public @Nullable Long minHz() {
      return hertz("cpufreq/cpuinfo_min_freq");
    }

    /** What the system lets it run at now, in Hz: less than {@link #maxHz()} when it is hot. */
    public @Nullable Long capHz() {
      return hertz("cpufreq/scaling_max_freq");
    }

    /** What it runs at now, in Hz. */
    public @Nullable Long nowHz() {
      return hertz("cpufreq/scaling_cur_freq");
    }

    /** Of the frequency: {@code schedutil}. */
    public @Nullable String governor() {
      return line(new File(sample, "cpufreq/scaling_governor"));
    }

    private @Nullable Long hertz(String file) {
      Long kilohertz = number(new File(sample, file));
      return kilohertz == null ? null : kilohertz * 1000;
    }
  }

  private final int count;
  private final List<Cluster> clusters;

  private Cpu(int count, List<Cluster> clusters) {
    this.count = count;
    this.clusters = Collections.unmodifiableList(clusters);
  }

  /** Those of this device. */
  public static Cpu here() {
    return Here.CPU;
  }

  static Cpu read(File folder, int online) {
    List<File> cores = new ArrayList<>();
    for (int i = 0; new File(folder, "cpu" + i).isDirectory(); i++) {
      cores.add(new File(folder, "cpu" + i));
    }
    // The first measure that every core has; cores are never compared by two different ones.
    Map<Long, Cluster> found = new TreeMap<>(Collections.reverseOrder());
    for (String speed : SPEEDS) {
      found.clear();
      for (int i = 0; i < cores.size(); i++) {
        Long value = number(new File(cores.get(i), speed));
        if (value == null) {
          found.clear();
          break;
        }
        Cluster cluster = found.get(value);
        if (cluster == null) {
          cluster = new Cluster(cores.get(i));
          found.put(value, cluster);
        }
        cluster.cpus.add(i);
      }
      if (!found.isEmpty()) {
        break;
      }
    }
    return new Cpu(Math.max(online, cores.size()), new ArrayList<>(found.values()));
  }

  /** How many cores there are. */
  public int count() {
    return count;
  }

  /** The fastest first; empty when the system doesn't tell which cores are alike. */
  public List<Cluster> clusters() {
    return clusters;
  }

  /**
   * How many threads an engine should have: one for each core of the fastest cluster, at most 4. On cores of different
   * speed all wait for the slowest one. Half of the cores where nothing is known about them.
   */
  public int threads() {
    int cores = clusters.isEmpty() ? Math.max(1, count / 2) : clusters.get(0).cpus.size();
    return Math.min(MOST_THREADS, cores);
  }

  static @Nullable String line(File file) {
    try (BufferedReader in = new BufferedReader(new FileReader(file))) {
      return in.readLine();
    } catch (IOException denied) {
      return null; // absent, or not for apps: both are common
    }
  }

  static @Nullable Long number(File file) {
    String line = line(file);
    try {
      return line == null ? null : Long.valueOf(line.trim());
    } catch (NumberFormatException other) {
      return null;
    }
  }
}
