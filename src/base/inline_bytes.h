// Up to N bytes in place. Copying costs what is in use.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/check.h"

namespace ucm {

template <std::size_t N>
class InlineBytes {
 public:
  InlineBytes() {}
  InlineBytes(const InlineBytes& other) { assign(other.view()); }
  InlineBytes& operator=(const InlineBytes& other) {
    assign(other.view());
    return *this;
  }
  void assign(Bytes bytes) {
    UCM_CHECK(bytes.size() <= N);
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
    size_ = bytes.size();
  }

  Bytes view() const { return Bytes(bytes_).first(size_); }
  std::size_t size() const { return size_; }
  std::uint8_t operator[](std::size_t index) const { return bytes_[index]; }
  auto begin() const { return view().begin(); }
  auto end() const { return view().end(); }

 private:
  std::size_t size_ = 0;
  std::array<std::uint8_t, N> bytes_;
};

}  // namespace ucm
