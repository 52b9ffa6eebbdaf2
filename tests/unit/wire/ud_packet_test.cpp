#include "wire/ud_packet.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/random_bytes.h"

namespace ucm::wire {
namespace {

using test::random_bytes;

const DatagramInfo kInfo{
    .source = IpAddress::ipv4(0x0a000001), .destination = IpAddress::ipv4(0x0a000002), .source_port = 0xC001};

TEST(UdPacket, EveryPayloadSizeComesBackWithoutItsPad) {
  Random random(1);
  for (std::size_t size = 0; size < 40; ++size) {
    for (const bool has_immediate : {false, true}) {
      const auto payload = random_bytes(random, size);
      UdPacket sent{.bth = {.solicited_event = true, .destination_qpn = 0x123, .psn = 77},
                    .deth = {.qkey = 0x11111111, .source_qpn = 0x456},
                    .payload = payload};
      if (has_immediate) sent.immediate = ImmDt{random.next_u32()};
      std::vector<std::uint8_t> out(ud_packet_size(size, has_immediate));
      ASSERT_EQ(emit_ud_packet(kInfo, sent, out), out.size());
      ASSERT_EQ(out.size() % 4, 0u);
      ASSERT_EQ(verify_icrc(kInfo, out), IcrcCheck::kGood);

      const auto received = parse_ud_packet(out);
      ASSERT_TRUE(received);
      EXPECT_TRUE(received->bth.solicited_event);
      EXPECT_EQ(received->bth.destination_qpn, 0x123u);
      EXPECT_EQ(received->bth.psn, 77u);
      EXPECT_EQ(received->deth.qkey, 0x11111111u);
      EXPECT_EQ(received->deth.source_qpn, 0x456u);
      EXPECT_EQ(received->immediate.has_value(), has_immediate);
      if (has_immediate) {
        EXPECT_EQ(received->immediate->immediate, sent.immediate->immediate);
      }
      EXPECT_EQ(std::vector<std::uint8_t>(received->payload.begin(), received->payload.end()), payload);
    }
  }
}

class GsiPacket : public testing::Test {
 protected:
  void SetUp() override {
    Random random(2);
    mad_ = random_bytes(random, kMadSize);
    ASSERT_EQ(emit_gsi_packet(kInfo, 5, std::span<const std::uint8_t, kMadSize>(mad_), packet_), kGsiPacketSize);
  }
  std::vector<std::uint8_t> mad_;
  std::vector<std::uint8_t> packet_ = std::vector<std::uint8_t>(kGsiPacketSize);
};

TEST_F(GsiPacket, LooksLikeALinuxPeers) {
  // Linux: the transport headers of an rxe peer's CM packets, but for the PSN
  const std::vector<std::uint8_t> expected = {0x64, 0x00, 0xff, 0xff, 0,    0,    0, 1, 0x80, 0,
                                              0,    5,    0x80, 0x01, 0x00, 0x00, 0, 0, 0,    1};
  EXPECT_EQ(std::vector<std::uint8_t>(packet_.begin(), packet_.begin() + 20), expected);
  EXPECT_EQ(packet_.size(), 280u);
  EXPECT_EQ(verify_icrc(kInfo, packet_), IcrcCheck::kGood);
}

TEST_F(GsiPacket, ParsesBackToTheMad) {
  const auto mad = parse_gsi_packet(packet_);
  ASSERT_TRUE(mad);
  EXPECT_EQ(std::vector<std::uint8_t>(mad->begin(), mad->end()), mad_);
}

TEST_F(GsiPacket, ALimitedMemberOfThePartitionIsHeard) {
  store_be16(&packet_[2], 0x7FFF);
  EXPECT_TRUE(parse_gsi_packet(packet_));
  store_be16(&packet_[2], 0x1234);
  EXPECT_FALSE(parse_gsi_packet(packet_));
}

TEST_F(GsiPacket, AnotherQueuePairKeyOpcodeOrSizeIsNone) {
  const auto original = packet_;
  packet_[7] = 2;  // destination QP
  EXPECT_FALSE(parse_gsi_packet(packet_));
  packet_ = original;
  packet_[15] = 1;  // Q_Key
  EXPECT_FALSE(parse_gsi_packet(packet_));
  packet_ = original;
  packet_[0] = 0x04;  // RC SEND ONLY
  EXPECT_FALSE(parse_gsi_packet(packet_));
  packet_ = original;
  packet_[1] = 0x10;  // one byte of the MAD declared as pad
  EXPECT_FALSE(parse_gsi_packet(packet_));
  packet_ = original;
  packet_.resize(packet_.size() + 4);
  EXPECT_FALSE(parse_gsi_packet(packet_));
}

TEST_F(GsiPacket, EveryTruncatedLengthIsRefused) {
  for (std::size_t size = 0; size < packet_.size(); ++size) {
    EXPECT_FALSE(parse_gsi_packet(Bytes(packet_).first(size))) << size;
  }
}

TEST(UdPacket, APadLargerThanThePacketIsRefused) {
  std::vector<std::uint8_t> out(ud_packet_size(0, false));
  emit_ud_packet(kInfo, UdPacket{}, out);
  ASSERT_TRUE(parse_ud_packet(out));
  out[1] = 0x30;
  EXPECT_FALSE(parse_ud_packet(out));
}

}  // namespace
}  // namespace ucm::wire
