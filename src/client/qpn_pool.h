// The QP numbers of this process: blocks from the node, numbers one by one, each as late as possible a second time.
// Pure; the caller holds a lock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "base/time.h"

namespace ucm::client {

class QpnPool {
 public:
  // A packet for an old queue pair is gone after its retransmissions: seconds.
  static constexpr TimeNs kReuseDelayNs = 8 * kNanosecondsPerSecond;

  // `table_index`: where the peer of the block's first number stands in the table shared with the node.
  void add_block(std::uint32_t first, std::uint32_t count, std::uint32_t table_index);
  // A number never used or free for kReuseDelayNs; nullopt: ask for a block.
  std::optional<std::uint32_t> take(TimeNs now);
  // Where no block is to be had: the number that has been free for longest.
  std::optional<std::uint32_t> take_oldest();
  void give_back(TimeNs now, std::uint32_t qpn);
  // nullopt for a number that is not of this pool.
  std::optional<std::uint32_t> table_index_of(std::uint32_t qpn) const;

 private:
  struct Free {
    std::uint32_t qpn;
    TimeNs usable_from;
  };
  std::deque<Free> free_;  // in the order of usable_from
  std::deque<std::uint32_t> unused_;
  std::unordered_map<std::uint32_t, std::uint32_t> block_index_;  // by qpn / kQpnBlockSize
};

}  // namespace ucm::client
