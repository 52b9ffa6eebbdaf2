#include "rsocket/protocol/datagrams.h"

#include <gtest/gtest.h>

#include <vector>

namespace ucm::rsocket {
namespace {

const HostAddress kIpv4{.is_ipv6 = false, .bytes = {10, 77, 0, 1}};
const HostAddress kIpv6{.is_ipv6 = true, .bytes = {0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

template <class Header>
std::vector<std::uint8_t> emitted(const Header& header) {
  std::vector<std::uint8_t> bytes(Header::kSizeMax);
  header.emit(bytes.data());
  bytes.resize(header.size());
  return bytes;
}

template <class Header>
void expect_round_trip_and_no_less(const Header& header) {
  std::vector<std::uint8_t> bytes = emitted(header);
  EXPECT_EQ(Header::parse(bytes), header);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Header::parse({bytes.data(), size}), std::nullopt) << size;
  }
  bytes.push_back(1);  // what the datagram carries
  EXPECT_EQ(Header::parse(bytes), header);
}

TEST(DatagramHeaderTest, HasTheDocumentedLayout) {
  const DatagramHeader header{.host = kIpv4, .port = 7174, .flow_info = 0};
  EXPECT_EQ(emitted(header), (std::vector<std::uint8_t>{4, 8, 0x1C, 0x06, 10, 77, 0, 1}));
  expect_round_trip_and_no_less(header);
  const DatagramHeader longer{.host = kIpv6, .port = 7174, .flow_info = 0x01020304};
  EXPECT_EQ(emitted(longer), (std::vector<std::uint8_t>{6, 24, 0x1C, 0x06, 1, 2, 3, 4, 0xfd, 0x77, 0, 0,
                                                        0, 0,  0,    0,    0, 0, 0, 0, 0,    0,    0, 1}));
  expect_round_trip_and_no_less(longer);
}

TEST(UdpHeaderTest, HasTheDocumentedLayout) {
  const UdpHeader header{.kind = UdpHeader::Kind::kControl, .qpn = 0x123456, .host = kIpv4};
  EXPECT_EQ(emitted(header),
            (std::vector<std::uint8_t>{0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0x12, 0x34, 0x56, 10, 77, 0, 1}));
  expect_round_trip_and_no_less(header);
  expect_round_trip_and_no_less(UdpHeader{.kind = UdpHeader::Kind::kData, .qpn = 1, .host = kIpv6});
}

TEST(UdpHeaderTest, OtherDatagramsAreNone) {
  const UdpHeader header{.kind = UdpHeader::Kind::kData, .qpn = 7, .host = kIpv4};
  for (const std::size_t at : {0u, 3u, 4u, 5u, 6u}) {  // tag, version, kind, length
    std::vector<std::uint8_t> bytes = emitted(header);
    bytes.resize(64);
    bytes[at] ^= 2;
    EXPECT_EQ(UdpHeader::parse(bytes), std::nullopt) << at;
  }
}

TEST(DatagramHeaderTest, VersionAndLengthBelongTogether) {
  std::vector<std::uint8_t> bytes(64);
  for (unsigned version = 0; version < 8; ++version) {
    for (unsigned length = 0; length < 32; ++length) {
      bytes[0] = static_cast<std::uint8_t>(version);
      bytes[1] = static_cast<std::uint8_t>(length);
      const bool fits = (version == 4 && length == 8) || (version == 6 && length == 24);
      EXPECT_EQ(DatagramHeader::parse(bytes).has_value(), fits) << version << " " << length;
    }
  }
}

}  // namespace
}  // namespace ucm::rsocket
