#include "base/deadline_heap.h"

#include "base/check.h"

namespace ucm {

void DeadlineHeap::place(std::size_t index, Entry entry) {
  heap_[index] = entry;
  position_[entry.key] = static_cast<std::uint32_t>(index);
}

void DeadlineHeap::sift_up(std::size_t index, Entry entry) {
  while (index > 0) {
    const std::size_t parent = (index - 1) / 2;
    if (!entry.before(heap_[parent])) break;
    place(index, heap_[parent]);
    index = parent;
  }
  place(index, entry);
}

void DeadlineHeap::sift_down(std::size_t index, Entry entry) {
  for (;;) {
    std::size_t child = 2 * index + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
    if (!heap_[child].before(entry)) break;
    place(index, heap_[child]);
    index = child;
  }
  place(index, entry);
}

void DeadlineHeap::remove_at(std::size_t index) {
  position_[heap_[index].key] = kAbsent;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (index == heap_.size()) return;
  if (index > 0 && last.before(heap_[(index - 1) / 2])) {
    sift_up(index, last);
  } else {
    sift_down(index, last);
  }
}

void DeadlineHeap::set(Key key, TimeNs deadline) {
  if (deadline == kNever) return remove(key);
  if (key >= position_.size()) position_.resize(key + 1, kAbsent);
  const std::uint32_t index = position_[key];
  const Entry entry{deadline, key};
  if (index == kAbsent) {
    heap_.emplace_back();
    sift_up(heap_.size() - 1, entry);
  } else if (entry.before(heap_[index])) {
    sift_up(index, entry);
  } else {
    sift_down(index, entry);
  }
}

void DeadlineHeap::remove(Key key) {
  if (key < position_.size() && position_[key] != kAbsent) remove_at(position_[key]);
}

TimeNs DeadlineHeap::deadline_of(Key key) const {
  if (key >= position_.size() || position_[key] == kAbsent) return kNever;
  return heap_[position_[key]].deadline;
}

DeadlineHeap::Key DeadlineHeap::pop() {
  UCM_CHECK(!heap_.empty());
  const Key key = heap_.front().key;
  remove_at(0);
  return key;
}

}  // namespace ucm
