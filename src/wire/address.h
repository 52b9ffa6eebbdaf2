// IP addresses in GID form. Pure.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "base/bytes.h"

namespace ucm::wire {

// An IPv6 address, or an IPv4 address in its mapped form ::ffff:a.b.c.d. This is the form of a RoCEv2 GID, so one
// type serves as address and as GID. The interface of a link-local address is kept beside it, never in it.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};

  static constexpr IpAddress ipv4(std::uint32_t host_order) {
    IpAddress a;
    a.bytes[10] = a.bytes[11] = 0xff;
    store_be32(&a.bytes[12], host_order);
    return a;
  }
  static constexpr IpAddress ipv4_any() { return ipv4(0); }

  constexpr bool is_ipv4() const { return load_be64(&bytes[0]) == 0 && load_be32(&bytes[8]) == 0xffff; }
  // Host byte order; only for is_ipv4().
  constexpr std::uint32_t ipv4_value() const { return load_be32(&bytes[12]); }

  // 0.0.0.0 or ::
  constexpr bool is_unspecified() const { return *this == IpAddress{} || *this == ipv4_any(); }
  // 127.0.0.0/8 or ::1
  constexpr bool is_loopback() const {
    if (is_ipv4()) return bytes[12] == 127;
    IpAddress one;
    one.bytes[15] = 1;
    return *this == one;
  }
  // fe80::/10
  constexpr bool is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }
  constexpr bool is_multicast() const { return is_ipv4() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff; }

  // The same address, or two of 127.0.0.0/8: whatever its device lists, each of these is this host.
  constexpr bool is_same_host(const IpAddress& other) const {
    return *this == other || (is_ipv4() && other.is_ipv4() && is_loopback() && other.is_loopback());
  }

  constexpr auto operator<=>(const IpAddress&) const = default;
  constexpr bool operator==(const IpAddress& other) const {
    return load_be64(&bytes[0]) == load_be64(&other.bytes[0]) && load_be64(&bytes[8]) == load_be64(&other.bytes[8]);
  }

  // The two halves, for hashing.
  constexpr std::array<std::uint64_t, 2> words() const { return {load_be64(&bytes[0]), load_be64(&bytes[8])}; }
};

// A multicast group is another one on every interface.
struct MulticastGroup {
  IpAddress address;
  std::uint32_t ifindex = 0;

  constexpr auto operator<=>(const MulticastGroup&) const = default;
};

}  // namespace ucm::wire
