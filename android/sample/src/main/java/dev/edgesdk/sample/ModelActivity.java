package dev.edgesdk.sample;

import android.app.Activity;
import android.os.Bundle;
import android.widget.TextView;
import dev.edgesdk.DeviceInfo;
import dev.edgesdk.Manifest;
import dev.edgesdk.OutputTest;
import dev.edgesdk.SelfTest;
import dev.edgesdk.Session;
import dev.edgesdk.TensorSpec;
import dev.edgesdk.Variant;
import java.util.Locale;

/** What the bundle says about itself, and whether this device computes what it should. */
public final class ModelActivity extends Activity {
  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    Screen screen = new Screen(this);
    screen.text(DeviceInfo.read(this).toString() + "\n");
    TextView about = screen.text("…");
    TextView test = screen.text("");
    screen.button("Run the self-test", () -> {
      test.setText("…");
      Model.with(this, session -> describe(session.selfTest()), test::setText, test::setText);
    });
    Model.with(this, ModelActivity::describe, about::setText, about::setText);
  }

  private static String describe(Session session) {
    Manifest manifest = session.manifest();
    StringBuilder text = new StringBuilder();
    text.append(manifest.name()).append(' ').append(manifest.version()).append('\n');
    if (manifest.license() != null) {
      text.append("Licence: ").append(manifest.license()).append('\n');
    }
    for (TensorSpec spec : manifest.inputs()) {
      text.append("in   ").append(spec).append('\n');
    }
    for (TensorSpec spec : manifest.outputs()) {
      text.append("out  ").append(spec).append('\n');
    }
    text.append(manifest.labels().size()).append(" labels\n\n");
    for (Variant variant : manifest.variants()) {
      boolean running = variant.id().equals(session.variant().id());
      text.append(running ? "▶ " : "   ").append(variant.id());
      text.append(String.format(Locale.ROOT, ", %s, %.1f MB%n", variant.quantization(), variant.size() / 1e6));
    }
    for (String reason : session.skipped()) {
      text.append('\n').append(reason).append('\n');
    }
    return text.toString();
  }

  private static String describe(SelfTest test) {
    StringBuilder text = new StringBuilder();
    text.append(test.ok() ? "Self-test passed: " : "Self-test FAILED: ").append(test.calls()).append(" calls\n");
    for (OutputTest output : test.outputs()) {
      text.append(String.format(
          Locale.ROOT, "%s  error %.3g of %.3g allowed%n", output.name(), output.maxAbsError(), output.tolerance()));
    }
    return text.toString();
  }
}
