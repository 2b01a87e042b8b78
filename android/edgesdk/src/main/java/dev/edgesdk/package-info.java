/**
 * Runs {@code .edge} bundles on Android and on any JVM.
 *
 * <pre>{@code
 * try (Session session = EdgeBundle.open(file).session()) {
 *   List<Label> top = session.classify(Picture.argb(pixels, width, height), 5);
 * }
 * }</pre>
 *
 * <p>Nothing is null unless it says {@code @Nullable}. Everything here is plain Java: no class of Android is needed.
 */
@NullMarked
package dev.edgesdk;

import org.jspecify.annotations.NullMarked;
