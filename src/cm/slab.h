// Elements with a stable index: taken, given back, taken again. Grows without moving; memory is kept for the next
// taker. Copyable, and deterministic: the last one given back is the next one taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace ucm::cm {

template <class T>
class Slab {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = UINT32_MAX;

  // The element is as its last holder left it, or T{}.
  Index take() {
    if (free_.empty()) {
      elements_.emplace_back();
      return static_cast<Index>(elements_.size() - 1);
    }
    const Index index = free_.back();
    free_.pop_back();
    return index;
  }
  void give_back(Index index) { free_.push_back(index); }

  T& operator[](Index index) { return elements_[index]; }
  const T& operator[](Index index) const { return elements_[index]; }
  // Every index ever taken is below.
  std::size_t capacity() const { return elements_.size(); }
  std::size_t in_use() const { return elements_.size() - free_.size(); }

 private:
  std::deque<T> elements_;
  std::vector<Index> free_;
};

}  // namespace ucm::cm
