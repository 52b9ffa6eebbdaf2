// The states seen, as 64-bit hashes. What was used up on the way to a state (losses, duplicates, early timers) is not
// part of it: one that is reached again with at least as much used up is known, since all that can follow has been
// seen already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace ucm::explore {

struct Used {
  std::uint8_t losses = 0;
  std::uint8_t duplicates = 0;
  std::uint8_t early_timers = 0;
  bool operator==(const Used&) const = default;
  bool within(const Used& other) const {
    return losses <= other.losses && duplicates <= other.duplicates && early_timers <= other.early_timers;
  }
  unsigned total() const { return losses + duplicates + early_timers; }
};

class Visited {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = UINT32_MAX;
  struct Record {
    std::uint64_t hash = 0;
    Index parent = kNone;
    Used used{};
  };

  void prefetch(std::uint64_t hash) const {
    if (!table_.empty()) __builtin_prefetch(&table_[hash & (table_.size() - 1)]);
  }

  // nullopt when it is known.
  std::optional<Index> insert(const Record& record) {
    if (10 * (records_.size() + 1) > 7 * table_.size()) grow();
    const std::size_t mask = table_.size() - 1;
    bool first = true;
    std::size_t i = record.hash & mask;
    for (; table_[i].index != kNone; i = (i + 1) & mask) {
      if (table_[i].tag != tag(record.hash)) continue;
      const Record& other = records_[table_[i].index];
      if (other.hash != record.hash) continue;
      if (other.used.within(record.used)) return std::nullopt;
      first = false;
    }
    const auto index = static_cast<Index>(records_.size());
    table_[i] = {index, tag(record.hash)};
    records_.push_back(record);
    states_ += first;
    return index;
  }

  // By now it has been reached with less used up, too.
  bool is_superseded(Index index) const {
    const Record& record = records_[index];
    const std::size_t mask = table_.size() - 1;
    for (std::size_t i = record.hash & mask; table_[i].index != kNone; i = (i + 1) & mask) {
      if (table_[i].tag != tag(record.hash) || table_[i].index == index) continue;
      const Record& other = records_[table_[i].index];
      if (other.hash == record.hash && other.used.within(record.used)) return true;
    }
    return false;
  }

  const Record& operator[](Index index) const { return records_[index]; }
  // Distinct states.
  std::size_t states() const { return states_; }

 private:
  struct Entry {
    Index index = kNone;
    std::uint32_t tag = 0;
  };
  static std::uint32_t tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
  void grow() {
    table_.assign(table_.empty() ? 1024 : 2 * table_.size(), {});
    const std::size_t mask = table_.size() - 1;
    for (Index index = 0; index < records_.size(); ++index) {
      std::size_t i = records_[index].hash & mask;
      while (table_[i].index != kNone) i = (i + 1) & mask;
      table_[i] = {index, tag(records_[index].hash)};
    }
  }

  std::vector<Entry> table_;
  std::deque<Record> records_;
  std::size_t states_ = 0;
};

}  // namespace ucm::explore
