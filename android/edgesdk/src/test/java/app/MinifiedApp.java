package app;

import dev.edgesdk.EdgeBundle;
import dev.edgesdk.EdgeException;
import dev.edgesdk.EdgeKey;
import dev.edgesdk.Label;
import dev.edgesdk.Picture;
import dev.edgesdk.SelfTest;
import dev.edgesdk.Session;
import dev.edgesdk.Variant;
import java.io.File;
import java.nio.file.Files;

/** An app as apps are: it knows the public API only. {@code MinifiedTest} shrinks it together with the library. */
public final class MinifiedApp {
  private MinifiedApp() {}

  /** Arguments: the public key of the bundles, and bundles; every variant of them is run and said. */
  public static void main(String[] arguments) {
    int code = 0;
    try {
      run(arguments);
    } catch (Exception | LinkageError failure) {
      failure.printStackTrace(System.out);
      code = 1;
    }
    System.out.flush();
    Runtime.getRuntime().halt(code); // the engines' own threads would keep the process
  }

  private static void run(String[] arguments) throws Exception {
    EdgeKey key = EdgeKey.fromPem(Files.readString(new File(arguments[0]).toPath()));
    for (int i = 1; i < arguments.length; i++) {
      try (EdgeBundle bundle = EdgeBundle.open(new File(arguments[i]), key)) {
        System.out.println(bundle.manifest().name() + " " + bundle.signature());
        for (Variant variant : bundle.manifest().variants()) {
          System.out.println(variant.id() + ": " + said(bundle, variant));
        }
      }
    }
  }

  private static String said(EdgeBundle bundle, Variant variant) {
    Session.Config config = Session.Config.DEFAULT.withThreads(1).withVariant(variant.id());
    try (Session session = bundle.session(config)) {
      SelfTest test = session.selfTest();
      StringBuilder text = new StringBuilder(test.ok() + " " + test.calls());
      if (bundle.manifest().preprocess() != null) {
        for (Label label : session.classify(Picture.gray(new byte[40 * 30], 40, 30), 3)) {
          text.append(' ').append(label);
        }
      }
      return text.toString();
    } catch (EdgeException error) {
      return error.code() + " " + error.why();
    }
  }
}
