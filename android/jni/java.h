// What both JNI libraries need of Java: HybridData, strings, buffers and shapes.
#pragma once

#include <jni.h>

#include <memory>
#include <string>
#include <vector>

#include "hybrid.h"

namespace edgesdk {
namespace { // each library has its own: the loaders of Java's classes may differ

struct JavaParts {
  jclass hybrid;
  jfieldID destructor, pointer;
  jmethodID new_hybrid, buffer_order;
  jobject native_order;
};

JavaParts parts;

inline jclass lasting(JNIEnv* env, const char* name) {
  jclass found = env->FindClass(name);
  return found == nullptr ? nullptr : static_cast<jclass>(env->NewGlobalRef(found));
}

// False, with an exception in Java, when something isn't there.
inline bool look_up_parts(JNIEnv* env) {
  jclass destructor = env->FindClass("com/facebook/jni/HybridData$Destructor");
  jclass order = env->FindClass("java/nio/ByteOrder");
  jclass buffer = env->FindClass("java/nio/ByteBuffer");
  parts.hybrid = lasting(env, "com/facebook/jni/HybridData");
  if (env->ExceptionCheck()) {
    return false;
  }
  parts.destructor = env->GetFieldID(parts.hybrid, "mDestructor", "Lcom/facebook/jni/HybridData$Destructor;");
  parts.pointer = env->GetFieldID(destructor, "mNativePointer", "J");
  parts.new_hybrid = env->GetMethodID(parts.hybrid, "<init>", "()V");
  parts.buffer_order = env->GetMethodID(buffer, "order", "(Ljava/nio/ByteOrder;)Ljava/nio/ByteBuffer;");
  jmethodID native = env->GetStaticMethodID(order, "nativeOrder", "()Ljava/nio/ByteOrder;");
  if (env->ExceptionCheck()) {
    return false;
  }
  parts.native_order = env->NewGlobalRef(env->CallStaticObjectMethod(order, native));
  return !env->ExceptionCheck();
}

// A HybridData that owns it; null, with an exception in Java, when there is no memory.
inline jobject hybrid_of(JNIEnv* env, std::unique_ptr<Hybrid> owned) {
  jobject data = env->NewObject(parts.hybrid, parts.new_hybrid);
  if (data == nullptr) {
    return nullptr;
  }
  jobject destructor = env->GetObjectField(data, parts.destructor);
  env->SetLongField(destructor, parts.pointer, reinterpret_cast<jlong>(owned.release()));
  env->DeleteLocalRef(destructor);
  return data;
}

// What the HybridData in a field of an object owns; null when it was given back.
inline Hybrid* owned_by(JNIEnv* env, jobject self, jfieldID field) {
  jobject data = env->GetObjectField(self, field);
  jobject destructor = data == nullptr ? nullptr : env->GetObjectField(data, parts.destructor);
  jlong pointer = destructor == nullptr ? 0 : env->GetLongField(destructor, parts.pointer);
  return reinterpret_cast<Hybrid*>(pointer);
}

inline std::string text(JNIEnv* env, jstring from) {
  const char* chars = env->GetStringUTFChars(from, nullptr);
  std::string made = chars == nullptr ? "" : chars;
  env->ReleaseStringUTFChars(from, chars);
  return made;
}

// The long[] in a field of a tensor.
inline std::vector<jlong> shape_of(JNIEnv* env, jobject tensor, jfieldID field) {
  auto shape = static_cast<jlongArray>(env->GetObjectField(tensor, field));
  std::vector<jlong> sizes(env->GetArrayLength(shape));
  env->GetLongArrayRegion(shape, 0, static_cast<jsize>(sizes.size()), sizes.data());
  env->DeleteLocalRef(shape);
  return sizes;
}

// Whether a direct buffer holds exactly the elements of that shape.
inline bool fits(JNIEnv* env, jobject buffer, const std::vector<jlong>& sizes) {
  jlong count = 1;
  for (jlong size : sizes) {
    count *= size;
  }
  return env->GetDirectBufferCapacity(buffer) == count;
}

template <typename Sizes>
jlongArray java_shape(JNIEnv* env, const Sizes& from) {
  std::vector<jlong> sizes(from.begin(), from.end());
  jlongArray made = env->NewLongArray(static_cast<jsize>(sizes.size()));
  env->SetLongArrayRegion(made, 0, static_cast<jsize>(sizes.size()), sizes.data());
  return made;
}

// A direct ByteBuffer in the machine's byte order over memory that is not copied.
inline jobject java_buffer(JNIEnv* env, void* data, size_t bytes) {
  static char nothing;
  jobject raw = env->NewDirectByteBuffer(bytes == 0 || data == nullptr ? &nothing : data, static_cast<jlong>(bytes));
  return env->CallObjectMethod(raw, parts.buffer_order, parts.native_order);
}

} // namespace
} // namespace edgesdk
