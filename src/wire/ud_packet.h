// Whole UD packets as UDP payloads: BTH, DETH, optional immediate, payload, pad, ICRC. CM messages travel in these,
// between the queue pairs 1 of two hosts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "wire/datagram.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/mad.h"

namespace ucm::wire {

struct UdPacket {
  Bth bth{};
  Deth deth{};
  std::optional<ImmDt> immediate{};
  Bytes payload{};  // points into what was parsed
};

// nullopt when `datagram` (a UDP payload with its ICRC) is short, is no UD SEND, or declares more pad than it has. The
// ICRC is not checked: verify_icrc() does.
std::optional<UdPacket> parse_ud_packet(Bytes datagram);

// The size of a UD packet that carries `payload_size` bytes.
constexpr std::size_t ud_packet_size(std::size_t payload_size, bool has_immediate) {
  return Bth::kSize + Deth::kSize + (has_immediate ? ImmDt::kSize : 0) + (payload_size + 3) / 4 * 4 + kIcrcSize;
}

// Writes the packet into out[0..ud_packet_size()) and returns its size. Opcode and pad count follow from the rest:
// those in packet.bth are not used.
std::size_t emit_ud_packet(const DatagramInfo& info, const UdPacket& packet, MutableBytes out);

// A MAD from QP 1 to QP 1. A longer MAD is not representable: it would wedge QP 1 of a peer.  // Linux: rxe 6.1
inline constexpr std::size_t kGsiPacketSize = ud_packet_size(kMadSize, false);
std::size_t emit_gsi_packet(const DatagramInfo& info, std::uint32_t psn, std::span<const std::uint8_t, kMadSize> mad,
                            MutableBytes out);

// The MAD of a packet for QP 1; nullopt when it is none: another QP, key or partition, or not exactly 256 bytes.
// The ICRC is not checked.
std::optional<std::span<const std::uint8_t, kMadSize>> parse_gsi_packet(Bytes datagram);

}  // namespace ucm::wire
