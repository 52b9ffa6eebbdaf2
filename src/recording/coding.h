// Records to and from bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "recording/records.h"

namespace ucm::recording {

// The largest body is that of an event with its private data.
inline constexpr std::size_t kBodySizeMax = 1024;
inline constexpr std::size_t kFrameSize = 8;  // in front of the body

// Appends the record as it is in a file.
void emit(const Record& record, std::uint8_t drained, std::vector<std::uint8_t>& out);

struct Item {
  std::size_t offset = 0;  // in the file
  std::uint8_t drained = 0;
  Record record;  // its `Bytes` are in the file
  Bytes bytes;    // all of it, as in the file
};
// The record that `bytes` begin with. EPROTO: they are cut off, damaged, or of values that no engine ever gets.
Result<Item> parse(Bytes bytes);

// Reads a file's records one after the other; `file` outlives it and what it gives.
class Reader {
 public:
  // Behind the header.
  explicit Reader(Bytes file) : file_(file), offset_(kHeaderSize) {}
  // As parse(), and EPROTO where time goes back. Nothing can be read after an error.
  Result<Item> next();

 private:
  Bytes file_;
  std::size_t offset_;
  TimeNs now_ = 0;  // of the newest input
};

}  // namespace ucm::recording
