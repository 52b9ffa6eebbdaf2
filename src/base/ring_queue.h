// A FIFO whose elements have absolute indices that never repeat and whose slots are reused, so that a steady flow
// allocates nothing: what an element owns (a vector's capacity) stays in its slot for the next element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace ucm {

template <class T>
class RingQueue {
 public:
  bool empty() const { return begin_ == end_; }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  // Absolute index of the front element, and of the next one to be pushed.
  std::uint64_t begin_index() const { return begin_; }
  std::uint64_t end_index() const { return end_; }

  T& operator[](std::uint64_t index) { return slots_[index & (slots_.size() - 1)]; }
  const T& operator[](std::uint64_t index) const { return slots_[index & (slots_.size() - 1)]; }
  T& front() {
    UCM_CHECK(!empty());
    return (*this)[begin_];
  }
  const T& front() const {
    UCM_CHECK(!empty());
    return (*this)[begin_];
  }
  T& back() {
    UCM_CHECK(!empty());
    return (*this)[end_ - 1];
  }

  // Appends an element that still holds what its slot held before; the caller sets every member.
  T& push_reused() {
    if (size() == slots_.size()) grow();
    return (*this)[end_++];
  }
  void push(const T& value) { push_reused() = value; }
  void pop_front() {
    UCM_CHECK(!empty());
    ++begin_;
  }
  void pop_back() {
    UCM_CHECK(!empty());
    --end_;
  }
  void clear() { begin_ = end_; }

  // Removes the elements for which `matches` holds and keeps the order of the others; indices change.
  template <class Predicate>
  void remove_if(Predicate matches) {
    std::uint64_t kept = begin_;
    for (std::uint64_t i = begin_; i != end_; ++i) {
      if (matches(std::as_const((*this)[i]))) continue;
      if (kept != i) std::swap((*this)[kept], (*this)[i]);
      ++kept;
    }
    end_ = kept;
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 4 : slots_.size() * 2);
    for (std::uint64_t i = begin_; i != end_; ++i) larger[i & (larger.size() - 1)] = std::move((*this)[i]);
    slots_ = std::move(larger);
  }

  std::vector<T> slots_;  // a power of two, or none yet
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace ucm
