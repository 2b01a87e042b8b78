package dev.edgesdk;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Frees what a session held when nobody closed it. That comes late, since the collector doesn't see native memory: a line
 * in the log says so.
 */
final class Forgotten extends PhantomReference<Session> {
  private static final Logger LOG = Logger.getLogger("dev.edgesdk");
  private static final Set<Forgotten> OPEN = Collections.synchronizedSet(new HashSet<Forgotten>());

  /** Started with the first session. */
  private static final class Watch {
    static final ReferenceQueue<Session> QUEUE = new ReferenceQueue<>();

    static {
      Thread thread = new Thread("edgesdk-forgotten") {
        @Override
        public void run() {
          watch();
        }
      };
      thread.setDaemon(true);
      thread.start();
    }

    private static void watch() {
      while (true) {
        try {
          ((Forgotten) QUEUE.remove()).free();
        } catch (InterruptedException e) {
          LOG.log(Level.FINE, "interrupted, and goes on: sessions may still be forgotten", e);
        } catch (RuntimeException e) {
          LOG.log(Level.WARNING, "a session that was never closed can't be freed", e);
        }
      }
    }
  }

  private final String session;
  private final Runner runner;
  private final ModelFile files;

  private Forgotten(Session session, Runner runner, ModelFile files) {
    super(session, Watch.QUEUE);
    this.session = session.toString();
    this.runner = runner;
    this.files = files;
  }

  static Forgotten watch(Session session, Runner runner, ModelFile files) {
    Forgotten made = new Forgotten(session, runner, files);
    OPEN.add(made);
    return made;
  }

  /** The session was closed. */
  void closed() {
    OPEN.remove(this);
    clear();
  }

  private void free() {
    if (OPEN.remove(this)) {
      LOG.log(Level.WARNING, "{0} was never closed; its native memory is freed only now. Use try (Session s = …).", session);
      runner.close();
      files.delete();
    }
  }
}
