// Every packet that was ever sent, once: equal bytes for the same node are one packet.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cm/engine.h"
#include "explore/comm_ids.h"

namespace ucm::explore {

struct PacketInfo {
  unsigned to = 0;  // node
  cm::Path path{};  // as the receiver sees it
  std::array<std::uint8_t, wire::kMadSize> mad{};
  CommIdSet comm_ids{};  // named in it
  bool is_request = false;
  bool is_rejection = false;
  unsigned connection = 0;  // of a request
  std::string kind{};       // and where it goes, without names
  std::string name{};
};

class Packets {
 public:
  using Index = std::uint16_t;
  explicit Packets(const CommIds& comm_ids) : comm_ids_(comm_ids) {}

  // What node `from` sent.
  Index intern(unsigned from, const cm::Packet& packet);
  const PacketInfo& operator[](Index index) const { return packets_[index]; }
  std::size_t size() const { return packets_.size(); }

 private:
  const CommIds& comm_ids_;
  std::vector<PacketInfo> packets_;
  std::unordered_map<std::uint64_t, Index> by_hash_;
};

}  // namespace ucm::explore
