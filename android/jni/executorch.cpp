// libexecutorch.so for a desktop JVM: the natives of the official Java classes org.pytorch.executorch.*, over the C++ SDK
// of ExecuTorch's Python wheel. Only the tests of this project use it; apps have the engine's own library.
#include <jni.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor_ptr.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#include "java.h"

// The wheel has the library but not this header.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t count);
};
ThreadPool* get_threadpool();
} // namespace executorch::extension::threadpool

namespace {

using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Program;
using edgesdk::lasting;
using edgesdk::text;

// The codes of EValue.java.
constexpr jint kTensor = 1, kDouble = 3, kInt = 4, kBool = 5;

struct Loaded : edgesdk::Hybrid {
  std::unique_ptr<Module> module;
};

struct Java {
  jclass string, value, tensor, failure;
  jfieldID module_data, type_code, shape;
  jmethodID to_tensor, to_long, to_double, to_bool, dtype_code, raw_buffer;
  jmethodID from_tensor, from_bool, from_long, from_double, new_tensor, make_failure;
} java;

std::mutex log_lock;
std::deque<std::string> log_lines; // the last ones, as the Android library keeps them

void keep_log(
    et_timestamp_t, et_pal_log_level_t level, const char* file, const char*, size_t line, const char* message, size_t) {
  if (level != kError && level != kFatal) {
    return;
  }
  std::lock_guard<std::mutex> held(log_lock);
  log_lines.push_back(std::string("[") + file + ":" + std::to_string(line) + "] " + message);
  if (log_lines.size() > 64) {
    log_lines.pop_front();
  }
}

void fail(JNIEnv* env, Error error, const std::string& message) {
  if (env->ExceptionCheck()) {
    return;
  }
  jstring text = env->NewStringUTF(message.c_str());
  auto thrown = env->CallStaticObjectMethod(java.failure, java.make_failure, static_cast<jint>(error), text);
  if (thrown != nullptr) {
    env->Throw(static_cast<jthrowable>(thrown));
  }
}

template <typename Strings>
jobjectArray strings(JNIEnv* env, const Strings& from) {
  jobjectArray made = env->NewObjectArray(static_cast<jsize>(from.size()), java.string, nullptr);
  jsize index = 0;
  for (const auto& one : from) {
    jstring item = env->NewStringUTF(one.c_str());
    env->SetObjectArrayElement(made, index++, item);
    env->DeleteLocalRef(item);
  }
  return made;
}

Module* module_of(JNIEnv* env, jobject self) {
  auto loaded = static_cast<Loaded*>(edgesdk::owned_by(env, self, java.module_data));
  if (loaded == nullptr) {
    fail(env, Error::InvalidState, "The module is destroyed");
    return nullptr;
  }
  return loaded->module.get();
}

// A view of the buffer's memory; nothing is copied.
bool tensor_of(JNIEnv* env, jobject tensor, TensorPtr& made) {
  jint dtype = env->CallIntMethod(tensor, java.dtype_code);
  jobject buffer = env->CallObjectMethod(tensor, java.raw_buffer);
  if (env->ExceptionCheck()) {
    return false;
  }
  std::vector<jlong> wide = edgesdk::shape_of(env, tensor, java.shape);
  if (!edgesdk::fits(env, buffer, wide)) {
    fail(env, Error::InvalidArgument, "A tensor's buffer and shape don't fit");
    return false;
  }
  made = executorch::extension::make_tensor_ptr(
      std::vector<SizesType>(wide.begin(), wide.end()),
      env->GetDirectBufferAddress(buffer), {}, {}, static_cast<ScalarType>(dtype));
  return true;
}

bool value_of(JNIEnv* env, jobject value, std::vector<TensorPtr>& tensors, std::vector<EValue>& values) {
  switch (env->GetIntField(value, java.type_code)) {
    case kTensor: {
      tensors.emplace_back();
      if (!tensor_of(env, env->CallObjectMethod(value, java.to_tensor), tensors.back())) {
        return false;
      }
      values.emplace_back(tensors.back());
      return true;
    }
    case kInt:
      values.emplace_back(static_cast<int64_t>(env->CallLongMethod(value, java.to_long)));
      return true;
    case kDouble:
      values.emplace_back(static_cast<double>(env->CallDoubleMethod(value, java.to_double)));
      return true;
    case kBool:
      values.emplace_back(env->CallBooleanMethod(value, java.to_bool) == JNI_TRUE);
      return true;
    default:
      fail(env, Error::InvalidArgument, "An input is neither a tensor nor a number");
      return false;
  }
}

// Java sees the engine's own memory, which holds until the next call or the module's end.
jobject java_of(JNIEnv* env, const EValue& value) {
  if (value.isInt()) {
    return env->CallStaticObjectMethod(java.value, java.from_long, static_cast<jlong>(value.toInt()));
  }
  if (value.isDouble()) {
    return env->CallStaticObjectMethod(java.value, java.from_double, value.toDouble());
  }
  if (value.isBool()) {
    return env->CallStaticObjectMethod(java.value, java.from_bool, static_cast<jboolean>(value.toBool()));
  }
  if (!value.isTensor()) {
    fail(env, Error::InvalidArgument, "An output is neither a tensor nor a number");
    return nullptr;
  }
  const auto& tensor = value.toTensor();
  jlongArray shape = edgesdk::java_shape(env, tensor.sizes());
  jobject buffer = edgesdk::java_buffer(env, tensor.mutable_data_ptr(), tensor.nbytes());
  jobject made = env->CallStaticObjectMethod(
      java.tensor, java.new_tensor, buffer, shape, static_cast<jint>(tensor.scalar_type()), nullptr);
  return made == nullptr ? nullptr : env->CallStaticObjectMethod(java.value, java.from_tensor, made);
}

jobjectArray execute(JNIEnv* env, Module& module, const std::string& method, jobjectArray inputs) {
  jsize count = env->GetArrayLength(inputs);
  auto meta = module.method_meta(method);
  if (!meta.ok()) {
    fail(env, meta.error(), "There is no method " + method);
    return nullptr;
  }
  if (static_cast<size_t>(count) != meta->num_inputs()) {
    fail(env, Error::InvalidArgument, "The method takes " + std::to_string(meta->num_inputs()) + " inputs");
    return nullptr;
  }
  std::vector<TensorPtr> tensors;
  std::vector<EValue> values;
  tensors.reserve(count);
  values.reserve(count);
  for (jsize i = 0; i < count; i++) {
    if (!value_of(env, env->GetObjectArrayElement(inputs, i), tensors, values)) {
      return nullptr;
    }
  }
  auto found = module.execute(method, values);
  if (!found.ok()) {
    fail(env, found.error(), "Execution failed for method: " + method);
    return nullptr;
  }
  jobjectArray outputs = env->NewObjectArray(static_cast<jsize>(found->size()), java.value, nullptr);
  for (size_t i = 0; i < found->size(); i++) {
    jobject one = java_of(env, (*found)[i]);
    if (one == nullptr) {
      return nullptr;
    }
    env->SetObjectArrayElement(outputs, static_cast<jsize>(i), one);
    env->DeleteLocalRef(one);
  }
  return outputs;
}

// No C++ exception may pass through Java.
template <typename Result, typename Body>
Result guarded(JNIEnv* env, Result otherwise, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    fail(env, Error::MemoryAllocationFailed, "Out of memory");
  } catch (const std::exception& cause) {
    fail(env, Error::Internal, cause.what());
  }
  return otherwise;
}

