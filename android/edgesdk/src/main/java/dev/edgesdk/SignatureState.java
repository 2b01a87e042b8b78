package dev.edgesdk;

/** What is known about a bundle's signature. An open bundle is {@link #VALID} or {@link #ABSENT}. */
public enum SignatureState {
  /** The signature holds, and is by the pinned key if one is pinned. */
  VALID("valid"),
  /** The bundle is not signed. */
  ABSENT("absent"),
  /** The signature doesn't fit the manifest. */
  INVALID("invalid"),
  /** Not signed, or signed by another key than the pinned one. */
  UNTRUSTED("untrusted");

  private final String word;

  SignatureState(String word) {
    this.word = word;
  }

  /** The word that {@code edgesdk verify --json} uses. */
  public String word() {
    return word;
  }
}
