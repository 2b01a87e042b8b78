package dev.edgesdk;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * What apps can see is written down in {@code android/edgesdk/api.txt}: whoever changes it, changes the file.
 *
 * <p>After a wanted change copy {@code target/api.txt} over it.
 */
final class ApiTest {
  @Test
  void thePublicApiIsTheOneWrittenDown() throws IOException {
    List<String> lines = new ArrayList<>();
    File[] classes = new File("target/classes/dev/edgesdk").listFiles((dir, name) -> name.endsWith(".class"));
    for (String name : Stream.of(classes).map(File::getName).sorted().toList()) {
      describe(type(name), lines);
    }
    String found = String.join("\n", lines) + "\n";
    Files.writeString(new File("target/api.txt").toPath(), found);
    assertEquals(Files.readString(new File("api.txt").toPath()), found);
  }

  private static Class<?> type(String file) {
    try {
      return Class.forName("dev.edgesdk." + file.replace(".class", ""));
    } catch (ClassNotFoundException cause) {
      throw new AssertionError(cause);
    }
  }

  private static void describe(Class<?> type, List<String> lines) {
    if (!Modifier.isPublic(type.getModifiers())) {
      return;
    }
    Set<String> members = new TreeSet<>();
    for (Constructor<?> one : type.getDeclaredConstructors()) {
      if (seen(one.getModifiers())) {
        members.add("new(" + names(one.getParameterTypes()) + ")");
      }
    }
    for (Method one : type.getDeclaredMethods()) {
      if (seen(one.getModifiers()) && !one.isBridge()) {
        String still = Modifier.isStatic(one.getModifiers()) ? "static " : "";
        members.add(still + one.getReturnType().getSimpleName() + " " + one.getName() + "("
            + names(one.getParameterTypes()) + ")");
      }
    }
    for (Field one : type.getDeclaredFields()) {
      if (seen(one.getModifiers())) {
        members.add(one.getType().getSimpleName() + " " + one.getName());
      }
    }
    lines.add(type.getName().substring("dev.edgesdk.".length()));
    members.forEach(member -> lines.add("  " + member));
  }

  private static boolean seen(int modifiers) {
    return Modifier.isPublic(modifiers) || Modifier.isProtected(modifiers);
  }

  private static String names(Class<?>[] types) {
    return Stream.of(types).map(Class::getSimpleName).collect(Collectors.joining(", "));
  }
}
