// A hash table from keys kept elsewhere to slot numbers: open addressing, linear probing, no tombstones. The caller
// brings the hash (well mixed, keyed where a peer chooses the key) and says which of the candidates is meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ucm::cm {

class SlotTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::size_t size() const { return size_; }

  // The pair is not there yet.
  void insert(std::uint32_t hash, std::uint32_t slot);
  // The pair is there.
  void erase(std::uint32_t hash, std::uint32_t slot);

  // The first slot under `hash` for which `matches(slot)`; kNone when there is none.
  template <class Matches>
  std::uint32_t find(std::uint32_t hash, Matches matches) const {
    if (entries_.empty()) return kNone;
    for (std::size_t i = hash & mask(); entries_[i].slot != kNone; i = (i + 1) & mask()) {
      if (entries_[i].hash == hash && matches(entries_[i].slot)) return entries_[i].slot;
    }
    return kNone;
  }

 private:
  struct Entry {
    std::uint32_t hash = 0;
    std::uint32_t slot = kNone;
  };
  std::size_t mask() const { return entries_.size() - 1; }
  void place(Entry entry);
  void grow();

  std::vector<Entry> entries_;  // a power of two, at most three quarters in use: a probe always ends
  std::size_t size_ = 0;
};

}  // namespace ucm::cm
