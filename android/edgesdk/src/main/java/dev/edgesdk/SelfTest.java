package dev.edgesdk;

import java.util.Collections;
import java.util.List;

/** What {@link Session#selfTest()} found. */
public final class SelfTest {
  private final String variant;
  private final int calls;
  private final List<OutputTest> outputs;

  SelfTest(String variant, int calls, List<OutputTest> outputs) {
    this.variant = variant;
    this.calls = calls;
    this.outputs = Collections.unmodifiableList(outputs);
  }

  /** The variant that was tested. */
  public String variant() {
    return variant;
  }

  /** How many golden calls the bundle has. */
  public int calls() {
    return calls;
  }

  /** One entry for each output. */
  public List<OutputTest> outputs() {
    return outputs;
  }

  /** Whether every output was within its tolerance; false when the bundle has no golden calls. */
  public boolean ok() {
    for (OutputTest output : outputs) {
      if (!output.ok()) {
        return false;
      }
    }
    return calls > 0;
  }

  @Override
  public String toString() {
    return variant + ": " + calls + " calls, " + (ok() ? "ok" : "not ok") + " " + outputs;
  }
}
