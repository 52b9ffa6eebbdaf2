// Capture files byte by byte; tests/clients has tshark read them.
#include "net/pcapng.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

namespace ucm::net {
namespace {

std::uint32_t word_at(Bytes bytes, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, &bytes[at], sizeof word);
  return word;
}

// The one's complement sum over what holds its own checksum is all ones.
std::uint16_t folded_sum(Bytes bytes, std::uint32_t sum) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += load_be16(&bytes[i]);
  if (bytes.size() % 2 != 0) sum += std::uint32_t{bytes.back()} << 8;
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// Every block says its length at both ends, a multiple of four.
void expect_blocks(Bytes bytes, std::size_t count) {
  while (!bytes.empty()) {
    ASSERT_GE(bytes.size(), 12u);
    const std::uint32_t size = word_at(bytes, 4);
    ASSERT_EQ(size % 4, 0u);
    ASSERT_LE(size, bytes.size());
    EXPECT_EQ(word_at(bytes, size - 4), size);
    bytes = bytes.subspan(size);
    --count;
  }
  EXPECT_EQ(count, 0u);
}

TEST(Pcapng, AFileBeginsWithItsSectionAndItsInterface) {
  const auto header = pcapng_header("a test");
  expect_blocks(header, 2);
  EXPECT_EQ(word_at(header, 0), 0x0A0D0D0Au);
  EXPECT_EQ(word_at(header, 8), 0x1A2B3C4Du);
  EXPECT_EQ(word_at(header, word_at(header, 4)), 1u);
}

TEST(Pcapng, APacketIsAnEthernetFrameWithRightChecksums) {
  const std::array<std::uint8_t, 281> payload{1, 2, 3, 0xFF};
  for (const bool ipv4 : {true, false}) {
    wire::DatagramInfo info{.source_port = 0xC001, .traffic_class = 0x20, .hop_limit = 17};
    if (ipv4) {
      info.source = wire::IpAddress::ipv4(0x0A000001);
      info.destination = wire::IpAddress::ipv4(0x0A000002);
    } else {
      info.source.bytes[0] = info.destination.bytes[0] = 0xFD;
      info.destination.bytes[15] = 2;
    }
    const auto block = pcapng_packet({.time_ns = 0x1'0000'0002, .info = info, .payload = payload, .comment = "why"});
    expect_blocks(block, 1);
    EXPECT_EQ(word_at(block, 12), 1u);
    EXPECT_EQ(word_at(block, 16), 2u);
    const std::size_t ip_size = ipv4 ? 20 : 40;
    ASSERT_EQ(word_at(block, 20), 14 + ip_size + 8 + payload.size());
    const Bytes frame = Bytes(block).subspan(28, word_at(block, 20));
    EXPECT_EQ(load_be16(&frame[12]), ipv4 ? 0x0800 : 0x86DD);
    const Bytes ip = frame.subspan(14);
    const Bytes udp = ip.subspan(ip_size);
    if (ipv4) {
      EXPECT_EQ(folded_sum(ip.first(20), 0), 0xFFFF);
      EXPECT_EQ(ip[8], 17);
    } else {
      EXPECT_EQ(ip[7], 17);
    }
    const Bytes addresses = ipv4 ? ip.subspan(12, 8) : ip.subspan(8, 32);
    const auto pseudo = std::uint32_t{folded_sum(addresses, 0)} + 17 + static_cast<std::uint32_t>(udp.size());
    EXPECT_EQ(folded_sum(udp, pseudo), 0xFFFF);
    EXPECT_EQ(load_be16(&udp[0]), 0xC001);
    EXPECT_EQ(load_be16(&udp[2]), 4791);
    EXPECT_EQ(udp[11], 0xFF);
    const std::string text(block.begin(), block.end());
    EXPECT_NE(text.find("why"), std::string::npos);
  }
}

// A file with a datagram of each family.
std::vector<std::uint8_t> a_file(Bytes payload) {
  auto file = pcapng_header("a test");
  wire::DatagramInfo info{.source = wire::IpAddress::ipv4(0x0A000001),
                          .destination = wire::IpAddress::ipv4(0x0A000002),
                          .source_port = 0xC001,
                          .traffic_class = 0x20,
                          .hop_limit = 17};
  const auto append = [&](const CapturedDatagram& datagram) {
    const auto block = pcapng_packet(datagram);
    file.insert(file.end(), block.begin(), block.end());
  };
  append({.time_ns = 0x1'0000'0002, .info = info, .payload = payload, .sent = true, .comment = "why"});
  info.source = info.destination = {};
  info.source.bytes[0] = info.destination.bytes[0] = 0xFD;
  info.destination.bytes[15] = 2;
  append({.time_ns = 7, .info = info, .payload = payload});
  return file;
}

TEST(Pcapng, AFileIsReadAsItWasWritten) {
  const std::array<std::uint8_t, 281> payload{1, 2, 3, 0xFF};
  const auto file = a_file(payload);
  ASSERT_TRUE(is_pcapng(file));
  int number = 0;
  const auto read = read_pcapng(file, [&](const CapturedDatagram& datagram) {
    const bool first = number++ == 0;
    EXPECT_EQ(datagram.time_ns, first ? 0x1'0000'0002 : 7);
    EXPECT_EQ(datagram.sent, first);
    EXPECT_EQ(datagram.comment, first ? "why" : "");
    EXPECT_EQ(datagram.info.source.is_ipv4(), first);
    EXPECT_EQ(datagram.info.destination.bytes[15], 2);
    EXPECT_EQ(datagram.info.source_port, 0xC001);
    EXPECT_EQ(datagram.info.destination_port, 4791);
    EXPECT_EQ(datagram.info.traffic_class, 0x20);
    EXPECT_EQ(datagram.info.hop_limit, 17);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), datagram.payload.begin(), datagram.payload.end()));
  });
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(number, 2);
}

TEST(Pcapng, AFileOfAnyLengthAndWithAnyByteChangedIsReadOrRefused) {
  const std::array<std::uint8_t, 20> payload{};
  const auto file = a_file(payload);
  std::size_t refused = 0;
  for (std::size_t size = 0; size < file.size(); ++size) {
    // In memory of its own, so that a sanitizer sees what is read behind it.
    const std::vector<std::uint8_t> part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    refused += read_pcapng(part, [](const CapturedDatagram&) {}) ? 0 : 1;
  }
  EXPECT_GE(refused + 3, file.size());  // whole between blocks
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (const int change : {1, 4, 0x80, 0xFF}) {
      auto damaged = file;
      damaged[i] ^= static_cast<std::uint8_t>(change);
      std::size_t bytes = 0;
      (void)read_pcapng(damaged, [&](const CapturedDatagram& datagram) {
        for (const std::uint8_t byte : datagram.payload) bytes += byte;
        bytes += datagram.comment.size();
      });
    }
  }
  EXPECT_FALSE(is_pcapng(Bytes(file).first(11)));
}

}  // namespace
}  // namespace ucm::net
