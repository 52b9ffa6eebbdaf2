// Elements with a stable index: taken, given back, taken again. A reference is good until the next take(). Memory is
// kept for the next taker. Copyable, and deterministic: the last one given back is the next one taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ucm::cm {

template <class T>
class Slab {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = UINT32_MAX;

  // The element is as its last holder left it, or T{}.
  Index take() {
    if (free_.empty()) return add();
    const Index index = free_.back();
    free_.pop_back();
    return index;
  }
  void give_back(Index index) { free_.push_back(index); }

  T& operator[](Index index) { return chunks_[index / kChunk][index % kChunk]; }
  const T& operator[](Index index) const { return chunks_[index / kChunk][index % kChunk]; }
  // Every index ever taken is below.
  std::size_t capacity() const { return size_; }
  std::size_t in_use() const { return size_ - free_.size(); }

 private:
  // The first chunk grows with its elements, so that a small slab is small; what comes after does not move any more.
  static constexpr std::size_t kChunk = 512;

  Index add() {
    if (size_ % kChunk == 0) {
      chunks_.emplace_back();
      if (size_ != 0) chunks_.back().reserve(kChunk);
    }
    chunks_.back().emplace_back();
    return size_++;
  }

  std::vector<std::vector<T>> chunks_;
  Index size_ = 0;
  std::vector<Index> free_;
};

}  // namespace ucm::cm
