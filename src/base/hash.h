// Hashing of engine state (exploration, snapshot checks): order-dependent, fast, not for untrusted keys.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/bytes.h"

namespace ucm {

class StateHash {
 public:
  template <class T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  void add(T value) {
    add_word(static_cast<std::uint64_t>(value));
  }
  void add(Bytes bytes) {
    add_word(bytes.size());
    for (const std::uint8_t b : bytes) add_word(b);
  }
  std::uint64_t value() const { return state_; }

 private:
  void add_word(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x9e3779b97f4a7c15;
    state_ ^= state_ >> 29;
  }
  std::uint64_t state_ = 0x243f6a8885a308d3;
};

}  // namespace ucm
