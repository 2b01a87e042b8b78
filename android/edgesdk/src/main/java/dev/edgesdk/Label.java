package dev.edgesdk;

/** One class of an answer. */
public final class Label {
  private final String name;
  private final float score;
  private final int index;

  Label(String name, float score, int index) {
    this.name = name;
    this.score = score;
    this.index = index;
  }

  /** {@code class 7} where the model has no labels. */
  public String name() {
    return name;
  }

  /** After the activation: a probability, mostly. */
  public float score() {
    return score;
  }

  /** The class number. */
  public int index() {
    return index;
  }

  @Override
  public String toString() {
    return name + " " + score;
  }
}
