package dev.edgesdk;

import java.io.Closeable;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A loaded variant. Calls from several threads are run one after the other; for more at once open several sessions.
 *
 * <pre>{@code
 * try (Session session = bundle.session()) {
 *   Tensor scores = session.run(Collections.singletonMap("x", Tensor.of(values, 1, 3))).get("scores");
 * }
 * }</pre>
 */
public final class Session extends PlatformSession implements Closeable {
  /** How {@link EdgeBundle#session(Config)} loads. Its methods return changed copies. */
  public static final class Config {
    /** The first variant that runs here; threads as the engine likes. */
    public static final Config DEFAULT = new Config(null, 0, false);

    final @Nullable String variant;
    final int threads;
    final boolean selfTest;

    private Config(@Nullable String variant, int threads, boolean selfTest) {
      this.variant = variant;
      this.threads = threads;
      this.selfTest = selfTest;
    }

    /** Takes the variant of this id and no other. */
    public Config withVariant(String id) {
      return new Config(id, threads, selfTest);
    }

    /**
     * Gives the engine this many threads.
     *
     * @throws EdgeException {@code bad_threads}: less than 1
     */
    public Config withThreads(int threads) {
      if (threads < 1) {
        throw new EdgeException(
            "bad_threads",
            "threads=" + threads + " is not possible.",
            "An engine needs at least one.",
            "Give 1 or more.");
      }
      return new Config(variant, threads, selfTest);
    }

    /** Runs the golden calls at once; a variant that fails them is passed over as if it didn't run here. */
    public Config withSelfTest() {
      return new Config(variant, threads, true);
    }
  }

  private final Manifest manifest;
  private final Variant variant;
  private final List<String> skipped;
  private final Map<String, ByteBuffer> golden;
  private final ModelFile files;
  private final Feed feed;
  private final Tensor[] inputs;
  private final @Nullable Tensor[] into;
  private final Forgotten forgotten;
  private @Nullable Runner runner;
  private @Nullable Classifier classifier;

  Session(EdgeBundle bundle, ModelFile files, Runner runner, List<String> skipped) {
    this.manifest = bundle.manifest();
    this.variant = files.variant;
    this.files = files;
    this.runner = runner;
    this.skipped = skipped;
    this.golden = new HashMap<>();
    for (Golden call : manifest.golden()) {
      for (GoldenTensor tensor : call.inputs()) {
        golden.put(tensor.file, bundle.file(tensor.file));
      }
      for (GoldenTensor tensor : call.outputs()) {
        golden.put(tensor.file, bundle.file(tensor.file));
      }
    }
    this.feed = new Feed(manifest.inputs(), manifest.name());
    this.inputs = new Tensor[manifest.inputs().size()];
    this.into = new Tensor[manifest.outputs().size()];
    this.forgotten = Forgotten.watch(this, runner, files);
  }

  /** Everything that is known about the model. */
  public Manifest manifest() {
    return manifest;
  }

  /** The variant that was loaded. */
  public Variant variant() {
    return variant;
  }

  /** Why the variants before this one were passed over: one sentence for each. */
  public List<String> skipped() {
    return Collections.unmodifiableList(skipped);
  }

  /**
   * Runs once.
   *
   * @param inputs a tensor for every input, of exactly its dtype and of a shape that it allows; they aren't copied
   * @return every output by name, in the manifest's order; the tensors belong to the caller
   * @throws EdgeException {@code input_missing}, {@code unknown_input}, {@code dtype_mismatch}, {@code shape_mismatch},
   *     {@code run_failed}, {@code session_closed}
   */
  public synchronized Map<String, Tensor> run(Map<String, Tensor> inputs) {
    Runner open = open();
    feed.bind(inputs, this.inputs);
    List<TensorSpec> specs = manifest.outputs();
    @Nullable Tensor[] outputs = new Tensor[specs.size()];
    Map<String, Long> symbols = Shapes.symbols(manifest.inputs(), this.inputs);
    for (int i = 0; i < outputs.length; i++) {
      long[] shape = Shapes.expected(specs.get(i), symbols);
      outputs[i] = shape == null ? null : Tensor.allocate(specs.get(i).dtype(), shape);
    }
    open.run(this.inputs, outputs);
    Map<String, Tensor> found = new LinkedHashMap<>();
    for (int i = 0; i < outputs.length; i++) {
      found.put(specs.get(i).name(), outputs[i]);
    }
    return found;
  }

