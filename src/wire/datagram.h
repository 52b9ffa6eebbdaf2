// What travels beside the UDP payload of a RoCEv2 packet: everything the ICRC needs and a UDP socket can tell or set.
#pragma once

#include <cstdint>

#include "wire/address.h"

namespace ucm::wire {

inline constexpr std::uint16_t kRoceUdpPort = 4791;  // IBTA A17: RoCEv2
inline constexpr std::uint16_t kRoceSourcePortMin = 0xC000;

struct DatagramInfo {
  IpAddress source{};
  IpAddress destination{};
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = kRoceUdpPort;
  std::uint8_t traffic_class = 0;  // IPv4 TOS or IPv6 traffic class
  std::uint8_t hop_limit = 64;
  std::uint32_t ifindex = 0;  // receiving interface, or that of a link-local or multicast destination; 0 = unspecified
  std::uint16_t ipv4_id = 0;  // as sent; a UDP socket does not show it to a receiver: see verify_icrc()
};

}  // namespace ucm::wire
