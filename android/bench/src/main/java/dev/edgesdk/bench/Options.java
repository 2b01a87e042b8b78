package dev.edgesdk.bench;

import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/** What {@code am start --es NAME VALUE} asked for. Profiles are those of the protocol, §2. */
final class Options {
  private static final int MOST_THREADS = 1024;

  final String profile;
  final String bundle;
  final String variant;
  final int threads;
  final long seed;
  final int energySeconds;
  final int processes;
  final int minIterations;
  final double minSeconds;
  final double maxSeconds;
  final int minCooldownSeconds;
  final int maxCooldownSeconds;

  private Options(Map<String, String> given) {
    profile = word(given, "profile", "quick");
    bundle = word(given, "bundle", "");
    variant = word(given, "variant", "");
    threads = (int) number(given, "threads", 0, MOST_THREADS);
    seed = number(given, "seed", 0, Long.MAX_VALUE);
    energySeconds = (int) Math.min(86_400, number(given, "energy", 0, Long.MAX_VALUE));
    boolean smoke = smoke();
    if (!smoke && !profile.equals("quick")) {
      throw new IllegalArgumentException("profile=" + profile + ": this app runs smoke and quick.");
    }
    processes = smoke ? 1 : 2;
    minIterations = smoke ? 3 : 64;
    minSeconds = smoke ? 0 : 5;
    maxSeconds = smoke ? 10 : 30;
    minCooldownSeconds = smoke ? 0 : 10;
    maxCooldownSeconds = smoke ? 0 : 60;
  }

  /**
   * Reads them.
   *
   * @throws IllegalArgumentException an unknown name, or a value that is not possible: the message says which
   */
  static Options of(Map<String, String> given) {
    for (String name : new TreeMap<>(given).keySet()) {
      if (!Arrays.asList("profile", "bundle", "variant", "threads", "seed", "energy", "args").contains(name)) {
        throw new IllegalArgumentException(name + ": unknown; known: bundle, energy, profile, seed, threads, variant.");
      }
    }
    return new Options(given);
  }

  boolean smoke() {
    return profile.equals("smoke");
  }

  private static String word(Map<String, String> given, String name, String otherwise) {
    String value = given.get(name);
    return value == null || value.isEmpty() ? otherwise : value;
  }

  private static long number(Map<String, String> given, String name, long otherwise, long most) {
    String value = word(given, name, String.valueOf(otherwise));
    try {
      long number = Long.parseLong(value);
      if (number >= 0 && number <= most) {
        return number;
      }
    } catch (NumberFormatException wrong) {
      // told below
    }
    String range = most < Long.MAX_VALUE ? "from 0 to " + most : "from 0";
    throw new IllegalArgumentException(String.format(Locale.ROOT, "%s=%s: no whole number %s.", name, value, range));
  }
}
