#include "support/pcap.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

namespace ucm::test {
namespace {

using wire::IpAddress;

// A file's integers, in the byte order that its magic number tells.
class FileReader {
 public:
  FileReader(Bytes file, bool is_little_endian) : file_(file), is_little_endian_(is_little_endian) {}

  std::size_t size() const { return file_.size(); }
  Bytes bytes(std::size_t offset, std::size_t size) const { return file_.subspan(offset, size); }
  std::uint16_t u16(std::size_t offset) const {
    const std::uint16_t big = load_be16(&file_[offset]);
    return is_little_endian_ ? static_cast<std::uint16_t>(big << 8 | big >> 8) : big;
  }
  std::uint32_t u32(std::size_t offset) const {
    const std::uint32_t big = load_be32(&file_[offset]);
    return is_little_endian_ ? __builtin_bswap32(big) : big;
  }

 private:
  Bytes file_;
  bool is_little_endian_;
};

Frame make_frame(LinkType link_type, std::uint32_t original_size, Bytes bytes) {
  return {.link_type = link_type, .original_size = original_size, .bytes = {bytes.begin(), bytes.end()}};
}

constexpr std::size_t kPcapHeaderSize = 24;
constexpr std::size_t kPcapRecordHeaderSize = 16;

Result<std::vector<Frame>> parse_pcap(const FileReader& file) {
  std::vector<Frame> frames;
  const auto link_type = static_cast<LinkType>(file.u32(20) & 0xFFFF);
  std::size_t offset = kPcapHeaderSize;
  while (offset < file.size()) {
    if (file.size() - offset < kPcapRecordHeaderSize) return fail(EINVAL, "capture ends inside a record header");
    const std::uint32_t size = file.u32(offset + 8);
    const std::uint32_t original_size = file.u32(offset + 12);
    offset += kPcapRecordHeaderSize;
    if (file.size() - offset < size) return fail(EINVAL, "capture ends inside a packet");
    frames.push_back(make_frame(link_type, original_size, file.bytes(offset, size)));
    offset += size;
  }
  return frames;
}

constexpr std::uint32_t kBlockSectionHeader = 0x0A0D0D0A;
constexpr std::uint32_t kBlockInterface = 1;
constexpr std::uint32_t kBlockSimplePacket = 3;
constexpr std::uint32_t kBlockEnhancedPacket = 6;
constexpr std::uint32_t kByteOrderMagicLittle = 0x4D3C2B1A;  // read as big-endian
constexpr std::size_t kBlockSizeMin = 12;                    // type, length, length again

// The frame of a packet block at `offset`; nullopt when the block is inconsistent.
std::optional<Frame> packet_of_block(const FileReader& file, std::size_t offset, std::uint32_t block_size,
                                     const std::vector<LinkType>& interfaces) {
  const bool enhanced = file.u32(offset) == kBlockEnhancedPacket;
  const std::size_t data_offset = enhanced ? 28 : 12;
  if (block_size < data_offset + 4) return std::nullopt;
  const std::uint32_t interface = enhanced ? file.u32(offset + 8) : 0;
  const std::uint32_t original_size = file.u32(offset + data_offset - 4);
  const auto room = static_cast<std::uint32_t>(block_size - data_offset - 4);
  const std::uint32_t size = enhanced ? file.u32(offset + 20) : std::min(original_size, room);
  if (interface >= interfaces.size() || size > room) return std::nullopt;
  return make_frame(interfaces[interface], original_size, file.bytes(offset + data_offset, size));
}

Result<std::vector<Frame>> parse_pcapng(Bytes bytes) {
  std::vector<Frame> frames;
  std::vector<LinkType> interfaces;
  bool is_little_endian = true;
  std::size_t offset = 0;
  while (bytes.size() - offset >= kBlockSizeMin) {
    if (load_be32(&bytes[offset]) == kBlockSectionHeader) {
      is_little_endian = load_be32(&bytes[offset + 8]) == kByteOrderMagicLittle;
      interfaces.clear();
    }
    const FileReader file(bytes, is_little_endian);
    const std::uint32_t type = file.u32(offset);
    const std::uint32_t block_size = file.u32(offset + 4);
    if (block_size < kBlockSizeMin || block_size > bytes.size() - offset) return fail(EINVAL, "bad pcapng block size");
    if (type == kBlockInterface && block_size >= 20) {
      interfaces.push_back(static_cast<LinkType>(file.u16(offset + 8)));
    } else if (type == kBlockEnhancedPacket || type == kBlockSimplePacket) {
      auto frame = packet_of_block(file, offset, block_size, interfaces);
      if (!frame) return fail(EINVAL, "bad pcapng packet block");
      frames.push_back(std::move(*frame));
    }
    offset += block_size;
  }
  return frames;
}

constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
constexpr std::uint16_t kEtherTypeIpv6 = 0x86DD;
constexpr std::uint16_t kEtherTypeVlan = 0x8100;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::size_t kIpv6HeaderSize = 40;
constexpr std::size_t kUdpHeaderSize = 8;

// The IP packet of a frame; empty when the frame carries something else.
Bytes ip_packet_of(const Frame& frame) {
  const Bytes bytes(frame.bytes);
  std::size_t type_offset = 0;
  std::size_t header_size = 0;
  switch (frame.link_type) {
    case LinkType::kRawIp:
      return bytes;
    case LinkType::kEthernet:
      type_offset = 12;
      header_size = 14;
      break;
    case LinkType::kLinuxSll:
      type_offset = 14;
      header_size = 16;
      break;
    case LinkType::kLinuxSll2:
      type_offset = 0;
      header_size = 20;
      break;
    default:
      return {};
  }
  if (bytes.size() < header_size + 4) return {};
  std::uint16_t type = load_be16(&bytes[type_offset]);
  if (type == kEtherTypeVlan && frame.link_type == LinkType::kEthernet) {
    type = load_be16(&bytes[type_offset + 4]);
    header_size += 4;
  }
  const bool is_ip = type == kEtherTypeIpv4 || type == kEtherTypeIpv6;
  return is_ip ? bytes.subspan(header_size) : Bytes{};
}

// Fills in what the IP header tells and returns the UDP datagram; empty when there is none.
Bytes read_ipv4(Bytes ip, RocePacket& packet) {
  if (ip.size() < 20) return {};
  const std::size_t header_size = std::size_t{4} * (ip[0] & 0x0F);
  const std::size_t total_size = load_be16(&ip[2]);
  const std::uint16_t flags_and_offset = load_be16(&ip[6]);
  if (header_size < 20 || total_size < header_size || total_size > ip.size() || ip[9] != kProtocolUdp) return {};
  if ((flags_and_offset & 0x1FFF) != 0) return {};  // a later fragment has no UDP header
  packet.has_plain_ip_header = header_size == 20 && flags_and_offset == 0x4000;
  packet.info.traffic_class = ip[1];
  packet.info.ipv4_id = load_be16(&ip[4]);
  packet.info.hop_limit = ip[8];
  packet.info.source = IpAddress::ipv4(load_be32(&ip[12]));
  packet.info.destination = IpAddress::ipv4(load_be32(&ip[16]));
  return ip.subspan(header_size, total_size - header_size);
}

Bytes read_ipv6(Bytes ip, RocePacket& packet) {
  if (ip.size() < kIpv6HeaderSize) return {};
  const std::size_t payload_size = load_be16(&ip[4]);
  if (payload_size > ip.size() - kIpv6HeaderSize || ip[6] != kProtocolUdp) return {};
  packet.info.traffic_class = static_cast<std::uint8_t>(load_be16(&ip[0]) >> 4);
  packet.info.hop_limit = ip[7];
  std::copy_n(&ip[8], 16, packet.info.source.bytes.begin());
  std::copy_n(&ip[24], 16, packet.info.destination.bytes.begin());
  return ip.subspan(kIpv6HeaderSize, payload_size);
}

}  // namespace

Result<std::vector<Frame>> parse_capture(Bytes file) {
  if (file.size() < kPcapHeaderSize) return fail(EINVAL, "too short for a capture file");
  switch (load_be32(file.data())) {
    case kBlockSectionHeader:
      return parse_pcapng(file);
    case 0xD4C3B2A1:
    case 0x4D3CB2A1:
      return parse_pcap(FileReader(file, true));
    case 0xA1B2C3D4:
    case 0xA1B23C4D:
      return parse_pcap(FileReader(file, false));
    default:
      return fail(EINVAL, "neither pcap nor pcapng");
  }
}

Result<std::vector<Frame>> read_capture(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ENOENT, "cannot open " + path);
  const std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::uint8_t> bytes(content.begin(), content.end());
  auto frames = parse_capture(bytes);
  if (!frames) return fail(frames.error().code, path + ": " + frames.error().message);
  return frames;
}

std::optional<RocePacket> roce_packet_in(const Frame& frame) {
  const Bytes ip = ip_packet_of(frame);
  if (ip.empty()) return std::nullopt;
  RocePacket packet;
  const unsigned version = ip[0] >> 4;
  if (version != 4 && version != 6) return std::nullopt;
  const Bytes udp = version == 4 ? read_ipv4(ip, packet) : read_ipv6(ip, packet);
  if (udp.size() < kUdpHeaderSize) return std::nullopt;
  packet.info.source_port = load_be16(&udp[0]);
  packet.info.destination_port = load_be16(&udp[2]);
  const std::size_t udp_size = load_be16(&udp[4]);
  if (packet.info.destination_port != wire::kRoceUdpPort || udp_size < kUdpHeaderSize || udp_size > udp.size()) {
    return std::nullopt;
  }
  packet.payload = udp.subspan(kUdpHeaderSize, udp_size - kUdpHeaderSize);
  return packet;
}

}  // namespace ucm::test
