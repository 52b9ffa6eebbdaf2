#include "daemon/qpn_allocator.h"

#include <algorithm>

namespace ucm::daemon {

QpnAllocator::QpnAllocator(std::uint64_t start)
    : blocks_(kBlockEnd), next_(static_cast<std::uint32_t>(kBlockFirst + start % (kBlockEnd - kBlockFirst))) {}

std::optional<std::uint32_t> QpnAllocator::allocate(Owner owner, std::uint32_t position) {
  for (std::uint32_t tried = kBlockFirst; tried < kBlockEnd; ++tried) {
    const std::uint32_t block = next_;
    next_ = next_ + 1 < kBlockEnd ? next_ + 1 : kBlockFirst;
    if (blocks_[block].owner != 0) continue;
    blocks_[block] = {.owner = owner, .position = position};
    return block * ipc::kQpnBlockSize;
  }
  return std::nullopt;
}

bool QpnAllocator::claim(Owner owner, std::uint32_t first_qpn, std::uint32_t position) {
  const std::uint32_t block = first_qpn / ipc::kQpnBlockSize;
  if (first_qpn % ipc::kQpnBlockSize != 0 || block < kBlockFirst || block >= kBlockEnd) return false;
  if (blocks_[block].owner != 0) return false;
  blocks_[block] = {.owner = owner, .position = position};
  return true;
}

void QpnAllocator::release_all(Owner owner) {
  for (Block& block : blocks_) {
    if (block.owner == owner) block = {};
  }
}

std::size_t QpnAllocator::in_use() const {
  const auto taken = std::count_if(blocks_.begin(), blocks_.end(), [](const Block& block) { return block.owner != 0; });
  return static_cast<std::size_t>(taken) * ipc::kQpnBlockSize;
}

QpnAllocator::Owner QpnAllocator::owner_of(std::uint32_t qpn) const {
  const std::uint32_t block = qpn / ipc::kQpnBlockSize;
  return block < blocks_.size() ? blocks_[block].owner : 0;
}

std::uint32_t QpnAllocator::index_of(std::uint32_t qpn) const {
  return blocks_[qpn / ipc::kQpnBlockSize].position * ipc::kQpnBlockSize + qpn % ipc::kQpnBlockSize;
}

}  // namespace ucm::daemon
