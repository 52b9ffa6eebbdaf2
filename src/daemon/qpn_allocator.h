// Hands out QP numbers in blocks, going round the whole range before a number comes again: late packets for an old
// queue pair then find nobody. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ipc/limits.h"

namespace ucm::daemon {

class QpnAllocator {
 public:
  using Owner = std::uint32_t;  // a session; never 0

  // `start` picks where the cycle begins: random, so that a new ucmd does not repeat the numbers of the last one.
  explicit QpnAllocator(std::uint64_t start);

  // The first number of a block of kQpnBlockSize that belongs to nobody; nullopt when all are taken. `position` is kept
  // with the block: how many the owner had before.
  std::optional<std::uint32_t> allocate(Owner owner, std::uint32_t position);
  // Takes the block that begins with `first_qpn`; false when there is none, or it is taken.
  bool claim(Owner owner, std::uint32_t first_qpn, std::uint32_t position);
  void release_all(Owner owner);
  // How many numbers have an owner.
  std::size_t in_use() const;

  // 0: nobody's, or no number that is handed out at all.
  Owner owner_of(std::uint32_t qpn) const;
  // Where among all numbers of its owner `qpn` is, counted in the order handed out. Only for a number with an owner.
  std::uint32_t index_of(std::uint32_t qpn) const;

 private:
  static constexpr std::uint32_t kBlockFirst = ipc::kQpnFirst / ipc::kQpnBlockSize;
  static constexpr std::uint32_t kBlockEnd = ipc::kQpnEnd / ipc::kQpnBlockSize;

  struct Block {
    Owner owner = 0;
    std::uint32_t position = 0;
  };
  std::vector<Block> blocks_;
  std::uint32_t next_;
};

}  // namespace ucm::daemon
