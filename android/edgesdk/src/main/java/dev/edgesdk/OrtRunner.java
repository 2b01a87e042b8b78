package dev.edgesdk;

import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OnnxValue;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtLoggingLevel;
import ai.onnxruntime.OrtSession;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** A session of ONNX Runtime that reads inputs from, and writes outputs to, the tensors' own memory. */
final class OrtRunner extends Runner {
  private final OrtEnvironment environment;
  private final OrtSession session;
  private final List<TensorSpec> outputSpecs;
  private final OrtSlots inputs;
  private final OrtSlots outputs;

  private OrtRunner(OrtEnvironment environment, OrtSession session, Manifest manifest, String file) {
    this.environment = environment;
    this.session = session;
    this.outputSpecs = manifest.outputs();
    this.inputs = slots(environment, manifest.inputs(), order(manifest.inputs(), session.getInputNames(), file));
    this.outputs =
        slots(environment, manifest.outputs(), outputNames(manifest.outputs(), session.getOutputNames(), file));
  }

  /** A dtype that the engine's Java library lacks is told at once, so that the next variant is tried. */
  private static OrtSlots slots(OrtEnvironment environment, List<TensorSpec> specs, @Nullable String[] names) {
    for (int i = 0; i < names.length; i++) {
      if (names[i] != null) {
        OrtSlots.type(specs.get(i).dtype());
      }
    }
    return new OrtSlots(environment, names);
  }

  /** Also starts the native library, so it fails where that does. */
  static String version() {
    return OrtEnvironment.getEnvironment().getVersion();
  }

  static OrtRunner load(ModelFile model, int threads) {
    OrtEnvironment environment = OrtEnvironment.getEnvironment();
    String name = model.variant.file();
    OrtSession session;
    try (OrtSession.SessionOptions options = new OrtSession.SessionOptions()) {
      options.setSessionLogLevel(OrtLoggingLevel.ORT_LOGGING_LEVEL_FATAL); // what it says comes as an exception, too
      if (threads > 0) {
        options.setIntraOpNumThreads(threads);
      }
      session = model.alone()
          ? environment.createSession(model.buffer(), options)
          : environment.createSession(model.file().getPath(), options);
    } catch (OrtException cause) {
      throw new EdgeException(
          "load_failed",
          "ONNX Runtime can't load " + name + ": " + firstLine(cause) + ".",
          "The file was made for another version or build of the engine.",
          "Build the bundle again: edgesdk package MODEL --runtime onnx",
          cause);
    }
    try {
      return new OrtRunner(environment, session, model.manifest, name);
    } catch (EdgeException wrong) {
      close(session);
      throw wrong;
    }
  }

  /** The graph's name for each input of the signature; null for one that the graph doesn't use. */
  private static @Nullable String[] order(List<TensorSpec> wanted, Set<String> own, String file) {
    @Nullable String[] names = new String[wanted.size()];
    Set<String> known = new HashSet<>();
    for (int i = 0; i < names.length; i++) {
      String name = wanted.get(i).name();
      names[i] = own.contains(name) ? name : null;
      known.add(name);
    }
    if (known.containsAll(own)) {
      return names;
    }
    if (own.size() == wanted.size()) {
      return own.toArray(new String[0]);
    }
    throw mismatch(file, "inputs", own, known);
  }

  private static @Nullable String[] outputNames(List<TensorSpec> wanted, Set<String> own, String file) {
    Set<String> known = new LinkedHashSet<>();
    for (TensorSpec spec : wanted) {
      known.add(spec.name());
    }
    if (own.size() != known.size()) {
      throw mismatch(file, "outputs", own, known);
    }
    return (known.equals(own) ? known : own).toArray(new String[0]);
  }

  private static EdgeException mismatch(String file, String what, Set<String> own, Set<String> wanted) {
    return new EdgeException(
        "signature_mismatch",
        file + " has the " + what + " " + Words.join(own) + ", not " + Words.join(wanted) + ".",
        "The file isn't the one that the manifest describes.",
        Errors.AGAIN);
  }

  @Override
  void run(Tensor[] given, @Nullable Tensor[] into) {
    try {
      inputs.bind(given);
      outputs.bind(into);
      try (OrtSession.Result result = session.run(inputs.bound(), outputs.open(), outputs.bound())) {
        for (int i = 0; i < into.length; i++) {
          if (into[i] == null) {
            into[i] = copy(outputSpecs.get(i), result.get(String.valueOf(outputs.name(i))).orElse(null));
          }
        }
      }
    } catch (OrtException cause) {
      throw new EdgeException(
          "run_failed",
          "ONNX Runtime failed on this input: " + firstLine(cause) + ".",
          "An input has a dtype, size or value that the graph doesn't take.",
          "Compare the inputs with the manifest, or try another variant.",
          cause);
    }
  }

  /** An output whose shape was not known before: the one case in which values are copied. */
  private static Tensor copy(TensorSpec spec, @Nullable OnnxValue value) throws OrtException {
    if (!(value instanceof OnnxTensor) || ((OnnxTensor) value).getInfo().type != OrtSlots.type(spec.dtype())) {
      throw new EdgeException(
          "wrong_outputs",
          "Output '" + spec.name() + "' is " + (value == null ? "missing" : value.getInfo()) + ", not " + spec + ".",
          "The file in the bundle is not the one that the manifest describes.",
          Errors.AGAIN);
    }
    OnnxTensor tensor = (OnnxTensor) value;
    Tensor made = Tensor.allocate(spec.dtype(), tensor.getInfo().getShape());
    if (made.size() > 0) {
      made.data().put(tensor.getByteBuffer());
    }
    return made;
  }

  @Override
  void close() {
    inputs.close();
    outputs.close();
    close(session);
  }

  private static void close(OrtSession session) {
    try {
      session.close();
    } catch (OrtException cause) {
      throw new IllegalStateException("ONNX Runtime can't free a session", cause);
    }
  }

  private static String firstLine(OrtException cause) {
    String text = String.valueOf(cause.getMessage()).trim();
    int end = text.indexOf('\n');
    text = end < 0 ? text : text.substring(0, end);
    return text.endsWith(".") ? text.substring(0, text.length() - 1) : text;
  }
}
