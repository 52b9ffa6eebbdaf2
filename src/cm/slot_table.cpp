#include "cm/slot_table.h"

#include "base/check.h"

namespace ucm::cm {

void SlotTable::place(Entry entry) {
  std::size_t i = entry.hash & mask();
  while (entries_[i].slot != kNone) i = (i + 1) & mask();
  entries_[i] = entry;
}

void SlotTable::grow() {
  std::vector<Entry> old(entries_.empty() ? 16 : entries_.size() * 2);
  old.swap(entries_);
  for (const Entry& entry : old) {
    if (entry.slot != kNone) place(entry);
  }
}

void SlotTable::insert(std::uint32_t hash, std::uint32_t slot) {
  if (4 * (size_ + 1) > 3 * entries_.size()) grow();
  place({hash, slot});
  ++size_;
}

void SlotTable::erase(std::uint32_t hash, std::uint32_t slot) {
  UCM_CHECK(size_ > 0);
  std::size_t hole = hash & mask();
  while (entries_[hole].slot != slot || entries_[hole].hash != hash) {
    UCM_CHECK(entries_[hole].slot != kNone);
    hole = (hole + 1) & mask();
  }
  // Pull back what probed past the hole, so that no probe ends too early.
  for (std::size_t i = (hole + 1) & mask(); entries_[i].slot != kNone; i = (i + 1) & mask()) {
    const std::size_t distance_from_home = (i - entries_[i].hash) & mask();
    if (distance_from_home >= ((i - hole) & mask())) {
      entries_[hole] = entries_[i];
      hole = i;
    }
  }
  entries_[hole] = Entry{};
  --size_;
}

}  // namespace ucm::cm
