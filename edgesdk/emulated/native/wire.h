// What a runner and edgesdk/emulated/_wire.py say to each other over two pipes, little-endian on both sides.
//
//   runner, once:  'O' inputs:u32 {dtype:u8 name}… outputs:u32 {name}… version features      or 'E' text
//   caller:        'R' count:u32 {tensor}…     run            → 'O' count:u32 {tensor}…      or 'E' text
//                  'Z'                         forget state   → 'O'                          or 'E' text
//                  end of file                 leave
//   tensor:        dtype:u8 rank:u8 sizes:i64… bytes:u64 data
//   name, text, …: length:u32 bytes
//
// dtypes go by ExecuTorch's ScalarType numbers; NUMBER… mean a plain number, which travels as a tensor of rank 0.
#pragma once

#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace wire {

constexpr uint8_t UNKNOWN = 255, NUMBER_INT = 240, NUMBER_DOUBLE = 241, NUMBER_BOOL = 242;
constexpr uint8_t INT64 = 4, FLOAT64 = 7, BOOL = 11;

// XNNPACK's and MLAS's kernels read, but don't use, some bytes behind the end of an input.
constexpr size_t PADDING = 128;

struct Tensor {
  uint8_t dtype = UNKNOWN;
  std::vector<int64_t> sizes;
  uint64_t bytes = 0;
  std::vector<uint8_t> data;
};

// stdout is the caller's: what a library prints goes to stderr, and the messages go to a copy of the descriptor.
inline FILE* to_caller = nullptr;

inline void open() {
  rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // a crash leaves no file of hundreds of megabytes behind
  to_caller = fdopen(dup(STDOUT_FILENO), "wb");
  dup2(STDERR_FILENO, STDOUT_FILENO);
}

inline void put(const void* data, size_t size) {
  if (size && fwrite(data, 1, size, to_caller) != size) exit(3);  // the caller is gone
}
template <typename T>
void put(T value) {
  put(&value, sizeof(T));
}
inline void put(const std::string& text) {
  put(static_cast<uint32_t>(text.size()));
  put(text.data(), text.size());
}
inline void put_head(uint8_t dtype, const std::vector<int64_t>& sizes, uint64_t bytes) {
  put(dtype);
  put(static_cast<uint8_t>(sizes.size()));
  put(sizes.data(), sizes.size() * sizeof(int64_t));
  put(bytes);
}
inline void flush() {
  if (fflush(to_caller)) exit(3);
}
inline void failed(const std::string& text) {
  put('E');
  put(text);
  flush();
}

inline bool get(void* data, size_t size) { return fread(data, 1, size, stdin) == size; }
template <typename T>
T get() {
  T value{};
  if (!get(&value, sizeof(T))) exit(3);
  return value;
}
inline Tensor get_tensor() {
  Tensor tensor;
  tensor.dtype = get<uint8_t>();
  tensor.sizes.resize(get<uint8_t>());
  for (auto& size : tensor.sizes) size = get<int64_t>();
  tensor.bytes = get<uint64_t>();
  tensor.data.resize(tensor.bytes + PADDING);
  if (!get(tensor.data.data(), tensor.bytes)) exit(3);
  return tensor;
}
inline std::vector<Tensor> get_tensors() {
  std::vector<Tensor> tensors(get<uint32_t>());
  for (auto& tensor : tensors) tensor = get_tensor();
  return tensors;
}

// What the processor says it can do, as arch/arm64/include/uapi/asm/hwcap.h of Linux numbers it: those that decide which
// matrix kernels a library picks.
inline std::string features() {
  struct Bit {
    unsigned long word, bit;
    const char* name;
  };
  const Bit bits[] = {
      {AT_HWCAP, 1, "asimd"},    {AT_HWCAP, 10, "asimdhp"}, {AT_HWCAP, 12, "asimdrdm"}, {AT_HWCAP, 20, "asimddp"},
      {AT_HWCAP, 22, "sve"},     {AT_HWCAP2, 1, "sve2"},    {AT_HWCAP2, 13, "i8mm"},    {AT_HWCAP2, 14, "bf16"},
      {AT_HWCAP2, 23, "sme"},
  };
  std::string text;
  for (const auto& bit : bits)
    if (getauxval(bit.word) >> bit.bit & 1) text += (text.empty() ? "" : " ") + std::string(bit.name);
  return text;
}

}  // namespace wire
