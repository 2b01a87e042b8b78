package dev.edgesdk;

import android.content.ContentResolver;
import android.content.Context;
import android.content.pm.PackageManager;
import android.content.res.AssetFileDescriptor;
import android.net.Uri;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Bundles in assets and behind Uris. */
final class Assets {
  private static volatile @Nullable BundleStore last;

  private Assets() {}

  /** Of the app: every context of it leads to the same folder. Null before the first bundle was opened. */
  static @Nullable BundleStore lastStore() {
    return last;
  }

  static EdgeBundle open(Context context, String asset, @Nullable EdgeKey key) {
    MainThread.check(context, "EdgeBundle.open");
    last = store(context);
    File name = new File("/android_asset", asset);
    Mapped mapped = map(context, asset, name);
    if (mapped != null) {
      return EdgeBundle.open(name, mapped, key, EdgeBundle.Check.ALL);
    }
    return unpacked(context, asset, key);
  }

  /** A copy that was damaged since it was made is made again. */
  private static EdgeBundle unpacked(Context context, String asset, @Nullable EdgeKey key) {
    BundleStore store = store(context);
    String stamp = installed(context);
    File kept = store.keep("asset:" + asset, stamp, -1, () -> stream(context, asset));
    try {
      return EdgeBundle.open(kept, key, EdgeBundle.Check.ALL);
    } catch (EdgeException fault) {
      if (store.holds(kept)) {
        throw fault; // it is as it came
      }
    }
    store.drop(kept);
    kept = store.keep("asset:" + asset, stamp, -1, () -> stream(context, asset));
    return EdgeBundle.open(kept, key, EdgeBundle.Check.ALL);
  }

  /** Null when the build compressed the asset, or when there is none. */
  private static @Nullable Mapped map(Context context, String asset, File name) {
    try (AssetFileDescriptor found = context.getAssets().openFd(asset);
        FileInputStream in = new FileInputStream(found.getFileDescriptor())) {
      return Mapped.of(name, in.getChannel(), found.getStartOffset(), found.getLength());
    } catch (FileNotFoundException absent) {
      return null;
    } catch (IOException cause) {
      throw Errors.missing(name, "can't be mapped (" + cause.getMessage() + ")", cause);
    }
  }

  private static InputStream stream(Context context, String asset) throws IOException {
    try {
      return context.getAssets().open(asset);
    } catch (FileNotFoundException cause) {
      int slash = asset.lastIndexOf('/');
      String[] beside = context.getAssets().list(slash < 0 ? "" : asset.substring(0, slash));
      List<String> bundles = new ArrayList<>();
      for (String name : beside == null ? new String[0] : beside) {
        if (name.endsWith(".edge")) {
          bundles.add(asset.substring(0, slash + 1) + name);
        }
      }
      throw new EdgeException(
          "bundle_missing",
          "The app has no asset '" + asset + "'.",
          bundles.isEmpty() ? "There is no .edge file in that folder of its assets." : Words.nearest(asset, bundles),
          "Name one that is there, or put the file into src/main/assets.",
          cause);
    }
  }

  static EdgeBundle open(Context context, Uri uri, @Nullable EdgeKey key) {
    MainThread.check(context, "EdgeBundle.open");
    last = store(context);
    if (uri.getScheme() == null || ContentResolver.SCHEME_FILE.equals(uri.getScheme())) {
      return EdgeBundle.open(new File(String.valueOf(uri.getPath())), key, EdgeBundle.Check.ALL);
    }
    ContentResolver resolver = context.getContentResolver();
    // Nothing tells whether the content behind a Uri is still the same: it is read each time.
    File kept = store(context).keep(uri.toString(), "", length(resolver, uri), () -> stream(resolver, uri));
    return EdgeBundle.open(kept, key, EdgeBundle.Check.ALL);
  }

  private static InputStream stream(ContentResolver resolver, Uri uri) {
    InputStream found;
    try {
      found = resolver.openInputStream(uri);
    } catch (FileNotFoundException | SecurityException cause) {
      throw unreadable(uri, String.valueOf(cause.getMessage()), cause);
    }
    if (found == null) {
      throw unreadable(uri, "its provider gives nothing", null);
    }
    return found;
  }

  private static EdgeException unreadable(Uri uri, String reason, @Nullable Throwable cause) {
    return new EdgeException(
        "bundle_missing",
        uri + " can't be read: " + reason + ".",
        "The file is gone, or the permission to read it ended with the screen that granted it.",
        "Let the user choose it again, and keep the permission by takePersistableUriPermission.",
        cause);
  }

  private static long length(ContentResolver resolver, Uri uri) {
    try (AssetFileDescriptor found = resolver.openAssetFileDescriptor(uri, "r")) {
      return found == null ? -1 : found.getLength();
    } catch (IOException | SecurityException unknown) {
      return -1; // opening it as a stream gives the reason
    }
  }

  static BundleStore store(Context context) {
    return new BundleStore(new File(context.getNoBackupFilesDir(), "edgesdk"));
  }

  /** Changes whenever the app is installed or updated, and its assets with it. */
  private static String installed(Context context) {
    try {
      return "installed:" + context.getPackageManager().getPackageInfo(context.getPackageName(), 0).lastUpdateTime;
    } catch (PackageManager.NameNotFoundException cause) {
      return ""; // an instrumented context of another package: read the asset each time
    }
  }
}
