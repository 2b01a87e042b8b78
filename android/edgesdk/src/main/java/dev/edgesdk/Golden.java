package dev.edgesdk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;

/** One call with the original model's answer. Calls of one sequence run by {@link #step()}, after a reset. */
public final class Golden {
  private final String id;
  private final long sequence;
  private final long step;
  private final List<GoldenTensor> inputs;
  private final List<GoldenTensor> outputs;

  private Golden(String id, long sequence, long step, List<GoldenTensor> inputs, List<GoldenTensor> outputs) {
    this.id = id;
    this.sequence = sequence;
    this.step = step;
    this.inputs = inputs;
    this.outputs = outputs;
  }

  static Golden read(Fields fields) {
    return new Golden(
        fields.text("id", TextRule.WORD),
        fields.whole("sequence", 0, Dim.LARGEST, 0),
        fields.whole("step", 0, Dim.LARGEST, 0),
        tensors(fields, "inputs"),
        tensors(fields, "outputs"));
  }

  private static List<GoldenTensor> tensors(Fields fields, String key) {
    fields.any(key);
    List<GoldenTensor> found = new ArrayList<>();
    for (Fields tensor : fields.parts(key, 0, Integer.MAX_VALUE)) {
      found.add(GoldenTensor.read(tensor));
    }
    return Collections.unmodifiableList(found);
  }

  /** The order in which the calls must run. */
  static List<Golden> ordered(List<Golden> calls) {
    List<Golden> sorted = new ArrayList<>(calls);
    Collections.sort(sorted, new Comparator<Golden>() {
      @Override
      public int compare(Golden a, Golden b) {
        int first = Long.compare(a.sequence, b.sequence);
        return first != 0 ? first : Long.compare(a.step, b.step);
      }
    });
    return sorted;
  }

  /** Unique in the bundle. */
  public String id() {
    return id;
  }

  /** The sequence that the call belongs to. */
  public long sequence() {
    return sequence;
  }

  /** The call's place in its sequence. */
  public long step() {
    return step;
  }

  List<GoldenTensor> inputs() {
    return inputs;
  }

  List<GoldenTensor> outputs() {
    return outputs;
  }
}
