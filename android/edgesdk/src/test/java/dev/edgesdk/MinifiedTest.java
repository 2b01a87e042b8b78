package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.jar.JarOutputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * an app, this library and the engines' Java classes, shrunk and renamed by R8 with the rules that the AAR gives to
 * apps, run the same bundles with the same words, on real engines. Without the engines' rules they don't.
 */
final class MinifiedTest {
  private static final File RULES = new File(Made.ROOT, "android/edgesdk-android/consumer-rules.pro");
  private static final String KEEP_APP = "-keep class app.MinifiedApp { public static void main(java.lang.String[]); }\n"
      + "-dontwarn android.**\n-dontwarn com.google.protobuf.**\n";

  @TempDir
  Path folder;

  @Test
  void pitfall_a_04_aMinifiedAppRunsRealModels() throws Exception {
    List<String> bundles = List.of("et-picture", "ts-picture", "zoo-digit", "et-counter");
    String wanted = run(System.getProperty("java.class.path"), bundles);
    assertTrue(wanted.contains("executorch-xnnpack-static-int8: true "), wanted);
    assertTrue(wanted.contains("torchscript-static-int8: true "), wanted);
    assertTrue(wanted.contains("onnx-static-int8: true "), wanted);

    File minified = minify(Files.readString(RULES.toPath()));
    try (JarFile jar = new JarFile(minified)) {
      assertTrue(jar.getEntry("org/pytorch/executorch/EValue.class") != null);
      assertTrue(jar.getEntry("dev/edgesdk/StrictJson.class") == null, "nothing was renamed");
    }
    assertEquals(wanted, run(minified + File.pathSeparator + stubs(), bundles));
  }

  /** The test above is worth something: without the rules for the engines native code finds its classes no more. */
  @Test
  void pitfall_a_04_withoutTheRulesItDoesNot() throws Exception {
    String rules = Files.readString(RULES.toPath());
    String less = rules.replaceAll("(?m)^-keep class org\\.pytorch\\..*$", "");
    assertNotEquals(rules, less);
    String found = run(minify(less) + File.pathSeparator + stubs(), List.of("et-picture"));
    assertTrue(found.contains("executorch-xnnpack-none: runtime_missing ") && !found.contains(": true "), found);
  }

  /** Android's log, which ExecuTorch's classes call, is the device's: it isn't shrunk with the app. */
  private File stubs() throws IOException {
    File jar = folder.resolve("stubs.jar").toFile();
    pack(jar, List.of(new File("target/test-classes/android/util/Log.class")), new File("target/test-classes"));
    return jar;
  }

  private File minify(String rules) throws Exception {
    File app = folder.resolve("app.jar").toFile();
    pack(app, List.of(new File("target/test-classes/app/MinifiedApp.class")), new File("target/test-classes"));
    File library = folder.resolve("library.jar").toFile();
    List<File> own = new ArrayList<>();
    try (var files = Files.walk(Path.of("target/classes"))) {
      files.map(Path::toFile).filter(f -> f.getName().endsWith(".class")).forEach(own::add);
    }
    pack(library, own, new File("target/classes"));
    Path conf = Files.writeString(folder.resolve("app.pro"), KEEP_APP);
    Path theirs = Files.writeString(folder.resolve("rules.pro"), rules);
    File out = folder.resolve("minified.jar").toFile();
    List<String> command = new ArrayList<>(List.of(
        java(), "-Xmx900m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jar("r8"), "com.android.tools.r8.R8", "--classfile", "--release",
        "--lib", System.getProperty("java.home"), "--output", out.getPath(),
        "--pg-conf", conf.toString(), "--pg-conf", theirs.toString(), app.getPath(), library.getPath()));
    for (String one : new String[] {
        "executorch-classes", "pytorch-lite-classes", "fbjni-java-only", "nativeloader", "tink", "gson", "jsr305",
        "error_prone_annotations"}) {
      command.add(jar(one));
    }
    command.add(onnxruntime().getPath());
    String said = run(command);
    assertTrue(out.isFile(), said);
    return out;
  }

  /** ONNX Runtime's classes; its native libraries go into a folder, as an installed app has them. */
  private File onnxruntime() throws IOException {
    File classes = folder.resolve("onnxruntime.jar").toFile();
    try (JarFile jar = new JarFile(jar("onnxruntime"));
        JarOutputStream out = new JarOutputStream(Files.newOutputStream(classes.toPath()))) {
      for (JarEntry entry : java.util.Collections.list(jar.entries())) {
        boolean library = entry.getName().contains("linux-x64") && entry.getName().endsWith(".so");
        if (entry.getName().endsWith(".class")) {
          out.putNextEntry(new JarEntry(entry.getName()));
          jar.getInputStream(entry).transferTo(out);
        } else if (library) {
          Files.copy(
              jar.getInputStream(entry), folder.resolve(new File(entry.getName()).getName()),
              StandardCopyOption.REPLACE_EXISTING);
        }
      }
    }
    return classes;
  }

  private static String java() {
    return new File(System.getProperty("java.home"), "bin/java").getPath();
  }

  /** A jar of the class path, by the name of its artifact. */
  private static String jar(String artifact) {
    for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
      if (new File(path).getName().matches(artifact + "-\\d.*\\.jar")) {
        return path;
      }
    }
    throw new AssertionError(artifact + " isn't on the class path");
  }

  private static void pack(File jar, List<File> files, File root) throws IOException {
    try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(jar.toPath()))) {
      Set<String> names = new LinkedHashSet<>();
      for (File file : files) {
        String name = root.toPath().relativize(file.toPath()).toString();
        if (names.add(name)) {
          out.putNextEntry(new JarEntry(name));
          Files.copy(file.toPath(), out);
        }
      }
    }
  }

  private String run(String classes, List<String> bundles) throws Exception {
    List<String> command = new ArrayList<>(List.of(java(), "-Djava.library.path=" + System.getProperty("edgesdk.jni")));
    if (Files.exists(folder.resolve("libonnxruntime.so"))) {
      command.add("-Donnxruntime.native.path=" + folder);
    }
    command.addAll(List.of("-cp", classes, "app.MinifiedApp",
        new File(Made.BUNDLES, "release.pub").getPath()));
    bundles.forEach(name -> command.add(Made.bundle(name).getPath()));
    return run(command);
  }

  private static String run(List<String> command) throws Exception {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    process.waitFor();
    StringBuilder kept = new StringBuilder();
    for (String line : said.split("\n")) { // the engines' own warnings carry the time of day
      boolean noise = line.startsWith("[W") || line.startsWith("WARNING:") || line.matches("\\w{3} \\d\\d, \\d{4} .*");
      kept.append(noise ? "" : line + "\n");
    }
    return kept.toString() + (process.exitValue() == 0 ? "" : Arrays.toString(command.toArray()));
  }
}
