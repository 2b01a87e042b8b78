package dev.edgesdk;

/** A document breaks a rule. Who reads it knows which document it is, and makes an {@link EdgeException} of this. */
final class BadField extends RuntimeException {
  private static final long serialVersionUID = 1;

  BadField(String problem) {
    super(problem, null, false, false);
  }

  String problem() {
    return String.valueOf(getMessage());
  }
}
