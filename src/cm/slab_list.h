// A doubly linked list through the elements of a slab, which have a member `link`: an element is in one list at most.
// No allocation; copyable with its slab.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cm/slab.h"

namespace ucm::cm {

struct Link {
  std::uint32_t previous = UINT32_MAX;
  std::uint32_t next = UINT32_MAX;
};

template <class T>
class SlabList {
 public:
  using Index = typename Slab<T>::Index;
  static constexpr Index kNone = Slab<T>::kNone;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  // kNone when empty.
  Index front() const { return first_; }
  Index back() const { return last_; }

  void push_back(Slab<T>& slab, Index index) {
    slab[index].link = {.previous = last_, .next = kNone};
    (last_ == kNone ? first_ : slab[last_].link.next) = index;
    last_ = index;
    ++size_;
  }
  // The element is in this list.
  void remove(Slab<T>& slab, Index index) {
    const Link link = slab[index].link;
    (link.previous == kNone ? first_ : slab[link.previous].link.next) = link.next;
    (link.next == kNone ? last_ : slab[link.next].link.previous) = link.previous;
    --size_;
  }

 private:
  Index first_ = kNone;
  Index last_ = kNone;
  std::uint32_t size_ = 0;
};

}  // namespace ucm::cm
