package dev.edgesdk;

/** What {@link Session} gets from the platform. A plain JVM adds nothing; Android's class is in edgesdk-android. */
abstract class PlatformSession {
  PlatformSession() {}
}