bool look_up(JNIEnv* env) {
  jclass module = env->FindClass("org/pytorch/executorch/Module");
  java.string = lasting(env, "java/lang/String");
  java.value = lasting(env, "org/pytorch/executorch/EValue");
  java.tensor = lasting(env, "org/pytorch/executorch/Tensor");
  java.failure = lasting(env, "org/pytorch/executorch/ExecutorchRuntimeException");
  if (env->ExceptionCheck()) {
    return false;
  }
  java.module_data = env->GetFieldID(module, "mHybridData", "Lcom/facebook/jni/HybridData;");
  java.type_code = env->GetFieldID(java.value, "mTypeCode", "I");
  java.to_tensor = env->GetMethodID(java.value, "toTensor", "()Lorg/pytorch/executorch/Tensor;");
  java.to_long = env->GetMethodID(java.value, "toInt", "()J");
  java.to_double = env->GetMethodID(java.value, "toDouble", "()D");
  java.to_bool = env->GetMethodID(java.value, "toBool", "()Z");
  java.from_tensor =
      env->GetStaticMethodID(java.value, "from", "(Lorg/pytorch/executorch/Tensor;)Lorg/pytorch/executorch/EValue;");
  java.from_bool = env->GetStaticMethodID(java.value, "from", "(Z)Lorg/pytorch/executorch/EValue;");
  java.from_long = env->GetStaticMethodID(java.value, "from", "(J)Lorg/pytorch/executorch/EValue;");
  java.from_double = env->GetStaticMethodID(java.value, "from", "(D)Lorg/pytorch/executorch/EValue;");
  java.shape = env->GetFieldID(java.tensor, "shape", "[J");
  java.dtype_code = env->GetMethodID(java.tensor, "dtypeJniCode", "()I");
  java.raw_buffer = env->GetMethodID(java.tensor, "getRawDataBuffer", "()Ljava/nio/Buffer;");
  java.new_tensor = env->GetStaticMethodID(
      java.tensor, "nativeNewTensor",
      "(Ljava/nio/ByteBuffer;[JILcom/facebook/jni/HybridData;)Lorg/pytorch/executorch/Tensor;");
  java.make_failure = env->GetStaticMethodID(
      java.failure, "makeExecutorchException", "(ILjava/lang/String;)Ljava/lang/RuntimeException;");
  return !env->ExceptionCheck() && edgesdk::look_up_parts(env);
}

} // namespace

