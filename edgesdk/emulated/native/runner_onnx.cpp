// Runs a .onnx or .ort on one thread, many calls in one process: the caller speaks through wire.h.
//   runner_onnx FILE onnx|ort      runner_onnx (no file: says what processor it sees, and leaves)
//
// The wheel holds the library and no header. ONNX Runtime promises that the functions of its C API never change their
// place in the table (onnxruntime_c_api.h; its own static_asserts hold it to that), so the places are enough.
#include <utility>

#include "wire.h"

namespace {

struct Base {
  void* const* (*get_api)(uint32_t version);
  const char* (*version)();
};
extern "C" const Base* OrtGetApiBase(void);

// Places in struct OrtApi. The youngest, 130, is of version 6 of the API.
enum Slot {
  GetErrorMessage = 2,
  CreateEnv = 3,
  CreateSession = 7,
  Run = 9,
  CreateSessionOptions = 10,
  SetIntraOpNumThreads = 24,
  SetInterOpNumThreads = 25,
  SessionGetInputCount = 30,
  SessionGetOutputCount = 31,
  SessionGetInputTypeInfo = 33,
  SessionGetInputName = 36,
  SessionGetOutputName = 37,
  CreateTensorWithDataAsOrtValue = 49,
  IsTensor = 50,
  GetTensorMutableData = 51,
  CastTypeInfoToTensorInfo = 55,
  GetTensorElementType = 60,
  GetDimensionsCount = 61,
  GetDimensions = 62,
  GetTensorShapeElementCount = 64,
  GetTensorTypeAndShape = 65,
  CreateCpuMemoryInfo = 69,
  GetAllocatorWithDefaultOptions = 78,
  ReleaseStatus = 93,
  ReleaseValue = 96,
  ReleaseTypeInfo = 98,
  ReleaseTensorTypeAndShapeInfo = 99,
  AddSessionConfigEntry = 130,
};
constexpr uint32_t API = 6;
constexpr int FATAL = 4, ARENA = 1, CPU_DEFAULT = 0;

void* const* table = nullptr;

// ScalarType ↔ ONNXTensorElementDataType, with the bytes of an element.
struct Kind {
  uint8_t dtype;
  int element;
  size_t bytes;
};
const Kind kinds[] = {{6, 1, 4}, {0, 2, 1},  {1, 3, 1},  {27, 4, 2}, {2, 5, 2},  {3, 6, 4},  {4, 7, 8},  {11, 9, 1},
                      {5, 10, 2}, {7, 11, 8}, {28, 12, 4}, {29, 13, 8}, {9, 14, 8}, {15, 16, 2}};

const Kind* by_dtype(uint8_t dtype) {
  for (const auto& kind : kinds)
    if (kind.dtype == dtype) return &kind;
  return nullptr;
}
const Kind* by_element(int element) {
  for (const auto& kind : kinds)
    if (kind.element == element) return &kind;
  return nullptr;
}

// Calls a function that answers with a status, null when all is well. A failure's text becomes the exception.
struct Failure {
  std::string text;
};
template <typename... Args>
void call(Slot slot, Args... args) {
  void* status = reinterpret_cast<void* (*)(Args...)>(table[slot])(args...);
  if (!status) return;
  std::string text = reinterpret_cast<const char* (*)(const void*)>(table[GetErrorMessage])(status);
  reinterpret_cast<void (*)(void*)>(table[ReleaseStatus])(status);
  throw Failure{text};
}

// What the library made, given back on every way out.
class Held {
 public:
  Held(Slot release, void* it) : release_(release), it_(it) {}
  Held(Held&& other) : release_(other.release_), it_(std::exchange(other.it_, nullptr)) {}
  ~Held() {
    if (it_) reinterpret_cast<void (*)(void*)>(table[release_])(it_);
  }
  void* get() const { return it_; }

