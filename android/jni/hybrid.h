#pragma once

namespace edgesdk {

// What a HybridData of Java owns; libfbjni.so deletes it without knowing more.
struct Hybrid {
  virtual ~Hybrid() = default;
};

} // namespace edgesdk
