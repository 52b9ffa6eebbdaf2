// A recording in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "recording/coding.h"
#include "wire/icrc.h"

namespace ucm::test {

class Recorded {
 public:
  Recorded() {
    const auto header = recording::emit_header({.wall_offset_ns = 5, .writer = "a test"});
    file_.assign(header.begin(), header.end());
  }
  void append(Bytes record) { file_.insert(file_.end(), record.begin(), record.end()); }
  // With its end.
  std::vector<std::uint8_t> file() const {
    auto file = file_;
    recording::emit(recording::End{}, 0, file);
    return file;
  }

 private:
  std::vector<std::uint8_t> file_;
};

// Where its records are.
inline std::vector<Bytes> records_of(Bytes file) {
  std::vector<Bytes> records;
  recording::Reader reader(file);
  while (const auto item = reader.next()) records.push_back(item->bytes);
  return records;
}

// Makes the checksum of a whole record right.
inline void repair_checksum(MutableBytes record) {
  store_be32(&record[4], ~wire::crc32(~0u, Bytes(record).subspan(recording::kFrameSize)));
}

}  // namespace ucm::test
