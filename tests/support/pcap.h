// Reading capture files: classic pcap (either byte order, micro- or nanoseconds) and pcapng (Enhanced and Simple Packet
// Blocks), and finding the RoCEv2 packets in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/datagram.h"

namespace ucm::test {

// The link types understood by roce_packet_in(); others hold no RoCE packets.
enum class LinkType : std::uint16_t {
  kEthernet = 1,
  kRawIp = 101,
  kLinuxSll = 113,
  kLinuxSll2 = 276,
};

struct Frame {
  LinkType link_type{};
  std::uint32_t original_size = 0;  // on the wire; larger than bytes when the capture cut it
  std::vector<std::uint8_t> bytes;

  bool is_cut() const { return bytes.size() < original_size; }
};

Result<std::vector<Frame>> read_capture(const std::string& path);
Result<std::vector<Frame>> parse_capture(Bytes file);

struct RocePacket {
  wire::DatagramInfo info;  // ipv4_id is the header's
  // What the ICRC assumes of an IPv4 header and a UDP socket guarantees: five words, DF alone.
  bool has_plain_ip_header = true;
  Bytes payload;  // the UDP payload, ICRC included; points into the frame
};

// The frame's RoCEv2 packet: UDP to port 4791 over IPv4 or IPv6 without extension headers. Link-layer padding is
// removed. nullopt for everything else and for frames too short to tell.
std::optional<RocePacket> roce_packet_in(const Frame& frame);

}  // namespace ucm::test