extern "C" {

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* machine, void*) {
  JNIEnv* env = nullptr;
  if (machine->GetEnv(reinterpret_cast<void**>(&env), JNI_VERSION_1_6) != JNI_OK || !look_up(env)) {
    return JNI_ERR;
  }
  executorch::runtime::register_pal(executorch::runtime::PalImpl::create(keep_log, __FILE__));
  executorch::runtime::runtime_init();
  return JNI_VERSION_1_6;
}

JNIEXPORT jobject JNICALL
Java_org_pytorch_executorch_Module_initHybrid(JNIEnv* env, jclass, jstring path, jint mode, jint threads) {
  return guarded<jobject>(env, nullptr, [&]() -> jobject {
    static constexpr Module::LoadMode modes[] = {
        Module::LoadMode::File, Module::LoadMode::Mmap, Module::LoadMode::MmapUseMlock,
        Module::LoadMode::MmapUseMlockIgnoreErrors};
    auto loaded = std::make_unique<Loaded>();
    loaded->module = std::make_unique<Module>(text(env, path), modes[mode & 3]);
    Error error = loaded->module->load(Program::Verification::InternalConsistency);
    if (error != Error::Ok) {
      fail(env, error, "The program can't be loaded");
      return nullptr;
    }
    // As on Android: half of the cores unless told otherwise. A call with the number that is set does nothing.
    uint32_t half = std::max(1u, std::thread::hardware_concurrency() / 2);
    executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(threads > 0 ? threads : half);
    return edgesdk::hybrid_of(env, std::move(loaded));
  });
}

JNIEXPORT jobjectArray JNICALL
Java_org_pytorch_executorch_Module_executeNative(JNIEnv* env, jobject self, jstring method, jobjectArray inputs) {
  return guarded<jobjectArray>(env, nullptr, [&]() -> jobjectArray {
    Module* module = module_of(env, self);
    return module == nullptr ? nullptr : execute(env, *module, text(env, method), inputs);
  });
}

JNIEXPORT jint JNICALL
Java_org_pytorch_executorch_Module_loadMethodNative(JNIEnv* env, jobject self, jstring method) {
  return guarded<jint>(env, -1, [&]() -> jint {
    Module* module = module_of(env, self);
    return module == nullptr ? -1 : static_cast<jint>(module->load_method(text(env, method)));
  });
}

JNIEXPORT jobjectArray JNICALL
Java_org_pytorch_executorch_Module_getUsedBackends(JNIEnv* env, jobject self, jstring method) {
  return guarded<jobjectArray>(env, nullptr, [&]() -> jobjectArray {
    Module* module = module_of(env, self);
    if (module == nullptr) {
      return nullptr;
    }
    std::vector<std::string> names;
    auto meta = module->method_meta(text(env, method));
    for (size_t i = 0; meta.ok() && i < meta->num_backends(); i++) {
      auto name = meta->get_backend_name(i);
      if (name.ok()) {
        names.emplace_back(*name);
      }
    }
    return strings(env, names);
  });
}

JNIEXPORT jobjectArray JNICALL Java_org_pytorch_executorch_Module_getMethodsNative(JNIEnv* env, jobject self) {
  return guarded<jobjectArray>(env, nullptr, [&]() -> jobjectArray {
    Module* module = module_of(env, self);
    if (module == nullptr) {
      return nullptr;
    }
    auto names = module->method_names();
    if (!names.ok()) {
      fail(env, names.error(), "The program's methods can't be read");
      return nullptr;
    }
    return strings(env, *names);
  });
}

JNIEXPORT jobjectArray JNICALL Java_org_pytorch_executorch_Module_readLogBufferStaticNative(JNIEnv* env, jclass) {
  return guarded<jobjectArray>(env, nullptr, [&]() -> jobjectArray {
    std::lock_guard<std::mutex> held(log_lock);
    return strings(env, log_lines);
  });
}

JNIEXPORT jobjectArray JNICALL Java_org_pytorch_executorch_Module_readLogBufferNative(JNIEnv* env, jobject) {
  return Java_org_pytorch_executorch_Module_readLogBufferStaticNative(env, nullptr);
}

JNIEXPORT jobjectArray JNICALL
Java_org_pytorch_executorch_ExecuTorchRuntime_getRegisteredBackends(JNIEnv* env, jclass) {
  return guarded<jobjectArray>(env, nullptr, [&]() -> jobjectArray {
    std::vector<std::string> names;
    for (size_t i = 0; i < executorch::runtime::get_num_registered_backends(); i++) {
      auto name = executorch::runtime::get_backend_name(i);
      if (name.ok()) {
        names.emplace_back(*name);
      }
    }
    return strings(env, names);
  });
}

JNIEXPORT jobjectArray JNICALL Java_org_pytorch_executorch_ExecuTorchRuntime_getRegisteredOps(JNIEnv* env, jclass) {
  return guarded<jobjectArray>(env, nullptr, [&]() -> jobjectArray {
    std::vector<std::string> names;
    for (const auto& kernel : executorch::runtime::get_registered_kernels()) {
      names.emplace_back(kernel.name_);
    }
    return strings(env, names);
  });
}

} // extern "C"
