package dev.edgesdk;

/** Size and hashes of one entry, as the manifest's table {@code files} gives them. */
public final class FileEntry {
  private final String name;
  private final long size;
  private final String sha256;
  private final long crc32;

  private FileEntry(String name, long size, String sha256, long crc32) {
    this.name = name;
    this.size = size;
    this.sha256 = sha256;
    this.crc32 = crc32;
  }

  static FileEntry read(Fields fields) {
    return new FileEntry(
        fields.text("name", TextRule.ENTRY),
        fields.whole("size", 0, Long.MAX_VALUE),
        fields.text("sha256", TextRule.SHA256),
        Long.parseLong(fields.text("crc32", TextRule.CRC32), 16));
  }

  /** The entry's name, with {@code /} between folders. */
  public String name() {
    return name;
  }

  /** In bytes. */
  public long size() {
    return size;
  }

  /** In hex. */
  public String sha256() {
    return sha256;
  }

  /** As the ZIP's headers hold it. */
  long crc32() {
    return crc32;
  }
}