 private:
  Slot release_;
  void* it_;
};

struct Session {
  void* it = nullptr;
  void* memory = nullptr;
  std::vector<std::string> inputs, outputs;
  std::vector<uint8_t> dtypes;
};

std::vector<std::string> names(void* session, Slot count_of, Slot name_of) {
  void* allocator = nullptr;
  size_t count = 0;
  call(GetAllocatorWithDefaultOptions, &allocator);
  call(count_of, session, &count);
  std::vector<std::string> found;
  for (size_t i = 0; i < count; ++i) {
    char* name = nullptr;  // lives as long as the process
    call(name_of, session, i, allocator, &name);
    found.emplace_back(name);
  }
  return found;
}

uint8_t input_dtype(void* session, size_t index) {
  void* info = nullptr;
  call(SessionGetInputTypeInfo, session, index, &info);
  Held held(ReleaseTypeInfo, info);
  const void* tensor = nullptr;  // belongs to info
  call(CastTypeInfoToTensorInfo, static_cast<const void*>(info), &tensor);
  if (!tensor) return wire::UNKNOWN;
  int element = 0;
  call(GetTensorElementType, tensor, &element);
  const auto* kind = by_element(element);
  return kind ? kind->dtype : wire::UNKNOWN;
}

Session open(const char* path, const char* format) {
  void *env = nullptr, *options = nullptr;
  Session session;
  call(CreateEnv, FATAL, "edgesdk", &env);
  call(CreateSessionOptions, &options);
  call(SetIntraOpNumThreads, options, 1);
  call(SetInterOpNumThreads, options, 1);
  call(AddSessionConfigEntry, options, "session.load_model_format", format);
  call(CreateSession, env, path, static_cast<const void*>(options), &session.it);
  call(CreateCpuMemoryInfo, ARENA, CPU_DEFAULT, &session.memory);
  session.inputs = names(session.it, SessionGetInputCount, SessionGetInputName);
  session.outputs = names(session.it, SessionGetOutputCount, SessionGetOutputName);
  for (size_t i = 0; i < session.inputs.size(); ++i) session.dtypes.push_back(input_dtype(session.it, i));
  return session;
}

void greet(const Session& session) {
  wire::put('O');
  wire::put(static_cast<uint32_t>(session.inputs.size()));
  for (size_t i = 0; i < session.inputs.size(); ++i) {
    wire::put(session.dtypes[i]);
    wire::put(session.inputs[i]);
  }
  wire::put(static_cast<uint32_t>(session.outputs.size()));
  for (const auto& name : session.outputs) wire::put(name);
  wire::put(std::string(OrtGetApiBase()->version()));
  wire::put(wire::features());
  wire::flush();
}

Held value_of(const Session& session, wire::Tensor& tensor) {
  const auto* kind = by_dtype(tensor.dtype);
  if (!kind) throw Failure{"An input has a dtype that ONNX Runtime doesn't know."};
  void* value = nullptr;
  call(CreateTensorWithDataAsOrtValue, static_cast<const void*>(session.memory), static_cast<void*>(tensor.data.data()),
       static_cast<size_t>(tensor.bytes), static_cast<const int64_t*>(tensor.sizes.data()), tensor.sizes.size(),
       kind->element, &value);
  return Held(ReleaseValue, value);
}

struct Output {
  const Kind* kind;
  std::vector<int64_t> sizes;
  size_t count = 0;
  void* data = nullptr;
};

Output read(void* value) {
  int is_tensor = 0;
  if (!value) throw Failure{"An output is absent."};
  call(IsTensor, static_cast<const void*>(value), &is_tensor);
  if (!is_tensor) throw Failure{"An output is no tensor."};
  void* info = nullptr;
  call(GetTensorTypeAndShape, static_cast<const void*>(value), &info);
  Held held(ReleaseTensorTypeAndShapeInfo, info);
  const void* shape = info;
  int element = 0;
  size_t rank = 0;
  Output output;
  call(GetTensorElementType, shape, &element);
  output.kind = by_element(element);
  if (!output.kind) throw Failure{"An output has a dtype that NumPy doesn't hold."};
  call(GetDimensionsCount, shape, &rank);
  output.sizes.resize(rank);
  call(GetDimensions, shape, output.sizes.data(), rank);
  call(GetTensorShapeElementCount, shape, &output.count);
  call(GetTensorMutableData, value, &output.data);
  return output;
}

void run(const Session& session) {
  auto given = wire::get_tensors();
  if (given.size() != session.inputs.size()) throw Failure{"The number of inputs is wrong."};
  std::vector<Held> values, results;
  std::vector<const void*> pointers;
  std::vector<const char*> inputs, outputs;
  for (auto& tensor : given) {
    values.push_back(value_of(session, tensor));
    pointers.push_back(values.back().get());
  }
  for (const auto& name : session.inputs) inputs.push_back(name.c_str());
  for (const auto& name : session.outputs) outputs.push_back(name.c_str());
  std::vector<void*> made(outputs.size(), nullptr);
  call(Run, session.it, static_cast<const void*>(nullptr), static_cast<const char* const*>(inputs.data()),
       static_cast<const void* const*>(pointers.data()), inputs.size(), static_cast<const char* const*>(outputs.data()),
       outputs.size(), made.data());
  for (void* value : made) results.emplace_back(ReleaseValue, value);
  std::vector<Output> found;
  for (void* value : made) found.push_back(read(value));
  wire::put('O');
  wire::put(static_cast<uint32_t>(found.size()));
  for (const auto& output : found) {
    const size_t bytes = output.count * output.kind->bytes;
    wire::put_head(output.kind->dtype, output.sizes, bytes);
    wire::put(output.data, bytes);
  }
  wire::flush();
}

}  // namespace

int main(int argc, char** argv) {
  wire::open();
  table = OrtGetApiBase()->get_api(API);
  if (!table) {
    wire::failed("This ONNX Runtime no longer offers the C API that the runner speaks.");
    return 0;
  }
  Session session;
  try {
    if (argc > 2) session = open(argv[1], argv[2]);
  } catch (const Failure& failure) {
    wire::failed(failure.text);
    return 0;
  }
  greet(session);
  if (argc < 2) return 0;
  for (char word; wire::get(&word, 1);) {
    if (word == 'Z') {  // a session keeps no state
      wire::put('O');
      wire::flush();
      continue;
    }
    if (word != 'R') return 3;
    try {
      run(session);
    } catch (const Failure& failure) {
      wire::failed(failure.text);
    }
  }
  return 0;
}
