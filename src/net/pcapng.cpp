#include "net/pcapng.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

namespace ucm::net {
namespace {

// Block types and options.
constexpr std::uint32_t kSectionHeader = 0x0A0D0D0A;
constexpr std::uint32_t kByteOrderMagic = 0x1A2B3C4D;
constexpr std::uint32_t kInterface = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint16_t kOptionComment = 1;
constexpr std::uint16_t kOptionApplication = 4;
constexpr std::uint16_t kOptionTimeResolution = 9;
constexpr std::uint16_t kOptionFlags = 2;  // of a packet
constexpr std::uint8_t kNanoseconds = 9;
constexpr std::uint16_t kEthernet = 1;
constexpr std::uint32_t kInbound = 1;
constexpr std::uint32_t kOutbound = 2;
constexpr std::uint16_t kEtherIpv4 = 0x0800;
constexpr std::uint16_t kEtherIpv6 = 0x86DD;

constexpr std::size_t kMacHeaderSize = 14;
constexpr std::size_t kIpv4HeaderSize = 20;
constexpr std::size_t kIpv6HeaderSize = 40;
constexpr std::size_t kUdpHeaderSize = 8;
constexpr std::uint8_t kUdp = 17;

// A block in this machine's byte order, as its magic tells.
class Block {
 public:
  explicit Block(std::uint32_t type) {
    put(type);
    put(std::uint32_t{0});  // its length, at the end
  }
  template <class Integer>
  void put(Integer value) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  void put(Bytes bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    bytes_.resize((bytes_.size() + 3) / 4 * 4);
  }
  void option(std::uint16_t code, Bytes value) {
    put(code);
    put(static_cast<std::uint16_t>(value.size()));
    put(value);
  }
  void option(std::uint16_t code, std::string_view text) {
    option(code, Bytes(reinterpret_cast<const std::uint8_t*>(text.data()), std::min<std::size_t>(text.size(), 4096)));
  }
  std::vector<std::uint8_t> finish() {
    put(std::uint32_t{0});  // the end of the options
    const auto size = static_cast<std::uint32_t>(bytes_.size() + sizeof(std::uint32_t));
    put(size);
    std::memcpy(&bytes_[4], &size, sizeof size);
    return std::move(bytes_);
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

std::uint32_t sum_of(Bytes bytes, std::uint32_t sum) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += load_be16(&bytes[i]);
  if (bytes.size() % 2 != 0) sum += std::uint32_t{bytes.back()} << 8;
  return sum;
}
std::uint16_t checksum(std::uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

void put_ipv4(const wire::DatagramInfo& info, std::size_t udp_size, MutableBytes out) {
  out[0] = 0x45;
  out[1] = info.traffic_class;
  store_be16(&out[2], static_cast<std::uint16_t>(kIpv4HeaderSize + udp_size));
  store_be16(&out[4], info.ipv4_id);
  store_be16(&out[6], 0x4000);  // do not fragment
  out[8] = info.hop_limit;
  out[9] = kUdp;
  std::copy_n(info.source.bytes.begin() + 12, 4, out.begin() + 12);
  std::copy_n(info.destination.bytes.begin() + 12, 4, out.begin() + 16);
  store_be16(&out[10], checksum(sum_of(out.first(kIpv4HeaderSize), 0)));
}

void put_ipv6(const wire::DatagramInfo& info, std::size_t udp_size, MutableBytes out) {
  store_be32(out.data(), 6u << 28 | std::uint32_t{info.traffic_class} << 20);
  store_be16(&out[4], static_cast<std::uint16_t>(udp_size));
  out[6] = kUdp;
  out[7] = info.hop_limit;
  std::ranges::copy(info.source.bytes, out.begin() + 8);
  std::ranges::copy(info.destination.bytes, out.begin() + 24);
}

std::vector<std::uint8_t> frame_of(const wire::DatagramInfo& info, Bytes payload) {
  const bool ipv4 = info.destination.is_ipv4();
  const std::size_t ip_size = ipv4 ? kIpv4HeaderSize : kIpv6HeaderSize;
  const std::size_t udp_size = kUdpHeaderSize + payload.size();
  std::vector<std::uint8_t> frame(kMacHeaderSize + ip_size + udp_size);
  store_be16(&frame[12], ipv4 ? kEtherIpv4 : kEtherIpv6);
  const MutableBytes ip = MutableBytes(frame).subspan(kMacHeaderSize);
  if (ipv4) {
    put_ipv4(info, udp_size, ip);
  } else {
    put_ipv6(info, udp_size, ip);
  }
  const MutableBytes udp = ip.subspan(ip_size);
  store_be16(udp.data(), info.source_port);
  store_be16(&udp[2], info.destination_port);
  store_be16(&udp[4], static_cast<std::uint16_t>(udp_size));
  std::ranges::copy(payload, udp.begin() + kUdpHeaderSize);
  // With the pseudo header.
  const Bytes addresses = ipv4 ? Bytes(ip).subspan(12, 8) : Bytes(ip).subspan(8, 32);
  const std::uint32_t pseudo = sum_of(addresses, static_cast<std::uint32_t>(udp_size) + kUdp);
  const std::uint16_t sum = checksum(sum_of(udp, pseudo));
  store_be16(&udp[6], sum != 0 ? sum : 0xFFFF);
  return frame;
}

// In this machine's byte order; 0 where there is less.
template <class Integer>
Integer number_at(Bytes bytes, std::size_t at) {
  Integer value = 0;
  if (bytes.size() >= at + sizeof value) std::memcpy(&value, &bytes[at], sizeof value);
  return value;
}

// The parts of a frame that pcapng_packet() makes; nullopt: not UDP, or a fragment, or cut off.
std::optional<CapturedDatagram> datagram_in(Bytes frame) {
  if (frame.size() < kMacHeaderSize) return std::nullopt;
  const std::uint16_t type = load_be16(&frame[12]);
  Bytes ip = frame.subspan(kMacHeaderSize);
  CapturedDatagram datagram;
  wire::DatagramInfo& info = datagram.info;
  if (type == kEtherIpv4 && ip.size() >= kIpv4HeaderSize && ip[9] == kUdp && (load_be16(&ip[6]) & 0x3FFF) == 0) {
    const std::size_t header = std::size_t{ip[0] & 0xFu} * 4;
    const std::size_t size = load_be16(&ip[2]);
    if (header < kIpv4HeaderSize || size < header || size > ip.size()) return std::nullopt;
    info.source = wire::IpAddress::ipv4(load_be32(&ip[12]));
    info.destination = wire::IpAddress::ipv4(load_be32(&ip[16]));
    info.traffic_class = ip[1];
    info.hop_limit = ip[8];
    ip = ip.subspan(header, size - header);
  } else if (type == kEtherIpv6 && ip.size() >= kIpv6HeaderSize && ip[6] == kUdp) {
    const std::size_t size = load_be16(&ip[4]);
    if (size > ip.size() - kIpv6HeaderSize) return std::nullopt;
    std::copy_n(ip.begin() + 8, 16, info.source.bytes.begin());
    std::copy_n(ip.begin() + 24, 16, info.destination.bytes.begin());
    info.traffic_class = static_cast<std::uint8_t>(load_be16(ip.data()) >> 4);
    info.hop_limit = ip[7];
    ip = ip.subspan(kIpv6HeaderSize, size);
  } else {
    return std::nullopt;
  }
  if (ip.size() < kUdpHeaderSize) return std::nullopt;
  info.source_port = load_be16(ip.data());
  info.destination_port = load_be16(&ip[2]);
  datagram.payload = ip.subspan(kUdpHeaderSize);
  return datagram;
}

// The comment and the direction.
void read_options(Bytes options, CapturedDatagram& datagram) {
  while (options.size() >= 4) {
    const auto code = number_at<std::uint16_t>(options, 0);
    const std::size_t size = number_at<std::uint16_t>(options, 2);
    const std::size_t padded = (size + 3) / 4 * 4;
    if (code == 0 || options.size() - 4 < padded) return;
    const Bytes value = options.subspan(4, size);
    if (code == kOptionComment) datagram.comment = {reinterpret_cast<const char*>(value.data()), size};
    if (code == kOptionFlags) datagram.sent = (number_at<std::uint32_t>(value, 0) & 3) == kOutbound;
    options = options.subspan(4 + padded);
  }
}

}  // namespace

std::vector<std::uint8_t> pcapng_header(std::string_view application) {
  Block section(kSectionHeader);
  section.put(kByteOrderMagic);
  section.put(std::uint16_t{1});  // version 1.0
  section.put(std::uint16_t{0});
  section.put(~std::uint64_t{0});  // length not told
  section.option(kOptionApplication, application);
  std::vector<std::uint8_t> bytes = section.finish();
  Block interface(kInterface);
  interface.put(kEthernet);
  interface.put(std::uint16_t{0});
  interface.put(std::uint32_t{0});  // whole packets
  interface.option(kOptionTimeResolution, Bytes(&kNanoseconds, 1));
  const std::vector<std::uint8_t> more = interface.finish();
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

std::vector<std::uint8_t> pcapng_packet(const CapturedDatagram& datagram) {
  const std::vector<std::uint8_t> frame = frame_of(datagram.info, datagram.payload);
  Block block(kEnhancedPacket);
  block.put(std::uint32_t{0});  // the interface
  const auto time = static_cast<std::uint64_t>(datagram.time_ns);
  block.put(static_cast<std::uint32_t>(time >> 32));
  block.put(static_cast<std::uint32_t>(time));
  block.put(static_cast<std::uint32_t>(frame.size()));
  block.put(static_cast<std::uint32_t>(frame.size()));
  block.put(Bytes(frame));
  const std::uint32_t direction = datagram.sent ? kOutbound : kInbound;
  block.option(kOptionFlags, Bytes(reinterpret_cast<const std::uint8_t*>(&direction), sizeof direction));
  if (!datagram.comment.empty()) block.option(kOptionComment, datagram.comment);
  return block.finish();
}

bool is_pcapng(Bytes file) {
  return number_at<std::uint32_t>(file, 0) == kSectionHeader && number_at<std::uint32_t>(file, 8) == kByteOrderMagic;
}

Result<void> read_pcapng(Bytes file, const std::function<void(const CapturedDatagram&)>& take) {
  constexpr std::size_t kBlockOverhead = 12;
  constexpr std::size_t kPacketHeader = 28;
  if (!is_pcapng(file)) return fail(EPROTO, "it is no pcapng file of this machine's byte order");
  for (std::size_t offset = 0; offset < file.size();) {
    const Bytes left = file.subspan(offset);
    const std::size_t size = number_at<std::uint32_t>(left, 4);
    if (size < kBlockOverhead || size % 4 != 0 || size > left.size() ||
        number_at<std::uint32_t>(left, size - 4) != size) {
      return fail(EPROTO, "it is cut off or damaged at byte " + std::to_string(offset));
    }
    const Bytes block = left.first(size - 4);
    offset += size;
    if (number_at<std::uint32_t>(block, 0) != kEnhancedPacket || block.size() < kPacketHeader) continue;
    const std::size_t captured = number_at<std::uint32_t>(block, 20);
    const std::size_t padded = (captured + 3) / 4 * 4;
    if (padded > block.size() - kPacketHeader) {
      return fail(EPROTO, "it has a packet longer than its block, before byte " + std::to_string(offset));
    }
    auto datagram = datagram_in(block.subspan(kPacketHeader, captured));
    if (!datagram) continue;
    datagram->time_ns = static_cast<std::int64_t>(std::uint64_t{number_at<std::uint32_t>(block, 12)} << 32 |
                                                  number_at<std::uint32_t>(block, 16));
    read_options(block.subspan(kPacketHeader + padded), *datagram);
    take(*datagram);
  }
  return {};
}

}  // namespace ucm::net
