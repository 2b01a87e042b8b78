package dev.edgesdk;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** Rules that tie the manifest's fields to each other; those of Python's {@code bundle/_rules.py}. */
final class Rules {
  private static final BigInteger MOST_BYTES = BigInteger.valueOf(Long.MAX_VALUE);

  private final Manifest manifest;
  private final Map<String, FileEntry> table = new HashMap<>();

  private Rules(Manifest manifest) {
    this.manifest = manifest;
    for (FileEntry file : manifest.files()) {
      table.put(file.name(), file);
    }
  }

  /**
   * Checks all rules.
   *
   * @throws BadField the first that is broken
   */
  static void check(Manifest manifest) {
    Rules rules = new Rules(manifest);
    rules.names();
    rules.used();
    rules.tensors("input", manifest.inputs(), 1);
    rules.tensors("output", manifest.outputs(), 0);
    rules.variants();
    rules.golden();
  }

  /** Entries that engines map: they lie on 16 KiB. */
  static Set<String> aligned(Manifest manifest) {
    Set<String> found = new HashSet<>();
    for (Variant variant : manifest.variants()) {
      found.addAll(variant.files());
    }
    return found;
  }

  private static void require(boolean good, String problem) {
    if (!good) {
      throw new BadField(problem);
    }
  }

  private static boolean repeats(Collection<?> values) {
    return new HashSet<>(values).size() != values.size();
  }

  private void names() {
    String before = "";
    List<String> names = new ArrayList<>();
    for (FileEntry file : manifest.files()) {
      String name = file.name();
      String reason = Names.unsafe(name);
      require(reason == null, "the entry name '" + name + "' " + reason);
      String low = name.toLowerCase(Locale.ROOT);
      require(!low.equals(Manifest.FILE) && !low.equals(Manifest.SIGNATURE), "the file table names '" + name + "'");
      require(before.compareTo(name) < 0, "the file table is not sorted by name, or names an entry twice");
      before = name;
      names.add(name);
    }
    names.addAll(Arrays.asList(Manifest.FILE, Manifest.SIGNATURE));
    String clash = Names.clash(names);
    require(clash == null, String.valueOf(clash));
  }

  private void used() {
    Set<String> lost = new TreeSet<>(aligned(manifest));
    for (Golden call : manifest.golden()) {
      for (GoldenTensor tensor : call.inputs()) {
        lost.add(tensor.file);
      }
      for (GoldenTensor tensor : call.outputs()) {
        lost.add(tensor.file);
      }
    }
    lost.removeAll(table.keySet());
    require(lost.isEmpty(), "it uses entries that are not in the file table: " + Words.join(lost));
  }

  private void tensors(String kind, List<TensorSpec> tensors, long least) {
    require(!repeats(names(tensors)), "two " + kind + "s have one name");
    for (TensorSpec tensor : tensors) {
      String who = kind + " '" + tensor.name() + "' ";
      BigInteger most = BigInteger.valueOf(tensor.dtype().bytes());
      Set<String> dynamic = new HashSet<>();
      List<Dim> shape = tensor.shape() == null ? new ArrayList<Dim>() : tensor.shape();
      for (int i = 0; i < shape.size(); i++) {
        Dim dim = shape.get(i);
        require(
            dim.min() >= least && dim.max() >= dim.min() && dim.max() <= Dim.LARGEST,
            who + "has the dimension " + dim + ", which is empty, below " + least + " or above " + Dim.LARGEST);
        most = most.multiply(BigInteger.valueOf(dim.max()));
        if (dim.dynamic()) {
          dynamic.add(Integer.toString(i));
        }
      }
      require(most.compareTo(MOST_BYTES) <= 0, who + "can grow to more than 2^63 bytes");
      require(
          dynamic.containsAll(tensor.symbols().keySet()),
          who + "has a symbol on a dimension that is not dynamic");
    }
  }

  private static List<String> names(List<TensorSpec> tensors) {
    List<String> found = new ArrayList<>();
    for (TensorSpec tensor : tensors) {
      found.add(tensor.name());
    }
    return found;
  }

  private void variants() {
    List<String> ids = new ArrayList<>();
    List<String> files = new ArrayList<>();
    for (Variant variant : manifest.variants()) {
      ids.add(variant.id());
      files.addAll(variant.files());
    }
    require(!repeats(ids), "two variants have one id");
    require(!repeats(files), "one file belongs to two variants");
    Set<String> outputs = new HashSet<>(names(manifest.outputs()));
    for (Variant variant : manifest.variants()) {
      variant(variant, outputs);
    }
  }

  private void variant(Variant variant, Set<String> outputs) {
    String who = "variant '" + variant.id() + "' ";
    FileEntry entry = table.get(variant.file());
    require(
        entry == null || (entry.sha256().equals(variant.sha256()) && entry.size() == variant.size()),
        who + "and the file table disagree on '" + variant.file() + "'");
    Set<String> unknown = new TreeSet<>(variant.tolerances().keySet());
    unknown.addAll(variant.fidelityNames());
    unknown.removeAll(outputs);
    require(unknown.isEmpty(), who + "names unknown outputs: " + Words.join(unknown));
    Set<String> open = new TreeSet<>(outputs);
    open.removeAll(variant.tolerances().keySet());
    require(
        manifest.golden().isEmpty() || !variant.wasRun() || open.isEmpty(),
        who + "has no tolerance for outputs: " + Words.join(open));
    require(variant.dimOrderIsPermutation(), who + "has a dim_order that is no permutation");
  }

  private void golden() {
    Set<String> ids = new HashSet<>();
    Set<List<Long>> places = new HashSet<>();
    for (Golden call : manifest.golden()) {
      require(
          ids.add(call.id()) & places.add(Arrays.asList(call.sequence(), call.step())),
          "two golden calls have one id or one place in a sequence");
      String who = "golden '" + call.id() + "' ";
      require(sameNames(call.inputs(), manifest.inputs()), who + "has other inputs than the signature");
      require(sameNames(call.outputs(), manifest.outputs()), who + "has other outputs than the signature");
      List<GoldenTensor> all = new ArrayList<>(call.inputs());
      all.addAll(call.outputs());
      for (GoldenTensor tensor : all) {
        FileEntry file = table.get(tensor.file);
        require(
            file != null && tensor.bytes().equals(BigInteger.valueOf(file.size())),
            who + "gives '" + tensor.file + "' another size than its dtype and shape have");
      }
      for (int i = 0; i < call.inputs().size(); i++) {
        require(
            stores(manifest.inputs().get(i).dtype(), call.inputs().get(i).dtype),
            who + "has an input of another dtype than the signature");
      }
    }
  }

  private static boolean sameNames(List<GoldenTensor> tensors, List<TensorSpec> specs) {
    Set<String> found = new LinkedHashSet<>();
    for (GoldenTensor tensor : tensors) {
      found.add(tensor.name);
    }
    return found.size() == tensors.size() && new ArrayList<>(found).equals(names(specs));
  }

  /** bfloat16 may be stored as float32. */
  private static boolean stores(DType wanted, DType stored) {
    return wanted == stored || (wanted == DType.BFLOAT16 && stored == DType.FLOAT32);
  }
}
