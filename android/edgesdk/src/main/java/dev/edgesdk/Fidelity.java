package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/** One output of a variant against the original model, as it was measured when the bundle was made. */
public final class Fidelity {
  private final String name;
  private final double maxAbsError;
  private final @Nullable Double snrDb;
  private final @Nullable Double cosine;
  private final @Nullable Double top1Agreement;

  private Fidelity(String name, double maxAbsError, @Nullable Double snrDb, @Nullable Double cosine,
      @Nullable Double top1Agreement) {
    this.name = name;
    this.maxAbsError = maxAbsError;
    this.snrDb = snrDb;
    this.cosine = cosine;
    this.top1Agreement = top1Agreement;
  }

  static Fidelity read(Fields fields) {
    fields.realOrNull("mean_abs_error");
    fields.realOrNull("max_abs_reference");
    return new Fidelity(
        fields.text("name", TextRule.TENSOR),
        fields.real("max_abs_error"),
        fields.realOrNull("snr_db"),
        fields.realOrNull("cosine"),
        fields.shareOrNull("top1_agreement"));
  }

  /** The output. */
  public String name() {
    return name;
  }

  /** The largest absolute difference. */
  public double maxAbsError() {
    return maxAbsError;
  }

  /** Signal to noise; null when the error is exactly zero. */
  public @Nullable Double snrDb() {
    return snrDb;
  }

  /** Cosine similarity, where it was measured. */
  public @Nullable Double cosine() {
    return cosine;
  }

  /** Share of samples with the same best class; null unless the output is class scores. */
  public @Nullable Double top1Agreement() {
    return top1Agreement;
  }
}
