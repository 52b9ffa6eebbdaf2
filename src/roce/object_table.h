// Objects behind typed ids. An id is a slot and a generation, so that a stale id finds nothing rather than a stranger.
// Objects do not move.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "roce/limits.h"

namespace ucm::roce {

template <class Id, class T>
class ObjectTable {
 public:
  bool full() const { return free_.empty() && slots_.size() == kObjectsMax; }

  // The table is not full.
  Id add(std::unique_ptr<T> object) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot].object = std::move(object);
    return static_cast<Id>(slots_[slot].generation * kObjectsMax + slot);
  }

  // nullptr when there is no such object (any more).
  T* find(Id id) const {
    const auto value = static_cast<std::uint32_t>(id);
    const std::uint32_t slot = value % kObjectsMax;
    if (slot >= slots_.size() || slots_[slot].generation != value / kObjectsMax) return nullptr;
    return slots_[slot].object.get();
  }

  // The object exists.
  void remove(Id id) {
    const std::uint32_t slot = static_cast<std::uint32_t>(id) % kObjectsMax;
    slots_[slot].object.reset();
    slots_[slot].generation = (slots_[slot].generation + 1) % kGenerations;
    free_.push_back(slot);
  }

 private:
  static constexpr std::uint32_t kGenerations = UINT32_MAX / kObjectsMax;

  struct Slot {
    std::unique_ptr<T> object;
    std::uint32_t generation = 0;
  };
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace ucm::roce
