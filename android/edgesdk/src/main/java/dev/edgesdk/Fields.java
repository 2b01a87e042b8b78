package dev.edgesdk;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * One JSON object, read field by field. A value of another type is never converted, and fields that nobody asks for are
 * ignored. Methods with a default take it when the field is absent; null is then still an error, as in Python.
 */
final class Fields {
  private final Map<?, ?> map;
  private final String path;

  private Fields(Map<?, ?> map, String path) {
    this.map = map;
    this.path = path;
  }

  static Fields of(@Nullable Object value, String path) {
    if (!(value instanceof Map)) {
      throw new BadField((path.isEmpty() ? "it" : "'" + path + "'") + " is no JSON object");
    }
    return new Fields((Map<?, ?>) value, path);
  }

  boolean has(String key) {
    return map.containsKey(key);
  }

  /** The keys, which are strings in every document that {@link StrictJson} read. */
  List<String> keys() {
    List<String> keys = new ArrayList<>();
    for (Object key : map.keySet()) {
      keys.add(String.valueOf(key));
    }
    return keys;
  }

  String path(String key) {
    return path.isEmpty() ? key : path + "." + key;
  }

  @Nullable Object any(String key) {
    if (!map.containsKey(key)) {
      throw new BadField("'" + path(key) + "' is missing");
    }
    return map.get(key);
  }

  String text(String key, TextRule rule) {
    Object value = any(key);
    if (!(value instanceof String)) {
      throw new BadField("'" + path(key) + "' should be a string");
    }
    return rule.check((String) value, path(key));
  }

  String text(String key, TextRule rule, String otherwise) {
    return has(key) ? text(key, rule) : otherwise;
  }

  @Nullable String textOrNull(String key, TextRule rule) {
    return map.get(key) == null ? null : text(key, rule);
  }

  String oneOf(String key, Set<String> known) {
    Object value = any(key);
    if (!(value instanceof String) || !known.contains(value)) {
      throw new BadField("'" + path(key) + "' can't be " + value + "; it is one of " + Words.join(known));
    }
    return (String) value;
  }

  long whole(String key, long least, long most) {
    Object value = any(key);
    if (!(value instanceof Long) || (Long) value < least || (Long) value > most) {
      throw new BadField("'" + path(key) + "' should be a whole number from " + least + " to " + most);
    }
    return (Long) value;
  }

  long whole(String key, long least, long most, long otherwise) {
    return has(key) ? whole(key, least, most) : otherwise;
  }

  @Nullable Long wholeOrNull(String key, long least, long most) {
    return map.get(key) == null ? null : whole(key, least, most);
  }

  /** A number with or without a fraction; JSON has no others than finite ones. */
  double real(String key) {
    Object value = any(key);
    if (!(value instanceof Number)) {
      throw new BadField("'" + path(key) + "' should be a number");
    }
    return ((Number) value).doubleValue();
  }

  @Nullable Double realOrNull(String key) {
    return map.get(key) == null ? null : real(key);
  }

  @Nullable Double shareOrNull(String key) {
    Double value = realOrNull(key);
    if (value != null && !(value >= 0 && value <= 1)) {
      throw new BadField("'" + path(key) + "' should be from 0 to 1");
    }
    return value;
  }

  boolean flag(String key, boolean otherwise) {
    if (!has(key)) {
      return otherwise;
    }
    if (!(map.get(key) instanceof Boolean)) {
      throw new BadField("'" + path(key) + "' should be true or false");
    }
    return (Boolean) any(key);
  }

  List<?> list(String key, int least, int most) {
    Object value = any(key);
    if (!(value instanceof List)) {
      throw new BadField("'" + path(key) + "' should be a list");
    }
    int size = ((List<?>) value).size();
    if (size < least || size > most) {
      throw new BadField("'" + path(key) + "' has " + size + " members, not " + least + " to " + most);
    }
    return (List<?>) value;
  }

  /** Objects; none when the field is absent. */
  List<Fields> parts(String key, int least, int most) {
    List<Fields> found = new ArrayList<>();
    if (has(key) || least > 0) {
      for (Object value : list(key, least, most)) {
        found.add(of(value, path(key) + "." + found.size()));
      }
    }
    return found;
  }

  /** Strings; none when the field is absent. */
  List<String> texts(String key, TextRule rule, int most) {
    List<String> found = new ArrayList<>();
    if (has(key)) {
      for (Object value : list(key, 0, most)) {
        String place = path(key) + "." + found.size();
        if (!(value instanceof String)) {
          throw new BadField("'" + place + "' should be a string");
        }
        found.add(rule.check((String) value, place));
      }
    }
    return Collections.unmodifiableList(found);
  }

  /** An object with free keys; an empty one when the field is absent. */
  Fields table(String key, TextRule rule) {
    Fields found = has(key) ? of(map.get(key), path(key)) : of(Collections.emptyMap(), path(key));
    for (String name : found.keys()) {
      rule.check(name, path(key));
    }
    return found;
  }

  Map<String, String> textTable(String key, TextRule keys, TextRule values) {
    Fields table = table(key, keys);
    Map<String, String> found = new LinkedHashMap<>();
    for (String name : table.keys()) {
      found.put(name, table.text(name, values));
    }
    return Collections.unmodifiableMap(found);
  }

  /** Numbers that are not negative, by the name of a tensor. */
  Map<String, Double> tolerances(String key) {
    Fields table = table(key, TextRule.TENSOR);
    Map<String, Double> found = new LinkedHashMap<>();
    for (String name : table.keys()) {
      double value = table.real(name);
      if (value < 0) {
        throw new BadField("'" + table.path(name) + "' is negative");
      }
      found.put(name, value);
    }
    return Collections.unmodifiableMap(found);
  }

  /** An object as it is, or null. */
  @Nullable Map<String, Object> documentOrNull(String key) {
    return map.get(key) == null ? null : of(map.get(key), path(key)).document();
  }

  Map<String, Object> document() {
    Map<String, Object> copy = new LinkedHashMap<>();
    for (Map.Entry<?, ?> entry : map.entrySet()) {
      copy.put(String.valueOf(entry.getKey()), entry.getValue());
    }
    return Collections.unmodifiableMap(copy);
  }
}
