package dev.edgesdk;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Which variant of a bundle runs here, and why the others don't. */
final class Chooser {
  private static final Logger LOG = Logger.getLogger("dev.edgesdk");
  private static final Pattern RELEASE = Pattern.compile("\\d+(?:\\.\\d+)*");

  private Chooser() {}

  static Session open(EdgeBundle bundle, Session.Config config) {
    if (config.variant != null) {
      return named(bundle, config, config.variant);
    }
    List<String> reasons = new ArrayList<>();
    EdgeException last = null;
    EdgeException storage = null;
    for (Variant variant : bundle.manifest().variants()) {
      String reason = whyNot(variant);
      if (reason == null) {
        try {
          return load(bundle, variant, config, reasons);
        } catch (EdgeException cause) {
          last = cause;
          storage = cause.code().equals("disk_full") || cause.code().equals("not_writable") ? cause : storage;
          reason = cause.message();
        }
      }
      reasons.add(variant.id() + ": " + reason);
      LOG.log(Level.WARNING, "{0} is passed over: {1}", new Object[] {variant.id(), reason});
    }
    if (storage != null) { // nothing is wrong with the bundle: the user can free some space
      throw storage;
    }
    throw none(bundle.manifest(), reasons, last);
  }

  private static Session named(EdgeBundle bundle, Session.Config config, String wanted) {
    Manifest manifest = bundle.manifest();
    List<String> known = new ArrayList<>();
    for (Variant variant : manifest.variants()) {
      known.add(variant.id());
      if (!variant.id().equals(wanted)) {
        continue;
      }
      String reason = whyNot(variant);
      if (reason != null) {
        boolean absent = absent(variant);
        throw new EdgeException(
            absent ? "runtime_missing" : "variant_unsupported",
            "The variant '" + wanted + "' of " + manifest.name() + " does not run here.",
            reason,
            absent ? add(variant) : "Name another variant, or run it on the device it was made for.");
      }
      return load(bundle, variant, config, new ArrayList<String>());
    }
    throw new EdgeException(
        "unknown_variant",
        manifest.name() + " has no variant '" + wanted + "'.",
        Words.nearest(wanted, known),
        "Name one of them, or leave it out to take the first that runs.");
  }

  private static Session load(EdgeBundle bundle, Variant variant, Session.Config config, List<String> reasons) {
    ModelFile files = new ModelFile(bundle, variant);
    Runner runner = null;
    Session session;
    try {
      runner = Runtimes.find(variant.runtime()).load(files, config.threads);
      session = new Session(bundle, files, runner, reasons);
    } catch (RuntimeException | Error cause) {
      if (runner != null) {
        runner.close();
      }
      files.delete();
      throw cause;
    }
    if (config.selfTest) {
      test(session);
    }
    return session;
  }

  private static void test(Session session) {
    SelfTest test = null;
    try {
      test = session.selfTest();
    } finally {
      if (test == null || !test.ok()) {
        session.close();
      }
    }
    if (!test.ok()) {
      throw new EdgeException(
          "self_test_failed",
          "'" + session.variant().id() + "' of " + session.manifest().name() + " fails its self-test: "
              + (test.calls() == 0 ? "the bundle has no golden calls" : Words.join(test.outputs())) + ".",
          "This engine, on this device, computes something else than the model did when it was packaged.",
          "Use another variant, or package the model for the CPU.");
    }
  }

  private static EdgeException none(Manifest manifest, List<String> reasons, @Nullable EdgeException last) {
    boolean absent = true;
    List<String> lines = new ArrayList<>();
    for (Variant variant : manifest.variants()) {
      absent &= absent(variant);
      if (absent(variant) && !lines.contains(add(variant))) {
        lines.add(add(variant));
      }
    }
    StringBuilder why = new StringBuilder();
    for (String reason : reasons) {
      why.append(why.length() == 0 ? "" : " ").append(reason);
    }
    return new EdgeException(
        absent ? "runtime_missing" : "no_variant_runs",
        "No variant of " + manifest.name() + " runs here.",
        why.toString(),
        lines.isEmpty() ? "Package the model for an engine of this app." : Words.join(lines),
        last);
  }

  private static boolean absent(Variant variant) {
    return Runtimes.known(variant.runtime()) && Runtimes.find(variant.runtime()).missing() != null;
  }

  private static String add(Variant variant) {
    return "Add the engine: implementation(\"" + Runtimes.find(variant.runtime()).dependency() + ":VERSION\")";
  }

  /** Null when the variant runs here, else a sentence. */
  static @Nullable String whyNot(Variant variant) {
    if (!Runtimes.known(variant.runtime())) {
      return "This edgesdk has no runtime '" + variant.runtime() + "'.";
    }
    String elsewhere = PlatformBundle.whyNot(variant);
    if (elsewhere != null) {
      return elsewhere;
    }
    EdgeRuntime runtime = Runtimes.find(variant.runtime());
    String missing = runtime.missing();
    if (missing != null) {
      return missing;
    }
    String backend = variant.backend();
    if (backend != null && !runtime.has(backend)) {
      return "Files for the back end '" + backend + "' don't run here.";
    }
    String here = runtime.version();
    if (here.isEmpty()) {
      return null; // it doesn't tell; a file that is too new fails to load
    }
    if (variant.minVersion() != null && compare(here, variant.minVersion()) < 0) {
      return "It needs " + runtime.name() + " " + variant.minVersion() + " or newer; " + here + " is in the app.";
    }
    if (variant.maxVersion() != null && compare(here, variant.maxVersion()) > 0) {
      return "It needs " + runtime.name() + " " + variant.maxVersion() + " or older; " + here + " is in the app.";
    }
    return null;
  }

  /** By the leading numbers: {@code 1.29.0+cpu} is 1, 29, 0. */
  static int compare(String a, String b) {
    String[] first = release(a);
    String[] second = release(b);
    for (int i = 0; i < Math.min(first.length, second.length); i++) {
      int order = new BigInteger(first[i]).compareTo(new BigInteger(second[i]));
      if (order != 0) {
        return order;
      }
    }
    return Integer.compare(first.length, second.length);
  }

  private static String[] release(String version) {
    Matcher found = RELEASE.matcher(version);
    return found.lookingAt() ? found.group().split("\\.") : new String[0];
  }
}
