package dev.edgesdk;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** One file for one engine. */
public final class Variant {
  private static final int MANY = 1 << 20;
  private static final String NO_HASH = "0000000000000000000000000000000000000000000000000000000000000000";
  private static final Set<String> RUNGS = new LinkedHashSet<>(Arrays.asList("full", "partial", "portable"));

  private final String id;
  private final String runtime;
  private final @Nullable String least;
  private final @Nullable String most;
  private final @Nullable String backend;
  private final String quantization;
  private final List<String> abis;
  private final String file;
  private final String sha256;
  private final long size;
  private final List<String> extraFiles;
  private final @Nullable Double delegatedFraction;
  private final String rung;
  private final boolean wasRun;
  private final boolean verified;
  private final List<Fidelity> fidelity;
  private final Set<String> fidelityNames;
  private final Map<String, Double> tolerances;
  private final @Nullable Long plannedBytes;
  private final boolean permuted;

  private Variant(Fields from) {
    id = from.text("id", TextRule.WORD);
    runtime = from.text("runtime", TextRule.WORD);
    Fields range = from.has("runtime_version")
        ? Fields.of(from.any("runtime_version"), from.path("runtime_version"))
        : Fields.of(Collections.emptyMap(), "");
    least = range.textOrNull("min", TextRule.TEXT);
    most = range.textOrNull("max", TextRule.TEXT);
    backend = from.textOrNull("backend", TextRule.WORD);
    quantization = from.text("quantization", TextRule.WORD);
    abis = from.texts("abis", TextRule.WORD, 32);
    file = from.text("file", TextRule.ENTRY);
    sha256 = from.text("sha256", TextRule.SHA256, NO_HASH);
    size = from.whole("size", 0, Long.MAX_VALUE, 0);
    extraFiles = from.texts("extra_files", TextRule.ENTRY, MANY);
    delegatedFraction = from.shareOrNull("delegated_fraction");
    rung = from.has("rung") ? from.oneOf("rung", RUNGS) : "full";
    wasRun = from.has("verified") && !"not_run".equals(from.any("verified"));
    verified = wasRun && from.flag("verified", false);
    fidelityNames = new LinkedHashSet<>();
    fidelity = fidelity(from, fidelityNames);
    tolerances = from.tolerances("tolerances");
    plannedBytes = from.wholeOrNull("planned_bytes", 0, Long.MAX_VALUE);
    permuted = permuted(from);
  }

  static Variant read(Fields from) {
    return new Variant(from);
  }

  private static List<Fidelity> fidelity(Fields from, Set<String> names) {
    List<Fidelity> found = new ArrayList<>();
    if (!from.has("fidelity")) {
      return found;
    }
    Fields part = Fields.of(from.any("fidelity"), from.path("fidelity"));
    for (Fields output : part.parts("outputs", 0, MANY)) {
      found.add(Fidelity.read(output));
      names.add(found.get(found.size() - 1).name());
    }
    names.addAll(part.tolerances("tolerance").keySet());
    part.whole("samples", 0, Dim.LARGEST, 0);
    part.texts("shapes", TextRule.TEXT, MANY);
    part.text("engine", TextRule.TEXT, "");
    part.texts("cpu_flags", TextRule.TEXT, MANY);
    part.textOrNull("why", TextRule.TEXT);
    return Collections.unmodifiableList(found);
  }

  /** Whether every {@code dim_order} is a permutation. */
  private static boolean permuted(Fields from) {
    if (!from.has("dim_order")) {
      return true;
    }
    boolean good = true;
    for (Object order : from.list("dim_order", 0, MANY)) {
      if (!(order instanceof List) || ((List<?>) order).size() > TensorSpec.MAX_RANK) {
        throw new BadField("'" + from.path("dim_order") + "' should be lists of dimensions");
      }
      Set<Object> seen = new LinkedHashSet<>();
      for (Object axis : (List<?>) order) {
        if (!(axis instanceof Long) || (Long) axis < 0 || (Long) axis > Dim.LARGEST) {
          throw new BadField("'" + from.path("dim_order") + "' holds no dimension: " + axis);
        }
        good &= (Long) axis < ((List<?>) order).size() && seen.add(axis);
      }
    }
    return good;
  }

  /** {@code RUNTIME[-BACKEND]-QUANTIZATION}. */
  public String id() {
    return id;
  }

  /** The engine: {@code onnx}. */
  public String runtime() {
    return runtime;
  }

  /** The engine's least version that loads the file. */
  public @Nullable String minVersion() {
    return least;
  }

  /** The engine's last version that loads the file. */
  public @Nullable String maxVersion() {
    return most;
  }

  /** The engine's back end, where it has several. */
  public @Nullable String backend() {
    return backend;
  }

  /** {@code none}, {@code fp16}, {@code static-int8}, … */
  public String quantization() {
    return quantization;
  }

  /** The ABIs that the file is meant for; none means any. */
  public List<String> abis() {
    return abis;
  }

  /** The entry that holds the model. */
  public String file() {
    return file;
  }

  /** Of the file, in hex. */
  public String sha256() {
    return sha256;
  }

  /** Of the file, in bytes. */
  public long size() {
    return size;
  }

  /** Entries that must lie beside the file. */
  public List<String> extraFiles() {
    return extraFiles;
  }

  /** Share of the work in the delegate; null for engines without delegates. */
  public @Nullable Double delegatedFraction() {
    return delegatedFraction;
  }

  /** How far down the ladder of lowering it had to go: {@code full}, {@code partial}, {@code portable}. */
  public String rung() {
    return rung;
  }

  /** Whether the file was run when the bundle was made, and its answers held. */
  public boolean verified() {
    return verified;
  }

  /** What was measured when the bundle was made, by output. */
  public List<Fidelity> fidelity() {
    return fidelity;
  }

  /** The largest absolute error on the golden calls, by output. */
  public Map<String, Double> tolerances() {
    return tolerances;
  }

  /** Activation memory planned ahead of time, in bytes. */
  public @Nullable Long plannedBytes() {
    return plannedBytes;
  }

  boolean wasRun() {
    return wasRun;
  }

  Set<String> fidelityNames() {
    return fidelityNames;
  }

  boolean dimOrderIsPermutation() {
    return permuted;
  }

  /** The file and what must lie beside it. */
  List<String> files() {
    List<String> all = new ArrayList<>();
    all.add(file);
    all.addAll(extraFiles);
    return all;
  }
}
