// A binary heap of deadlines with removal and change by key: one entry per key, O(log n) each.
// Keys are small dense integers (slot indices). Copyable: engines that hold one can be cloned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace ucm {

class DeadlineHeap {
 public:
  using Key = std::uint32_t;

  // Sets the deadline of `key`, replacing an earlier one. kNever removes it.
  void set(Key key, TimeNs deadline);
  void remove(Key key);

  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  // kNever when nothing is scheduled.
  TimeNs next() const { return heap_.empty() ? kNever : heap_.front().deadline; }
  // kNever when `key` has no deadline.
  TimeNs deadline_of(Key key) const;
  // Removes and returns the key with the earliest deadline; the heap is not empty.
  Key pop();

 private:
  struct Entry {
    TimeNs deadline;
    Key key;
    // Ties are broken by key, so that the order never depends on history.
    bool before(const Entry& other) const {
      return deadline != other.deadline ? deadline < other.deadline : key < other.key;
    }
  };
  static constexpr std::uint32_t kAbsent = UINT32_MAX;

  void place(std::size_t index, Entry entry);
  void sift_up(std::size_t index, Entry entry);
  void sift_down(std::size_t index, Entry entry);
  void remove_at(std::size_t index);

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> position_;  // key -> index in heap_, kAbsent when not there
};

}  // namespace ucm
