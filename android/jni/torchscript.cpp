// libpytorch_jni_lite.so for a desktop JVM: the natives of the official Java classes org.pytorch.* (PyTorch Mobile's Lite
// interpreter), over the mobile interpreter in torch's Python wheel. Only the tests of this project use it; apps have the
// engine's own library.
#include <jni.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/mobile/import.h>
#include <torch/csrc/jit/mobile/module.h>

#include "java.h"

namespace {

using c10::IValue;
using edgesdk::lasting;
using edgesdk::text;

// The codes of IValue.java, DType.java and MemoryFormat.java.
enum : jint { kTensor = 2, kBool = 3, kLong = 4, kDouble = 5 };
enum : jint { kContiguous = 1, kChannelsLast = 2, kChannelsLast3d = 3 };
constexpr at::ScalarType kDtypes[] = {at::kByte, at::kChar, at::kInt, at::kFloat, at::kLong, at::kDouble}; // 1…6

struct Loaded : edgesdk::Hybrid {
  torch::jit::mobile::Module module;
};

// Keeps an output's memory while Java has it.
struct Kept : edgesdk::Hybrid {
  at::Tensor tensor;
};

struct Java {
  jclass value, tensor, failure, map;
  jfieldID peer_data, type_code, shape;
  jmethodID to_tensor, to_long, to_double, to_bool, dtype_code, format_code, raw_buffer;
  jmethodID from_tensor, from_bool, from_long, from_double, tuple, list, dict, new_tensor, new_failure;
  jmethodID new_map, put;
} java;

// As the Android library does: C++ exceptions are CppExceptions of Java.
void fail(JNIEnv* env, const std::string& message) {
  if (env->ExceptionCheck()) {
    return;
  }
  auto thrown = env->NewObject(java.failure, java.new_failure, env->NewStringUTF(message.c_str()));
  if (thrown != nullptr) {
    env->Throw(static_cast<jthrowable>(thrown));
  }
}

// An exception is pending in Java already.
struct Pending : std::exception {};

void check(JNIEnv* env) {
  if (env->ExceptionCheck()) {
    throw Pending();
  }
}

template <typename Result, typename Body>
Result guarded(JNIEnv* env, Result otherwise, Body body) {
  try {
    return body();
  } catch (const Pending&) {
  } catch (const std::exception& cause) {
    fail(env, cause.what());
  }
  return otherwise;
}

torch::jit::mobile::Module& module_of(JNIEnv* env, jobject self) {
  auto loaded = static_cast<Loaded*>(edgesdk::owned_by(env, self, java.peer_data));
  TORCH_CHECK(loaded != nullptr, "The module is destroyed");
  return loaded->module;
}

// A view of the buffer's memory; nothing is copied.
at::Tensor tensor_of(JNIEnv* env, jobject tensor) {
  jint dtype = env->CallIntMethod(tensor, java.dtype_code);
  jint format = env->CallIntMethod(tensor, java.format_code);
  jobject buffer = env->CallObjectMethod(tensor, java.raw_buffer);
  check(env);
  TORCH_CHECK(dtype >= 1 && dtype <= 6, "Unknown dtype ", dtype);
  TORCH_CHECK(format == kContiguous, "Inputs must be contiguous");
  std::vector<jlong> wide = edgesdk::shape_of(env, tensor, java.shape);
  TORCH_CHECK(edgesdk::fits(env, buffer, wide), "A tensor's buffer and shape don't fit");
  std::vector<int64_t> sizes(wide.begin(), wide.end());
  void* data = env->GetDirectBufferAddress(buffer);
  env->DeleteLocalRef(buffer);
  return at::from_blob(data, sizes, at::TensorOptions().dtype(kDtypes[dtype - 1]));
}

IValue value_of(JNIEnv* env, jobject value) {
  TORCH_CHECK(value != nullptr, "An input is null");
  switch (env->GetIntField(value, java.type_code)) {
    case kTensor:
      return tensor_of(env, env->CallObjectMethod(value, java.to_tensor));
    case kLong:
      return static_cast<int64_t>(env->CallLongMethod(value, java.to_long));
    case kDouble:
      return static_cast<double>(env->CallDoubleMethod(value, java.to_double));
    case kBool:
      return env->CallBooleanMethod(value, java.to_bool) == JNI_TRUE;
    default:
      TORCH_CHECK(false, "An input is neither a tensor nor a number");
  }
}

// As the Android library does: dense memory in channels-last order goes to Java as it is, and says so.
jobject java_of(JNIEnv* env, const at::Tensor& given) {
  jint format = kContiguous;
  auto kept = std::make_unique<Kept>();
  if (given.is_contiguous(at::MemoryFormat::ChannelsLast)) {
    format = kChannelsLast;
    kept->tensor = given;
  } else if (given.is_contiguous(at::MemoryFormat::ChannelsLast3d)) {
    format = kChannelsLast3d;
    kept->tensor = given;
  } else {
    kept->tensor = given.contiguous();
  }
  const at::Tensor& tensor = kept->tensor;
  const auto* found = std::find(std::begin(kDtypes), std::end(kDtypes), tensor.scalar_type());
  TORCH_CHECK(found != std::end(kDtypes), "Java has no tensors of ", tensor.scalar_type());
  jint code = static_cast<jint>(found - kDtypes + 1);
  jlongArray shape = edgesdk::java_shape(env, tensor.sizes());
  jobject buffer = edgesdk::java_buffer(env, tensor.data_ptr(), tensor.nbytes());
  check(env);
  jobject owner = edgesdk::hybrid_of(env, std::move(kept));
  check(env);
  jobject made = env->CallStaticObjectMethod(java.tensor, java.new_tensor, buffer, shape, code, format, owner);
  check(env);
  return env->CallStaticObjectMethod(java.value, java.from_tensor, made);
}

jobject java_of(JNIEnv* env, const IValue& value);

template <typename Values>
jobject sequence(JNIEnv* env, const Values& values, jmethodID maker) {
  jobjectArray items = env->NewObjectArray(static_cast<jsize>(values.size()), java.value, nullptr);
  jsize at = 0;
  for (const IValue& one : values) {
    jobject item = java_of(env, one);
    check(env);
    env->SetObjectArrayElement(items, at++, item);
    env->DeleteLocalRef(item);
  }
  return env->CallStaticObjectMethod(java.value, maker, items);
}

jobject java_of(JNIEnv* env, const IValue& value) {
  if (value.isTensor()) {
    return java_of(env, value.toTensor());
  }
  if (value.isInt()) {
    return env->CallStaticObjectMethod(java.value, java.from_long, static_cast<jlong>(value.toInt()));
  }
  if (value.isDouble()) {
    return env->CallStaticObjectMethod(java.value, java.from_double, value.toDouble());
  }
  if (value.isBool()) {
    return env->CallStaticObjectMethod(java.value, java.from_bool, static_cast<jboolean>(value.toBool()));
  }
  if (value.isTuple()) {
    return sequence(env, value.toTuple()->elements(), java.tuple);
  }
  if (value.isList()) {
    return sequence(env, value.toListRef(), java.list);
  }
  if (value.isGenericDict()) {
    jobject map = env->NewObject(java.map, java.new_map);
    for (const auto& entry : value.toGenericDict()) {
      jobject item = java_of(env, entry.value());
      check(env);
      env->CallObjectMethod(map, java.put, env->NewStringUTF(entry.key().toStringRef().c_str()), item);
    }
    return env->CallStaticObjectMethod(java.value, java.dict, map);
  }
  TORCH_CHECK(false, "An output is neither a tensor nor a number");
}

jobject run(JNIEnv* env, jobject self, const std::string& method, jobjectArray inputs) {
  return guarded<jobject>(env, nullptr, [&] {
    auto& module = module_of(env, self);
    c10::InferenceMode no_gradients;
    std::vector<IValue> values;
    for (jsize i = 0; i < env->GetArrayLength(inputs); i++) {
      jobject one = env->GetObjectArrayElement(inputs, i);
      values.push_back(value_of(env, one));
      env->DeleteLocalRef(one);
    }
    auto found = module.find_method(method);
    TORCH_CHECK(found.has_value(), "Method '", method, "' is not defined.");
    return java_of(env, (*found)(std::move(values)));
  });
}

bool look_up(JNIEnv* env) {
  jclass peer = env->FindClass("org/pytorch/LiteNativePeer");
  java.value = lasting(env, "org/pytorch/IValue");
  java.tensor = lasting(env, "org/pytorch/Tensor");
  java.failure = lasting(env, "com/facebook/jni/CppException");
  java.map = lasting(env, "java/util/LinkedHashMap");
  if (env->ExceptionCheck()) {
    return false;
  }
  java.peer_data = env->GetFieldID(peer, "mHybridData", "Lcom/facebook/jni/HybridData;");
  java.new_failure = env->GetMethodID(java.failure, "<init>", "(Ljava/lang/String;)V");
  java.type_code = env->GetFieldID(java.value, "mTypeCode", "I");
  java.to_tensor = env->GetMethodID(java.value, "toTensor", "()Lorg/pytorch/Tensor;");
  java.to_long = env->GetMethodID(java.value, "toLong", "()J");
  java.to_double = env->GetMethodID(java.value, "toDouble", "()D");
  java.to_bool = env->GetMethodID(java.value, "toBool", "()Z");
  java.from_tensor = env->GetStaticMethodID(java.value, "from", "(Lorg/pytorch/Tensor;)Lorg/pytorch/IValue;");
  java.from_bool = env->GetStaticMethodID(java.value, "from", "(Z)Lorg/pytorch/IValue;");
  java.from_long = env->GetStaticMethodID(java.value, "from", "(J)Lorg/pytorch/IValue;");
  java.from_double = env->GetStaticMethodID(java.value, "from", "(D)Lorg/pytorch/IValue;");
  java.tuple = env->GetStaticMethodID(java.value, "tupleFrom", "([Lorg/pytorch/IValue;)Lorg/pytorch/IValue;");
  java.list = env->GetStaticMethodID(java.value, "listFrom", "([Lorg/pytorch/IValue;)Lorg/pytorch/IValue;");
  java.dict = env->GetStaticMethodID(java.value, "dictStringKeyFrom", "(Ljava/util/Map;)Lorg/pytorch/IValue;");
  java.new_map = env->GetMethodID(java.map, "<init>", "()V");
  java.put = env->GetMethodID(java.map, "put", "(Ljava/lang/Object;Ljava/lang/Object;)Ljava/lang/Object;");
  java.shape = env->GetFieldID(java.tensor, "shape", "[J");
  java.dtype_code = env->GetMethodID(java.tensor, "dtypeJniCode", "()I");
  java.format_code = env->GetMethodID(java.tensor, "memoryFormatJniCode", "()I");
  java.raw_buffer = env->GetMethodID(java.tensor, "getRawDataBuffer", "()Ljava/nio/Buffer;");
  java.new_tensor = env->GetStaticMethodID(
      java.tensor, "nativeNewTensor",
      "(Ljava/nio/ByteBuffer;[JIILcom/facebook/jni/HybridData;)Lorg/pytorch/Tensor;");
  return !env->ExceptionCheck() && edgesdk::look_up_parts(env);
}

} // namespace

