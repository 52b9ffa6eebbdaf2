// Page-aligned, zeroed memory that shares no page with anything else, so that registering it touches nobody's memory.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/result.h"

namespace ucm::rsocket {

class MemoryBlock {
 public:
  static Result<MemoryBlock> allocate(std::size_t size);
  MemoryBlock() = default;
  MemoryBlock(MemoryBlock&& other) noexcept;
  MemoryBlock& operator=(MemoryBlock&& other) noexcept;
  ~MemoryBlock();

  MutableBytes bytes() const { return bytes_; }

 private:
  explicit MemoryBlock(MutableBytes bytes) : bytes_(bytes) {}

  MutableBytes bytes_;
};

}  // namespace ucm::rsocket
