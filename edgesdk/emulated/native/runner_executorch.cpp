// Runs a .pte on one thread, many calls in one process: the caller speaks through wire.h.
//   runner_executorch FILE      runner_executorch (no file: says what processor it sees, and leaves)
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor_ptr.h>
#include <executorch/runtime/platform/runtime.h>

#include <memory>

#include "wire.h"

using executorch::aten::ScalarType;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Program;
using executorch::runtime::Tag;

// The header of the thread pool isn't in the wheel; these are its exported functions.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace {

std::string in_words(const char* what, Error error) {
  char text[160];
  snprintf(text, sizeof text, "%s, error: 0x%x", what, static_cast<unsigned>(error));
  return text;
}

// A method's mutable buffers live as long as the method: to forget them is to load anew.
std::unique_ptr<Module> load(const std::string& path, std::string& why) {
  auto module = std::make_unique<Module>(path, Module::LoadMode::Mmap);
  Error error = module->load(Program::Verification::InternalConsistency);
  if (error == Error::Ok) error = module->load_method("forward");
  if (error == Error::Ok) return module;
  why = in_words("Failed to load method forward", error);
  return nullptr;
}

uint8_t dtype_of(const executorch::runtime::MethodMeta& meta, size_t index) {
  auto tag = meta.input_tag(index);
  if (!tag.ok()) return wire::UNKNOWN;
  switch (*tag) {
    case Tag::Int:
      return wire::NUMBER_INT;
    case Tag::Double:
      return wire::NUMBER_DOUBLE;
    case Tag::Bool:
      return wire::NUMBER_BOOL;
    case Tag::Tensor: {
      auto info = meta.input_tensor_meta(index);
      return info.ok() ? static_cast<uint8_t>(info->scalar_type()) : wire::UNKNOWN;
    }
    default:
      return wire::UNKNOWN;
  }
}

std::vector<uint8_t> greet(Module& module) {
  std::vector<uint8_t> dtypes;
  auto meta = module.method_meta("forward");
  if (!meta.ok()) {
    wire::failed(in_words("Failed to read the method", meta.error()));
    exit(0);
  }
  for (size_t i = 0; i < meta->num_inputs(); ++i) dtypes.push_back(dtype_of(*meta, i));
  wire::put('O');
  wire::put(static_cast<uint32_t>(dtypes.size()));
  for (auto dtype : dtypes) {
    wire::put(dtype);
    wire::put(std::string());
  }
  wire::put(static_cast<uint32_t>(meta->num_outputs()));
  for (size_t i = 0; i < meta->num_outputs(); ++i) wire::put(std::string());
  wire::put(std::string());
  wire::put(wire::features());
  wire::flush();
  return dtypes;
}

EValue number(uint8_t dtype, const wire::Tensor& tensor) {
  int64_t whole = 0;
  double real = 0;
  memcpy(dtype == wire::NUMBER_DOUBLE ? static_cast<void*>(&real) : &whole, tensor.data.data(),
         tensor.bytes < 8 ? tensor.bytes : 8);
  if (dtype == wire::NUMBER_DOUBLE) return EValue(real);
  if (dtype == wire::NUMBER_BOOL) return EValue(whole != 0);
  return EValue(whole);
}

template <typename T>
void put_number(uint8_t dtype, T value) {
  wire::put_head(dtype, {}, sizeof(T));
  wire::put(value);
}

// In row-major order, whatever order the program left the output in.
void put_tensor(const executorch::aten::Tensor& tensor) {
  std::vector<int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  std::vector<int64_t> strides(tensor.strides().begin(), tensor.strides().end());
  const size_t item = tensor.element_size(), count = tensor.numel();
  const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  wire::put_head(static_cast<uint8_t>(tensor.scalar_type()), sizes, count * item);
  int64_t dense = 1;
  bool row_major = true;
  for (size_t axis = sizes.size(); axis-- > 0; dense *= sizes[axis])
    row_major &= sizes[axis] == 1 || strides[axis] == dense;
  if (row_major || !count) return wire::put(data, count * item);
  std::vector<int64_t> at(sizes.size(), 0);
  for (size_t done = 0; done < count; ++done) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * strides[axis];
    wire::put(data + offset * item, item);
    for (size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < sizes[axis]) break;
      at[axis] = 0;
    }
  }
}

void answer(const std::vector<EValue>& outputs) {
  for (const auto& value : outputs)
    if (!value.isTensor() && !value.isInt() && !value.isDouble() && !value.isBool())
      return wire::failed("An output is neither a tensor nor a number.");
  wire::put('O');
  wire::put(static_cast<uint32_t>(outputs.size()));
  for (const auto& value : outputs) {
    if (value.isTensor()) put_tensor(value.toTensor());
    if (value.isInt()) put_number(wire::INT64, value.toInt());
    if (value.isDouble()) put_number(wire::FLOAT64, value.toDouble());
    if (value.isBool()) put_number<uint8_t>(wire::BOOL, value.toBool());
  }
  wire::flush();
}

void run(Module& module, const std::vector<uint8_t>& dtypes) {
  auto given = wire::get_tensors();
  std::vector<TensorPtr> tensors;
  std::vector<EValue> inputs;
  for (size_t i = 0; i < given.size(); ++i) {
    if (i < dtypes.size() && dtypes[i] >= wire::NUMBER_INT && dtypes[i] <= wire::NUMBER_BOOL) {
      inputs.push_back(number(dtypes[i], given[i]));
      continue;
    }
    std::vector<executorch::aten::SizesType> sizes(given[i].sizes.begin(), given[i].sizes.end());
    tensors.push_back(
        executorch::extension::make_tensor_ptr(sizes, given[i].data.data(), static_cast<ScalarType>(given[i].dtype)));
    inputs.emplace_back(tensors.back());
  }
  auto outputs = module.execute("forward", inputs);
  if (!outputs.ok()) return wire::failed(in_words("Failed to execute method forward", outputs.error()));
  answer(*outputs);
}

}  // namespace

int main(int argc, char** argv) {
  wire::open();
  executorch::runtime::runtime_init();
  if (argc < 2) {
    wire::put('O');
    wire::put<uint32_t>(0);
    wire::put<uint32_t>(0);
    wire::put(std::string());
    wire::put(wire::features());
    wire::flush();
    return 0;
  }
  executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(1);
  const std::string path = argv[1];
  std::string why;
  auto module = load(path, why);
  if (!module) {
    wire::failed(why);
    return 0;
  }
  const auto dtypes = greet(*module);
  for (char word; wire::get(&word, 1);) {
    if (word == 'R') {
      run(*module, dtypes);
    } else if (word == 'Z') {
      module.reset();
      module = load(path, why);
      if (!module) {
        wire::failed(why);
        return 0;
      }
      wire::put('O');
      wire::flush();
    } else {
      return 3;
    }
  }
  return 0;
}
