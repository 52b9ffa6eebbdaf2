#include "wire/ip_cm.h"

#include <algorithm>

#include "base/check.h"

namespace ucm::wire {
namespace {

constexpr std::size_t kSourceOffset = 4;
constexpr std::size_t kDestinationOffset = 20;
static_assert(kDestinationOffset + sizeof(IpAddress) == IpCmHeader::kSize);

IpAddress parse_address(Bytes field, bool is_ipv4) {
  if (is_ipv4) return IpAddress::ipv4(load_be32(&field[12]));
  IpAddress address;
  std::copy_n(field.begin(), address.bytes.size(), address.bytes.begin());
  return address;
}

void emit_address(const IpAddress& address, bool is_ipv4, MutableBytes field) {
  std::copy(address.bytes.begin(), address.bytes.end(), field.begin());
  if (!is_ipv4) return;
  UCM_CHECK(address.is_ipv4());
  std::fill_n(field.begin(), 12, std::uint8_t{0});  // Linux: not the mapped form
}

}  // namespace

std::optional<IpCmHeader> IpCmHeader::parse(Bytes bytes) {
  if (bytes.size() < kSize) return std::nullopt;
  IpCmHeader header;
  header.version = bytes[0];
  header.ip_version = bytes[1] >> 4;
  header.source_port = load_be16(&bytes[2]);
  header.source = parse_address(bytes.subspan(kSourceOffset), header.ip_version == 4);
  header.destination = parse_address(bytes.subspan(kDestinationOffset), header.ip_version == 4);
  return header;
}

void IpCmHeader::emit(MutableBytes out) const {
  UCM_CHECK(out.size() >= kSize);
  UCM_CHECK(ip_version <= 0x0F);
  out[0] = version;
  out[1] = static_cast<std::uint8_t>(ip_version << 4);
  store_be16(&out[2], source_port);
  emit_address(source, ip_version == 4, out.subspan(kSourceOffset));
  emit_address(destination, ip_version == 4, out.subspan(kDestinationOffset));
}

}  // namespace ucm::wire
