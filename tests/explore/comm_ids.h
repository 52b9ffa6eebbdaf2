// The comm IDs that the two nodes draw, by their number in the node's random sequence. A number that nobody knows any
// more (no connection, no packet on its way) is used again: to everybody it is as good as a new one, and the number
// of states stays finite.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "cm/engine.h"

namespace ucm::explore {

inline constexpr unsigned kNodes = 2;
inline constexpr unsigned kConnections = 2;  // and what their packets make of them, repeated
inline constexpr unsigned kCommIdsPerConnection = 8;
inline constexpr unsigned kCommIdsPerNode = kConnections * kCommIdsPerConnection;

// One bit for each number, per node.
using CommIdSet = std::array<std::uint16_t, kNodes>;

inline CommIdSet operator|(const CommIdSet& a, const CommIdSet& b) {
  return {static_cast<std::uint16_t>(a[0] | b[0]), static_cast<std::uint16_t>(a[1] | b[1])};
}

class CommIds {
 public:
  explicit CommIds(const std::array<cm::Config, kNodes>& configs);
  // Empty for an ID of neither node.
  CommIdSet set_of(std::uint32_t comm_id) const;
  // "a0", "b2"; "?" for an ID of neither node.
  std::string name(std::uint32_t comm_id) const;

 private:
  std::array<std::array<std::uint32_t, kCommIdsPerNode>, kNodes> ids_{};
};

}  // namespace ucm::explore
