#include "wire/icrc.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "wire/crc_polynomial.h"
#include "wire/headers.h"

namespace ucm::wire {
namespace {

// The state after the eight 0xFF bytes, the masked LRH, with which every packet begins.
constexpr std::uint32_t kStateAfterMaskedLrh = 0xDEBB20E3;

constexpr std::size_t kIpv4HeaderSize = 20;
constexpr std::size_t kIpv4IdOffset = 4;
constexpr std::size_t kIpv6HeaderSize = 40;
constexpr std::size_t kUdpHeaderSize = 8;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::size_t kBthMaskedOffset = 4;  // FECN, BECN, reserved

// The largest UDP payload of either family: the 16-bit length of IPv4 covers its header as well.
constexpr std::size_t payload_size_max(bool is_ipv4) {
  return 65535 - kUdpHeaderSize - (is_ipv4 ? kIpv4HeaderSize : 0);
}

// The IP header with ones for whatever may change on the way. Returns its size.
std::size_t emit_masked_ip_header(const DatagramInfo& info, std::size_t udp_size, std::uint8_t* out) {
  if (info.destination.is_ipv4()) {
    store_be16(out, 0x45FF);  // version 4, five words; TOS masked
    store_be16(out + 2, static_cast<std::uint16_t>(kIpv4HeaderSize + udp_size));
    store_be16(out + kIpv4IdOffset, info.ipv4_id);
    store_be16(out + 6, 0x4000);                 // DF, offset 0
    store_be16(out + 8, 0xFF00 | kProtocolUdp);  // TTL masked
    store_be16(out + 10, 0xFFFF);                // checksum masked
    std::copy_n(&info.source.bytes[12], 4, out + 12);
    std::copy_n(&info.destination.bytes[12], 4, out + 16);
    return kIpv4HeaderSize;
  }
  store_be32(out, 0x6FFFFFFF);  // version 6; traffic class and flow label masked
  store_be16(out + 4, static_cast<std::uint16_t>(udp_size));
  store_be16(out + 6, kProtocolUdp << 8 | 0xFF);  // hop limit masked
  std::copy_n(info.source.bytes.begin(), 16, out + 8);
  std::copy_n(info.destination.bytes.begin(), 16, out + 24);
  return kIpv6HeaderSize;
}

// x^(-8 n) for n in [0, 256) and for n a multiple of 256: enough to go back over any datagram in two steps.
struct InversePowers {
  std::array<std::uint32_t, 256> bytes{};
  std::array<std::uint32_t, 256> blocks{};
};
constexpr InversePowers make_inverse_powers() {
  InversePowers powers;
  std::uint32_t next_byte = kCrcOne;
  for (auto& power : powers.bytes) {
    power = next_byte;
    next_byte = divided_by_x(next_byte, 8);
  }
  std::uint32_t next_block = kCrcOne;
  for (auto& power : powers.blocks) {
    power = next_block;
    next_block = multiply(next_block, next_byte);
  }
  return powers;
}
constexpr InversePowers kInversePowers = make_inverse_powers();

// The state that `size` zero bytes turn into `state`; size < 65536.
std::uint32_t rewind_zeros(std::uint32_t state, std::size_t size) {
  return multiply(multiply(state, kInversePowers.bytes[size % 256]), kInversePowers.blocks[size / 256]);
}

bool has_valid_size(const DatagramInfo& info, Bytes payload) {
  return payload.size() >= Bth::kSize + kIcrcSize && payload.size() <= payload_size_max(info.destination.is_ipv4());
}

// The ICRC as computed XOR the ICRC carried. The payload has a valid size.
std::uint32_t icrc_difference(const DatagramInfo& info, Bytes payload) {
  const Bytes body = payload.first(payload.size() - kIcrcSize);
  const std::uint8_t* carried = &payload[body.size()];
  const std::uint32_t carried_value =
      carried[0] | std::uint32_t{carried[1]} << 8 | std::uint32_t{carried[2]} << 16 | std::uint32_t{carried[3]} << 24;
  return icrc(info, body) ^ carried_value;
}

// The CRC is linear: packets that differ only in the identification have ICRCs that differ by the CRC of those two
// bytes and zeros after them. Taken back to where the identification stood, a difference of that kind is the two bytes.
std::optional<std::uint16_t> id_from_difference(std::uint32_t difference, std::size_t body_size) {
  const std::size_t size_from_id = kIpv4HeaderSize - kIpv4IdOffset + kUdpHeaderSize + body_size;
  const std::uint32_t at_id = rewind_zeros(difference, size_from_id);
  if (at_id >> 16 != 0) return std::nullopt;
  return static_cast<std::uint16_t>(at_id << 8 | at_id >> 8);
}

}  // namespace

std::uint32_t icrc(const DatagramInfo& info, Bytes bth_to_pad) {
  UCM_CHECK(bth_to_pad.size() >= Bth::kSize);
  UCM_CHECK(bth_to_pad.size() + kIcrcSize <= payload_size_max(info.destination.is_ipv4()));
  const std::size_t udp_size = kUdpHeaderSize + bth_to_pad.size() + kIcrcSize;

  std::array<std::uint8_t, kIpv6HeaderSize + kUdpHeaderSize + Bth::kSize> masked;
  const std::size_t ip_size = emit_masked_ip_header(info, udp_size, masked.data());
  std::uint8_t* udp = masked.data() + ip_size;
  store_be16(udp, info.source_port);
  store_be16(udp + 2, info.destination_port);
  store_be16(udp + 4, static_cast<std::uint16_t>(udp_size));
  store_be16(udp + 6, 0xFFFF);  // checksum masked
  std::uint8_t* bth = udp + kUdpHeaderSize;
  std::copy_n(bth_to_pad.begin(), Bth::kSize, bth);
  bth[kBthMaskedOffset] = 0xFF;

  const std::uint32_t state = crc32(kStateAfterMaskedLrh, Bytes(masked).first(ip_size + kUdpHeaderSize + Bth::kSize));
  return ~crc32(state, bth_to_pad.subspan(Bth::kSize));
}

void store_icrc(MutableBytes out, std::uint32_t value) {
  UCM_CHECK(out.size() >= kIcrcSize);
  for (std::size_t i = 0; i < kIcrcSize; ++i) out[i] = static_cast<std::uint8_t>(value >> 8 * i);
}

IcrcCheck verify_icrc(const DatagramInfo& info, Bytes payload) {
  if (!has_valid_size(info, payload)) return IcrcCheck::kBad;
  const std::uint32_t difference = icrc_difference(info, payload);
  if (difference == 0) return IcrcCheck::kGood;
  if (!info.destination.is_ipv4()) return IcrcCheck::kBad;
  return id_from_difference(difference, payload.size() - kIcrcSize) ? IcrcCheck::kSolvedId : IcrcCheck::kBad;
}

std::optional<std::uint16_t> solve_ipv4_id(const DatagramInfo& info, Bytes payload) {
  if (!info.destination.is_ipv4() || !has_valid_size(info, payload)) return std::nullopt;
  const auto change = id_from_difference(icrc_difference(info, payload), payload.size() - kIcrcSize);
  if (!change) return std::nullopt;
  return static_cast<std::uint16_t>(info.ipv4_id ^ *change);
}

}  // namespace ucm::wire