extern "C" {

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* machine, void*) {
  JNIEnv* env = nullptr;
  if (machine->GetEnv(reinterpret_cast<void**>(&env), JNI_VERSION_1_6) != JNI_OK || !look_up(env)) {
    return JNI_ERR;
  }
  // As on Android: quantized operators are those of QNNPACK.
  const auto& engines = at::globalContext().supportedQEngines();
  if (std::find(engines.begin(), engines.end(), at::QEngine::QNNPACK) != engines.end()) {
    at::globalContext().setQEngine(at::QEngine::QNNPACK);
  }
  return JNI_VERSION_1_6;
}

JNIEXPORT jobject JNICALL
Java_org_pytorch_LiteNativePeer_initHybrid(JNIEnv* env, jclass, jstring path, jobject, jint) {
  return guarded<jobject>(env, nullptr, [&] {
    c10::InferenceMode no_gradients;
    auto loaded = std::make_unique<Loaded>();
    loaded->module = torch::jit::_load_for_mobile(text(env, path), at::Device(at::kCPU));
    jobject data = edgesdk::hybrid_of(env, std::move(loaded));
    check(env);
    return data;
  });
}

JNIEXPORT jobject JNICALL
Java_org_pytorch_LiteNativePeer_forward(JNIEnv* env, jobject self, jobjectArray inputs) {
  return run(env, self, "forward", inputs);
}

JNIEXPORT jobject JNICALL
Java_org_pytorch_LiteNativePeer_runMethod(JNIEnv* env, jobject self, jstring method, jobjectArray inputs) {
  return run(env, self, text(env, method), inputs);
}

JNIEXPORT void JNICALL Java_org_pytorch_PyTorchAndroid_nativeSetNumThreads(JNIEnv* env, jclass, jint threads) {
  guarded<int>(env, 0, [&] {
    at::set_num_threads(threads);
    return 0;
  });
}

} // extern "C"
