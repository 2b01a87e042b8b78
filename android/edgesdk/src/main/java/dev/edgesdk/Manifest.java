package dev.edgesdk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The manifest {@code edgesdk.bundle/1}: everything that must be known about the model.
 *
 * <p>Unknown fields are ignored (a newer edgesdk may have added them); another major version is refused.
 */
public final class Manifest {
  static final String SCHEMA = "edgesdk.bundle/1";
  static final String FILE = "manifest.json";
  static final String SIGNATURE = "signature.json";
  static final int MAX_BYTES = 16 << 20;
  private static final int MAX_FILES = 4096;
  private static final int MAX_LABELS = 200_000;
  private static final Pattern ANY_SCHEMA = Pattern.compile("edgesdk\\.bundle/[0-9]{1,6}");
  private static final Pattern MAKER = Pattern.compile("edgesdk ([0-9]{1,4}(?:\\.[0-9]{1,4}){1,2})");

  private final String name;
  private final String version;
  private final @Nullable String task;
  private final List<TensorSpec> inputs;
  private final List<TensorSpec> outputs;
  private final @Nullable Map<String, Object> preprocess;
  private final @Nullable Map<String, Object> postprocess;
  private final @Nullable List<String> labels;
  private final @Nullable String license;
  private final List<Variant> variants;
  private final List<Golden> golden;
  private final List<HistoryStep> history;
  private final Map<String, String> tools;
  private final Source source;
  private final List<FileEntry> files;
  private final String createdBy;

  private Manifest(Fields from) {
    name = from.text("name", TextRule.NAME);
    version = from.text("version", TextRule.TEXT);
    task = from.textOrNull("task", TextRule.WORD);
    Fields signature = Fields.of(from.any("signature"), "signature");
    signature.any("inputs");
    inputs = tensors(signature.parts("inputs", 0, 256));
    outputs = tensors(signature.parts("outputs", 1, 1024));
    preprocess = from.documentOrNull("preprocess");
    postprocess = from.documentOrNull("postprocess");
    boolean named = from.has("labels") && from.any("labels") != null;
    labels = named ? from.texts("labels", TextRule.LABEL, MAX_LABELS) : null;
    license = from.textOrNull("license", TextRule.TEXT);
    List<Variant> variants = new ArrayList<>();
    for (Fields part : from.parts("variants", 1, 256)) {
      variants.add(Variant.read(part));
    }
    this.variants = Collections.unmodifiableList(variants);
    List<Golden> golden = new ArrayList<>();
    for (Fields part : from.parts("golden", 0, 1024)) {
      golden.add(Golden.read(part));
    }
    this.golden = Collections.unmodifiableList(golden);
    List<HistoryStep> history = new ArrayList<>();
    for (Fields part : from.parts("history", 0, 1024)) {
      history.add(HistoryStep.read(part));
    }
    this.history = Collections.unmodifiableList(history);
    tools = from.textTable("tools", TextRule.WORD, TextRule.TEXT);
    source = Source.read(Fields.of(from.any("source"), "source"));
    List<FileEntry> files = new ArrayList<>();
    for (Fields part : from.parts("files", 0, MAX_FILES)) {
      files.add(FileEntry.read(part));
    }
    this.files = Collections.unmodifiableList(files);
    createdBy = from.text("created_by", TextRule.TEXT, "");
  }

  private static List<TensorSpec> tensors(List<Fields> parts) {
    List<TensorSpec> found = new ArrayList<>();
    for (Fields part : parts) {
      found.add(TensorSpec.read(part));
    }
    return Collections.unmodifiableList(found);
  }

  /**
   * Reads the bytes of a {@code manifest.json}; rules that tie fields to each other are in {@link Rules}.
   *
   * @param where what the messages call it
   */
  static Manifest parse(byte[] data, String where) {
    if (data.length > MAX_BYTES) {
      throw Errors.invalid(where, "it has " + data.length + " bytes; the limit is " + MAX_BYTES);
    }
    Fields fields;
    try {
      fields = Fields.of(StrictJson.decode(data), "");
    } catch (BadField bad) {
      throw Errors.invalid(where, "it can't be read (" + bad.problem() + ")");
    }
    checkSchema(fields, where);
    try {
      return new Manifest(fields);
    } catch (BadField bad) {
      throw Errors.invalid(where, bad.problem());
    }
  }

  private static void checkSchema(Fields fields, String where) {
    Object schema = fields.has("schema") ? fields.any("schema") : null;
    if (SCHEMA.equals(schema)) {
      return;
    }
    if (!(schema instanceof String) || !ANY_SCHEMA.matcher((String) schema).matches()) {
      throw Errors.invalid(where, "its 'schema' is not " + SCHEMA);
    }
    Matcher maker = MAKER.matcher(String.valueOf(fields.has("created_by") ? fields.any("created_by") : null));
    String wanted = maker.matches() ? "dev.edgesdk:edgesdk:" + maker.group(1) : "dev.edgesdk:edgesdk";
    throw new EdgeException(
        "bundle_too_new",
        where + " has the schema " + schema + "; this edgesdk reads " + SCHEMA + ".",
        "It was made by another major version of edgesdk.",
        "Upgrade the app to " + wanted + " or later, or build the bundle again with this version.");
  }

  /** {@code edgesdk.bundle/1}. */
  public String schema() {
    return SCHEMA;
  }

  /** The model's name. */
  public String name() {
    return name;
  }

  /** The model's version. */
  public String version() {
    return version;
  }

  /** What the model does, where it is known. */
  public @Nullable String task() {
    return task;
  }

  /** In the order of the model's own parameters. */
  public List<TensorSpec> inputs() {
    return inputs;
  }

  /** In the order in which the model returns them. */
  public List<TensorSpec> outputs() {
    return outputs;
  }

  /** How a picture or a sound becomes an input, as JSON. */
  public @Nullable Map<String, Object> preprocess() {
    return preprocess;
  }

  /** How outputs become an answer, as JSON. */
  public @Nullable Map<String, Object> postprocess() {
    return postprocess;
  }

  /** Names of the classes, by number. */
  public @Nullable List<String> labels() {
    return labels;
  }

  /** The model's licence. */
  public @Nullable String license() {
    return license;
  }

  /** In the order of preference. */
  public List<Variant> variants() {
    return variants;
  }

  /** Calls with known answers. */
  public List<Golden> golden() {
    return golden;
  }

  /** How the model was made. */
  public List<HistoryStep> history() {
    return history;
  }

  /** Versions of the tools that made it. */
  public Map<String, String> tools() {
    return tools;
  }

  /** What the model came from. */
  public Source source() {
    return source;
  }

  /** Every entry but the manifest and the signature, sorted by name. */
  public List<FileEntry> files() {
    return files;
  }

  /** The program that wrote it. */
  public String createdBy() {
    return createdBy;
  }
}
