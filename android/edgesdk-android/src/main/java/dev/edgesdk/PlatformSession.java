package dev.edgesdk;

import android.graphics.Bitmap;
import java.util.List;

/** What {@link Session} has on Android beside what it has everywhere. */
public abstract class PlatformSession {
  PlatformSession() {}

  /**
   * The likeliest classes of a picture, best first. For camera frames see {@link CameraFrames}, for EXIF orientations
   * {@link Pictures}.
   *
   * @throws EdgeException as {@link Session#classify(Picture, int)}, and {@code image_unreadable}: the bitmap is
   *     recycled, {@code on_main_thread}
   */
  public final List<Label> classify(Bitmap bitmap, int top) {
    MainThread.check("Session.classify");
    PlatformSession self = this;
    return ((Session) self).classify(Pictures.of(bitmap), top);
  }
}
