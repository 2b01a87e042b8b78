package dev.edgesdk;

import org.jspecify.annotations.Nullable;

/** What {@link EdgeBundle} gets from the platform. A plain JVM adds nothing; Android's class is in edgesdk-android. */
abstract class PlatformBundle {
  PlatformBundle() {}

  static Session.Config tuned(Session.Config config) {
    return config;
  }

  static @Nullable String whyNot(Variant variant) {
    return null;
  }
}
