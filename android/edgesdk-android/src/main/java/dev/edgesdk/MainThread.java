package dev.edgesdk;

import android.content.Context;
import android.content.pm.ApplicationInfo;
import android.os.Looper;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.jspecify.annotations.Nullable;

/**
 * What happens when a slow call is made on the main thread, where it freezes the app.
 *
 * <p>Unless the app chooses: a debuggable build throws, so that its developer sees it; a released one logs, once.
 */
public final class MainThread {
  /** The choices. */
  public enum Policy {
    /** Nothing happens. */
    ALLOW,
    /** One line in the log, the first time. */
    LOG,
    /** {@link EdgeException} with the code {@code on_main_thread}. */
    THROW
  }

  private static final Logger LOG = Logger.getLogger("dev.edgesdk");
  private static final AtomicBoolean TOLD = new AtomicBoolean();
  private static volatile @Nullable Policy chosen;
  private static volatile boolean debuggable;

  private MainThread() {}

  /** Chooses for the whole process; null goes back to what the build says. */
  public static void policy(@Nullable Policy policy) {
    chosen = policy;
    TOLD.set(false);
  }

  /** What holds now. */
  public static Policy policy() {
    Policy policy = chosen;
    return policy != null ? policy : debuggable ? Policy.THROW : Policy.LOG;
  }

  static void check(Context context, String call) {
    debuggable = (context.getApplicationInfo().flags & ApplicationInfo.FLAG_DEBUGGABLE) != 0;
    check(call);
  }

  static void check(String call) {
    if (Looper.myLooper() == null || Looper.myLooper() != Looper.getMainLooper() || policy() == Policy.ALLOW) {
      return;
    }
    EdgeException error = new EdgeException(
        "on_main_thread",
        call + " was called on the main thread.",
        "It reads a file or runs a model, and the app can't draw or answer meanwhile.",
        "Call it from an executor or from Dispatchers.Default, or allow it: "
            + "MainThread.policy(MainThread.Policy.ALLOW).");
    if (policy() == Policy.THROW) {
      throw error;
    }
    if (TOLD.compareAndSet(false, true)) {
      LOG.log(Level.WARNING, "{0}", error.getMessage());
    }
  }
}
