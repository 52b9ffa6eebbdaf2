// Any bytes as a UDP payload from any address: headers parse or are refused, and the ICRC check never errs on a packet
// that was sealed with icrc().
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "support/reemit.h"
#include "wire/icrc.h"
#include "wire/ud_packet.h"

namespace {

using namespace ucm;
using namespace ucm::wire;

// What precedes the payload in an input: family, IPv4 identification, source port, two addresses.
constexpr std::size_t kPrefixSize = 1 + 2 + 2 + 16 + 16;

DatagramInfo info_from(Bytes prefix) {
  DatagramInfo info;
  info.ipv4_id = load_be16(&prefix[1]);
  info.source_port = load_be16(&prefix[3]);
  if ((prefix[0] & 1) != 0) {
    std::copy_n(&prefix[5], 16, info.source.bytes.begin());
    std::copy_n(&prefix[21], 16, info.destination.bytes.begin());
  } else {
    info.source = IpAddress::ipv4(load_be32(&prefix[5]));
    info.destination = IpAddress::ipv4(load_be32(&prefix[21]));
  }
  return info;
}

void check_icrc(const DatagramInfo& info, Bytes payload) {
  verify_icrc(info, payload);
  if (const auto id = solve_ipv4_id(info, payload)) {
    DatagramInfo solved = info;
    solved.ipv4_id = *id;
    UCM_CHECK(verify_icrc(solved, payload) == IcrcCheck::kGood);
  }
  if (payload.size() < Bth::kSize + kIcrcSize) return;
  std::vector<std::uint8_t> sealed(payload.begin(), payload.end());
  const std::size_t body_size = sealed.size() - kIcrcSize;
  store_icrc(MutableBytes(sealed).subspan(body_size), icrc(info, Bytes(sealed).first(body_size)));
  UCM_CHECK(verify_icrc(info, sealed) == IcrcCheck::kGood);
}

void check_headers(const DatagramInfo& info, Bytes payload) {
  const auto once = test::reemit(payload);
  UCM_CHECK(once.empty() || once.size() == payload.size());
  if (!once.empty()) UCM_CHECK(test::reemit(once) == once);

  const auto ud = parse_ud_packet(payload);
  UCM_CHECK(ud || !parse_gsi_packet(payload));
  if (!ud) return;
  std::vector<std::uint8_t> out(ud_packet_size(ud->payload.size(), ud->immediate.has_value()));
  emit_ud_packet(info, *ud, out);
  const auto again = parse_ud_packet(out);
  UCM_CHECK(again && std::ranges::equal(again->payload, ud->payload));
  UCM_CHECK(verify_icrc(info, out) == IcrcCheck::kGood);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kInputSizeMax = 5000;  // a datagram on a jumbo link has no more to tell
  if (size < kPrefixSize || size > kInputSizeMax) return 0;
  const DatagramInfo info = info_from(Bytes(data, kPrefixSize));
  const Bytes payload = Bytes(data, size).subspan(kPrefixSize);
  check_icrc(info, payload);
  check_headers(info, payload);
  return 0;
}
