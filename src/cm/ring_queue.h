// A first-in first-out queue in one growing block: no allocation once it has reached its size. Copyable.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"

namespace ucm::cm {

template <class T>
class RingQueue {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }

  // A new element at the end, holding T{}. The reference is valid until the next push().
  T& push() {
    if (count_ == slots_.size()) grow();
    T& slot = slots_[(first_ + count_++) & (slots_.size() - 1)];
    slot = T{};
    return slot;
  }
  const T& front() const { return (*this)[0]; }
  const T& operator[](std::size_t i) const { return slots_[(first_ + i) & (slots_.size() - 1)]; }
  void pop() {
    UCM_CHECK(count_ > 0);
    first_ = (first_ + 1) & (slots_.size() - 1);
    --count_;
  }

 private:
  // The size stays a power of two.
  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : slots_.size() * 2);
    for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move(slots_[(first_ + i) & (slots_.size() - 1)]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace ucm::cm
