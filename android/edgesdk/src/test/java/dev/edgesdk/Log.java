package dev.edgesdk;

import java.text.MessageFormat;
import java.util.Collections;
import java.util.ArrayList;
import java.util.List;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** What this library writes into the log as long as this is open. */
final class Log extends Handler implements AutoCloseable {
  private final List<String> lines = Collections.synchronizedList(new ArrayList<>());

  Log() {
    Logger.getLogger("dev.edgesdk").addHandler(this);
  }

  List<String> lines() {
    synchronized (lines) {
      return new ArrayList<>(lines);
    }
  }

  @Override
  public void publish(LogRecord record) {
    lines.add(MessageFormat.format(record.getMessage().replace("'", "''"), record.getParameters()));
  }

  @Override
  public void flush() {}

  @Override
  public void close() {
    Logger.getLogger("dev.edgesdk").removeHandler(this);
  }
}
