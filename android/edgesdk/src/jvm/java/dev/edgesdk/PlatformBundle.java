package dev.edgesdk;

import java.io.File;
import java.nio.ByteBuffer;
import org.jspecify.annotations.Nullable;

/** What {@link EdgeBundle} gets from the platform. A plain JVM adds nothing; Android's class is in edgesdk-android. */
abstract class PlatformBundle {
  PlatformBundle() {}

  static Session.Config tuned(Session.Config config) {
    return config;
  }

  /** A model's file that stays for the next start; null where there is no place for such files. */
  static @Nullable File unpacked(String name, Variant variant, ByteBuffer model) {
    return null;
  }

  static @Nullable String whyNot(Variant variant) {
    return null;
  }
}
