#include "rsocket/protocol/datagrams.h"

#include <algorithm>

namespace ucm::rsocket {
namespace {

constexpr std::uint32_t kUdpTag = 0x55555555;
constexpr std::uint32_t kQpnMask = 0xFFFFFF;

std::size_t host_size(const HostAddress& host) { return host.is_ipv6 ? 16 : 4; }

HostAddress host_at(const std::uint8_t* from, bool is_ipv6) {
  HostAddress host{.is_ipv6 = is_ipv6, .bytes = {}};
  std::copy_n(from, host_size(host), host.bytes.begin());
  return host;
}

// Whether a header of this version and length it says is one.
std::optional<bool> is_ipv6(std::uint8_t version, std::size_t length, std::size_t ipv4_size, std::size_t ipv6_size) {
  if (version == 4 && length == ipv4_size) return false;
  if (version == 6 && length == ipv6_size) return true;
  return std::nullopt;
}

}  // namespace

std::optional<DatagramHeader> DatagramHeader::parse(Bytes bytes) {
  if (bytes.size() < 2) return std::nullopt;
  const auto ipv6 = is_ipv6(bytes[0], bytes[1], 8, kSizeMax);
  if (!ipv6 || bytes.size() < bytes[1]) return std::nullopt;
  return DatagramHeader{.host = host_at(&bytes[*ipv6 ? 8 : 4], *ipv6),
                        .port = load_be16(&bytes[2]),
                        .flow_info = *ipv6 ? load_be32(&bytes[4]) : 0};
}

void DatagramHeader::emit(std::uint8_t* to) const {
  to[0] = host.is_ipv6 ? 6 : 4;
  to[1] = static_cast<std::uint8_t>(size());
  store_be16(to + 2, port);
  if (host.is_ipv6) store_be32(to + 4, flow_info);
  std::copy_n(host.bytes.begin(), host_size(host), to + (host.is_ipv6 ? 8 : 4));
}

std::optional<UdpHeader> UdpHeader::parse(Bytes bytes) {
  if (bytes.size() < 8 || load_be32(bytes.data()) != kUdpTag) return std::nullopt;
  const auto ipv6 = is_ipv6(bytes[4], bytes[6], 16, kSizeMax);
  const auto kind = static_cast<Kind>(bytes[5]);
  if (!ipv6 || bytes.size() < bytes[6] || (kind != Kind::kData && kind != Kind::kControl)) return std::nullopt;
  return UdpHeader{.kind = kind, .qpn = load_be32(&bytes[8]) & kQpnMask, .host = host_at(&bytes[12], *ipv6)};
}

void UdpHeader::emit(std::uint8_t* to) const {
  store_be32(to, kUdpTag);
  to[4] = host.is_ipv6 ? 6 : 4;
  to[5] = static_cast<std::uint8_t>(kind);
  to[6] = static_cast<std::uint8_t>(size());
  to[7] = 0;
  store_be32(to + 8, qpn & kQpnMask);
  std::copy_n(host.bytes.begin(), host_size(host), to + 12);
}

}  // namespace ucm::rsocket
