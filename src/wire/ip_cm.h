// The RDMA IP CM service (IBTA annex A11): service IDs and the 36-byte header in front of the private data of REQ and
// SIDR_REQ.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "wire/address.h"

namespace ucm::wire {

// RDMA_PS_* of rdma_cm.
enum class PortSpace : std::uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013F };

constexpr std::uint64_t ip_service_id(PortSpace space, std::uint16_t port) {
  return std::uint64_t{static_cast<std::uint16_t>(space)} << 16 | port;
}

struct IpCmHeader {
  static constexpr std::size_t kSize = 36;
  std::uint8_t version = 0;     // the whole first byte; only 0 is valid
  std::uint8_t ip_version = 0;  // 4 or 6
  std::uint16_t source_port = 0;
  // IPv4 addresses are held in mapped form here although the wire carries 12 zero bytes and the address.
  IpAddress source{};
  IpAddress destination{};

  // nullopt when short. Any version and ip_version are returned as they are; with an ip_version other than 4 the
  // addresses are taken as IPv6.
  static std::optional<IpCmHeader> parse(Bytes bytes);
  void emit(MutableBytes out) const;
};

}  // namespace ucm::wire
