package dev.edgesdk;

import java.util.Arrays;
import java.util.List;
import org.pytorch.executorch.Module;

/** The last messages of ExecuTorch's library, which names operators and delegates only there. */
final class EtLog {
  private EtLog() {}

  static String[] lines() {
    try {
      String[] lines = Module.readLogBufferStatic();
      return lines == null ? new String[0] : lines;
    } catch (LinkageError older) {
      return new String[0];
    }
  }

  /** What came after those lines; the library keeps only so many, so the first of them may be gone. */
  static String since(String[] before) {
    List<String> now = Arrays.asList(lines());
    List<String> then = Arrays.asList(before);
    int same = Math.min(then.size(), now.size());
    while (!then.subList(then.size() - same, then.size()).equals(now.subList(0, same))) {
      same--;
    }
    StringBuilder text = new StringBuilder();
    for (String line : now.subList(same, now.size())) {
      text.append(line).append('\n');
    }
    return text.toString();
  }
}
