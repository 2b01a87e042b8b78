package dev.edgesdk;

/** One found object; corners in the units of the model's output. */
public final class Box {
  private final float x0;
  private final float y0;
  private final float x1;
  private final float y1;
  private final Label label;

  Box(float x0, float y0, float x1, float y1, Label label) {
    this.x0 = x0;
    this.y0 = y0;
    this.x1 = x1;
    this.y1 = y1;
    this.label = label;
  }

  /** Left. */
  public float x0() {
    return x0;
  }

  /** Top. */
  public float y0() {
    return y0;
  }

  /** Right. */
  public float x1() {
    return x1;
  }

  /** Bottom. */
  public float y1() {
    return y1;
  }

  /** What it is. */
  public Label label() {
    return label;
  }

  @Override
  public String toString() {
    return label + " at " + x0 + ", " + y0 + ", " + x1 + ", " + y1;
  }
}