  /**
   * Runs once, into tensors that the caller keeps: with the same tensors again and again nothing is copied or allocated
   * by this library.
   *
   * @param outputs a tensor for every output, of exactly the dtype and shape that it will have; none is an input, none
   *     stands for two outputs, and none lies over read-only memory
   * @throws EdgeException as {@link #run(Map)}, and {@code output_missing}, {@code output_unwritable}
   */
  public synchronized void run(Map<String, Tensor> inputs, Map<String, Tensor> outputs) {
    Runner open = open();
    feed.bind(inputs, this.inputs);
    List<TensorSpec> specs = manifest.outputs();
    for (int i = 0; i < into.length; i++) {
      Tensor tensor = outputs.get(specs.get(i).name());
      if (tensor == null) {
        throw new EdgeException(
            "output_missing",
            "There is no tensor for the output '" + specs.get(i).name() + "' of " + manifest.name() + ".",
            "Every output is computed, so each needs its place.",
            "Give one made by Tensor.allocate, or call run(inputs).");
      }
      Feed.check(specs.get(i), tensor, "Output", manifest.name());
      checkPlace(specs.get(i).name(), tensor, i);
      into[i] = tensor;
    }
    open.run(this.inputs, into);
  }

  /** Engines write to the memory itself, some before they have read all inputs, and read-only memory ends the process. */
  private void checkPlace(String output, Tensor place, int index) {
    boolean shared = false;
    for (int i = 0; i < inputs.length; i++) {
      shared |= inputs[i] == place;
    }
    for (int i = 0; i < index; i++) {
      shared |= into[i] == place;
    }
    if (shared || place.readOnly()) {
      throw new EdgeException(
          "output_unwritable",
          "The tensor for the output '" + output + "' of " + manifest.name()
              + (shared ? " is also an input or another output." : " lies over read-only memory."),
          "The engine writes there while it runs.",
          "Give each output a tensor of its own, made by Tensor.allocate.");
    }
  }

  /**
   * The likeliest classes of a picture, best first.
   *
   * @throws EdgeException {@code not_a_classifier}: the bundle doesn't say how a picture becomes the input, or how
   *     classes are read from the output; {@code bad_top}
   */
  public synchronized List<Label> classify(Picture picture, int top) {
    Classifier how = classifier(top);
    return how.answer(run(Collections.singletonMap(how.input(), how.tensor(picture))), top);
  }

  /**
   * The likeliest classes of a sound, best first. The model must take it as one input.
   *
   * @throws EdgeException {@code not_a_classifier}, {@code bad_top}, {@code sound_unreadable}, {@code no_preprocess}: the
   *     bundle takes pictures
   */
  public synchronized List<Label> classify(Sound sound, int top) {
    Classifier how = classifier(top);
    return how.answer(run(Collections.singletonMap(how.input(), how.tensor(sound))), top);
  }

  /**
   * The tensor that a picture becomes, as the bundle says: for models that are no classifiers.
   *
   * @throws EdgeException {@code no_preprocess}: the bundle doesn't say how, {@code preprocess_unsupported}
   */
  public Tensor prepare(Picture picture) {
    return preparer().tensor(picture);
  }

  /**
   * The tensor that a sound becomes, as the bundle says: float32 {@code [1, n]}, or {@code [frames, frame]}.
   *
   * @throws EdgeException {@code no_preprocess}: the bundle doesn't say how, {@code preprocess_unsupported}, {@code
   *     sound_unreadable}: no samples, or another rate than the model's
   */
  public Tensor prepare(Sound sound) {
    return preparer().tensor(sound);
  }

  private Preparer preparer() {
    Preparer how = Preparer.of(manifest);
    if (how == null) {
      throw Preparer.lacking(manifest);
    }
    return how;
  }

  private Classifier classifier(int top) {
    open();
    Classifier how = classifier;
    if (how == null) {
      how = Classifier.of(manifest);
      classifier = how;
    }
    Answers.checkTop(top);
    return how;
  }

  /**
   * Runs the bundle's golden calls and compares with the answers of the original model. Each sequence starts from the
   * initial state, and so does the session afterwards.
   */
  public synchronized SelfTest selfTest() {
    Runner open = open();
    GoldenRun test = new GoldenRun(manifest, variant, golden);
    try {
      Long last = null;
      for (Golden call : Golden.ordered(manifest.golden())) {
        if (last == null || last != call.sequence()) {
          open.reset();
          last = call.sequence();
        }
        test.compare(call, run(test.inputs(call)));
      }
    } finally {
      open.reset();
    }
    return test.result();
  }

  /** Forgets the state that earlier calls left behind. */
  public synchronized void reset() {
    open().reset();
  }

  /**
   * Frees the engine's memory. A call that is running ends first; closing twice is harmless. A session that nobody closes
   * is freed when the collector finds it, with a line in the log.
   */
  @Override
  public synchronized void close() {
    Runner open = runner;
    runner = null;
    golden.clear();
    Arrays.fill(inputs, null);
    Arrays.fill(into, null);
    if (open != null) {
      forgotten.closed();
      open.close();
      files.delete();
    }
  }

  private Runner open() {
    Runner open = runner;
    if (open == null) {
      throw new EdgeException(
          "session_closed",
          "The session of " + manifest.name() + " is closed.",
          "close() was called, or a try block ended.",
          "Load the bundle again, or keep the session open for as long as it is used.");
    }
    return open;
  }

  @Override
  public String toString() {
    return "Session(" + manifest.name() + ", " + variant.id() + ")";
  }
}
