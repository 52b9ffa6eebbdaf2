#include "rsocket/memory_block.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace ucm::rsocket {

Result<MemoryBlock> MemoryBlock::allocate(std::size_t size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(errno, "no memory for the buffers of an rsocket");
  return MemoryBlock(MutableBytes(static_cast<std::uint8_t*>(memory), size));
}

MemoryBlock::MemoryBlock(MemoryBlock&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MemoryBlock& MemoryBlock::operator=(MemoryBlock&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryBlock::~MemoryBlock() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace ucm::rsocket
