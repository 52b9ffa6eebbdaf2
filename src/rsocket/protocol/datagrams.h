// The headers of datagram rsockets: one in front of what goes from UD QP to UD QP, one in front of what goes between
// the UDP sockets until both sides know each other's QP.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace ucm::rsocket {

// An IPv4 address is in the first four bytes.
struct HostAddress {
  bool is_ipv6 = false;
  std::array<std::uint8_t, 16> bytes{};

  auto operator<=>(const HostAddress&) const = default;
};

// In front of a datagram between QPs: who sends it.
struct DatagramHeader {
  static constexpr std::size_t kSizeMax = 24;

  HostAddress host;
  std::uint16_t port = 0;
  std::uint32_t flow_info = 0;

  bool operator==(const DatagramHeader&) const = default;

  std::size_t size() const { return host.is_ipv6 ? kSizeMax : 8; }
  // The header's size is what the datagram begins after; nullopt when it is none.
  static std::optional<DatagramHeader> parse(Bytes bytes);
  // Writes size() bytes.
  void emit(std::uint8_t* to) const;
};

// In front of a datagram between UDP sockets: the sender's QP.
struct UdpHeader {
  static constexpr std::size_t kSizeMax = 28;
  enum class Kind : std::uint8_t { kData = 0, kControl = 7 };

  Kind kind = Kind::kData;
  std::uint32_t qpn = 0;
  HostAddress host;

  bool operator==(const UdpHeader&) const = default;

  std::size_t size() const { return host.is_ipv6 ? kSizeMax : 16; }
  static std::optional<UdpHeader> parse(Bytes bytes);
  void emit(std::uint8_t* to) const;
};

}  // namespace ucm::rsocket
