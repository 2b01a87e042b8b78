package dev.edgesdk.sample;

import android.content.Context;
import android.os.Handler;
import android.os.Looper;
import dev.edgesdk.EdgeBundle;
import dev.edgesdk.EdgeException;
import dev.edgesdk.Session;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** The app's one session and the one thread that uses it; the screens come and go, it stays. */
final class Model {
  /** Work on the model's thread. */
  interface Work<T> {
    T run(Session session) throws IOException;
  }

  /** Answers on the main thread. */
  interface Answer<T> {
    void give(T result);
  }

  private static final ExecutorService THREAD = Executors.newSingleThreadExecutor();
  private static final Handler MAIN = new Handler(Looper.getMainLooper());
  private static Session session;

  private Model() {}

  /** Runs work with the session, which the first work opens; failures come as one paragraph. */
  static <T> void with(Context context, Work<T> work, Answer<T> answer, Answer<String> failure) {
    final Context app = context.getApplicationContext();
    THREAD.execute(() -> {
      try {
        if (session == null) {
          try (EdgeBundle bundle = EdgeBundle.open(app, asset(app))) {
            session = bundle.session();
          }
        }
        T result = work.run(session);
        MAIN.post(() -> answer.give(result));
      } catch (EdgeException error) {
        tell(failure, error.message() + "\n\n" + error.why() + "\n\n" + error.fix());
      } catch (IOException | SecurityException | OutOfMemoryError error) {
        tell(failure, String.valueOf(error.getMessage()));
      }
    });
  }

  private static void tell(Answer<String> failure, String text) {
    MAIN.post(() -> failure.give(text));
  }

  /** The first bundle of the app's assets. */
  private static String asset(Context context) throws IOException {
    String[] names = context.getAssets().list("");
    for (String name : names == null ? new String[0] : names) {
      if (name.endsWith(".edge")) {
        return name;
      }
    }
    throw new FileNotFoundException("There is no .edge file in this app's assets: see android/README.md.");
  }
}
