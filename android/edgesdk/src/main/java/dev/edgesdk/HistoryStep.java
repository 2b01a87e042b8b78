package dev.edgesdk;

import java.util.Collections;
import java.util.Map;

/** How the model was made, one step. */
public final class HistoryStep {
  private final String step;
  private final String type;
  private final long version;
  private final Map<String, Object> fields;

  private HistoryStep(String step, String type, long version, Map<String, Object> fields) {
    this.step = step;
    this.type = type;
    this.version = version;
    this.fields = fields;
  }

  static HistoryStep read(Fields from) {
    return new HistoryStep(
        from.text("step", TextRule.TEXT),
        from.text("type", TextRule.TEXT),
        from.whole("version", 0, Dim.LARGEST, 1),
        from.has("fields")
            ? Fields.of(from.any("fields"), from.path("fields")).document()
            : Collections.<String, Object>emptyMap());
  }

  /** The step's kind: {@code quantize}. */
  public String step() {
    return step;
  }

  /** The configuration's class. */
  public String type() {
    return type;
  }

  /** The configuration's version. */
  public long version() {
    return version;
  }

  /** The configuration, as JSON. */
  public Map<String, Object> fields() {
    return fields;
  }
}
