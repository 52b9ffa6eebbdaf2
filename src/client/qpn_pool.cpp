#include "client/qpn_pool.h"

#include "ipc/limits.h"

namespace ucm::client {

void QpnPool::add_block(std::uint32_t first, std::uint32_t count, std::uint32_t table_index) {
  block_index_[first / ipc::kQpnBlockSize] = table_index;
  for (std::uint32_t i = 0; i < count; ++i) unused_.push_back(first + i);
}

std::optional<std::uint32_t> QpnPool::take(TimeNs now) {
  if (!unused_.empty()) {
    const std::uint32_t qpn = unused_.front();
    unused_.pop_front();
    return qpn;
  }
  if (free_.empty() || free_.front().usable_from > now) return std::nullopt;
  return take_oldest();
}

std::optional<std::uint32_t> QpnPool::take_oldest() {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t qpn = free_.front().qpn;
  free_.pop_front();
  return qpn;
}

void QpnPool::give_back(TimeNs now, std::uint32_t qpn) { free_.push_back({qpn, now + kReuseDelayNs}); }

std::optional<std::uint32_t> QpnPool::table_index_of(std::uint32_t qpn) const {
  const auto it = block_index_.find(qpn / ipc::kQpnBlockSize);
  if (it == block_index_.end()) return std::nullopt;
  return it->second + qpn % ipc::kQpnBlockSize;
}

}  // namespace ucm::client
