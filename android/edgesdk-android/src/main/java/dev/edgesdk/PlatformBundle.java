package dev.edgesdk;

import android.content.Context;
import android.net.Uri;
import android.os.Build;
import android.os.Process;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** What {@link EdgeBundle} has on Android beside what it has everywhere: assets, Uris, ABIs, threads. */
public abstract class PlatformBundle {
  PlatformBundle() {}

  /**
   * Opens a bundle in the app's assets and checks every byte of it. An asset that the build left uncompressed is mapped
   * where it lies in the APK; a compressed one is unpacked once into the app's no-backup storage.
   *
   * @param asset its path in the assets: {@code mobilenet.edge}
   * @throws EdgeException {@code bundle_missing}, {@code disk_full}, {@code not_writable}, {@code on_main_thread}, and as
   *     {@link EdgeBundle#open(java.io.File)}
   */
  public static EdgeBundle open(Context context, String asset) {
    return Assets.open(context, asset, null);
  }

  /**
   * The same, signed by {@code key}.
   *
   * @throws EdgeException as {@link #open(Context, String)}, and {@code signature_untrusted}
   */
  public static EdgeBundle open(Context context, String asset, EdgeKey key) {
    return Assets.open(context, asset, key);
  }

  /**
   * Opens a bundle that the user chose, or that another app offers. It is copied into the app's no-backup storage, since
   * its owner may change it at any time; a {@code file:} Uri is opened where it lies.
   *
   * @throws EdgeException as {@link #open(Context, String)}
   */
  public static EdgeBundle open(Context context, Uri uri) {
    return Assets.open(context, uri, null);
  }

  /**
   * The same, signed by {@code key}.
   *
   * @throws EdgeException as {@link #open(Context, String)}, and {@code signature_untrusted}
   */
  public static EdgeBundle open(Context context, Uri uri, EdgeKey key) {
    return Assets.open(context, uri, key);
  }

  /** Unless the app says otherwise: as many threads as the fastest cluster has cores, at most four. */
  static Session.Config tuned(Session.Config config) {
    return config.threads == 0 ? config.withThreads(Cpu.here().threads()) : config;
  }

  /**
   * The model as a file in no-backup storage, for engines that load no memory: written by the first session, found by
   * those after it. Null before a bundle was opened with a {@link Context}.
   */
  static @Nullable File unpacked(String name, Variant variant, ByteBuffer model) {
    BundleStore store = Assets.lastStore();
    if (store == null) {
      return null;
    }
    File kept = store.keep("model:" + name, variant.sha256(), variant.size(), () -> new BufferStream(model));
    if (store.holds(kept)) {
      return kept;
    }
    store.drop(kept); // damaged since it was written
    return store.keep("model:" + name, variant.sha256(), variant.size(), () -> new BufferStream(model));
  }

  static @Nullable String whyNot(Variant variant) {
    String[] here = Process.is64Bit() ? Build.SUPPORTED_64_BIT_ABIS : Build.SUPPORTED_32_BIT_ABIS;
    return whyNot(variant.abis(), Arrays.asList(here));
  }

  /** Null when the file is for any ABI, or for one that this process can load. */
  static @Nullable String whyNot(List<String> wanted, List<String> here) {
    for (String abi : here) {
      if (wanted.contains(abi)) {
        return null;
      }
    }
    return wanted.isEmpty()
        ? null
        : "It is made for " + Words.join(wanted) + "; this process runs " + Words.join(here) + ".";
  }
}
