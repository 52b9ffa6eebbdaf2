// Every packet a Linux peer sent: the ICRC is right and UCM writes the same bytes.
#include <gtest/gtest.h>

#include "support/reemit.h"
#include "unit/golden/captured.h"
#include "wire/icrc.h"

namespace ucm {
namespace {

using test::captured;
using test::roce_packet_in;
using wire::IcrcCheck;

struct Capture {
  const char* name;
  std::size_t roce_packets;
  std::size_t cm_messages;
  std::size_t damaged_packet;  // counted from 1; 0 when there is none
};

std::ostream& operator<<(std::ostream& out, const Capture& capture) { return out << capture.name; }

class Captured : public testing::TestWithParam<Capture> {
 protected:
  // Calls visit(number, packet) with every RoCEv2 packet, counted from 1, that was not damaged on purpose.
  template <class Visitor>
  void for_each_packet(Visitor visit) {
    const auto frames = captured(GetParam().name);
    std::size_t number = 0;
    for (const auto& frame : frames) {
      const auto packet = roce_packet_in(frame);
      if (!packet) continue;
      if (++number != GetParam().damaged_packet) visit(number, *packet);
    }
    EXPECT_EQ(number, GetParam().roce_packets);
  }
};

TEST_P(Captured, EveryIcrcIsRight) {
  for_each_packet([](std::size_t number, const test::RocePacket& packet) {
    EXPECT_TRUE(packet.has_plain_ip_header) << number;
    EXPECT_EQ(verify_icrc(packet.info, packet.payload), IcrcCheck::kGood) << number;
  });
}

TEST_P(Captured, TheIpv4IdentificationIsFoundFromTheIcrc) {
  for_each_packet([](std::size_t number, const test::RocePacket& packet) {
    if (!packet.info.destination.is_ipv4()) return;
    auto unknown_id = packet.info;
    unknown_id.ipv4_id = 0;
    const auto expected = packet.info.ipv4_id == 0 ? IcrcCheck::kGood : IcrcCheck::kSolvedId;
    EXPECT_EQ(verify_icrc(unknown_id, packet.payload), expected) << number;
    EXPECT_EQ(solve_ipv4_id(unknown_id, packet.payload), packet.info.ipv4_id) << number;
  });
}

TEST_P(Captured, ParsingAndEmittingGivesTheSameBytes) {
  for_each_packet([](std::size_t number, const test::RocePacket& packet) {
    const std::vector<std::uint8_t> original(packet.payload.begin(), packet.payload.end());
    EXPECT_EQ(test::reemit(packet.payload), original) << number;
  });
}

TEST_P(Captured, CmPacketsAreWhatUcmWouldSend) {
  std::size_t cm_messages = 0;
  for_each_packet([&](std::size_t number, const test::RocePacket& packet) {
    const auto mad = wire::parse_gsi_packet(packet.payload);
    if (!mad) return;
    ++cm_messages;
    std::vector<std::uint8_t> out(wire::kGsiPacketSize);
    wire::emit_gsi_packet(packet.info, wire::Bth::parse(packet.payload)->psn, *mad, out);
    EXPECT_EQ(out, std::vector<std::uint8_t>(packet.payload.begin(), packet.payload.end())) << number;
  });
  EXPECT_EQ(cm_messages, GetParam().cm_messages);
}

TEST_P(Captured, UdDataPacketsAreWhatUcmWouldSend) {
  for_each_packet([](std::size_t number, const test::RocePacket& packet) {
    const auto ud = wire::parse_ud_packet(packet.payload);
    if (!ud) return;
    std::vector<std::uint8_t> out(packet.payload.size());
    EXPECT_EQ(wire::emit_ud_packet(packet.info, *ud, out), out.size()) << number;
    EXPECT_EQ(out, std::vector<std::uint8_t>(packet.payload.begin(), packet.payload.end())) << number;
  });
}

INSTANTIATE_TEST_SUITE_P(Linux, Captured,
                         testing::Values(Capture{"full", 17, 5, 0}, Capture{"full6", 17, 5, 0},
                                         Capture{"killed", 5, 5, 0}, Capture{"mra", 19, 7, 0}, Capture{"psib", 9, 5, 0},
                                         Capture{"rej", 2, 2, 0}, Capture{"rep-retry", 17, 17, 0},
                                         Capture{"req", 16, 16, 0}, Capture{"sidr", 22, 2, 0},
                                         Capture{"sidr6", 4, 2, 0}, Capture{"sidrrej", 2, 2, 0},
                                         Capture{"talk", 5, 4, 3}));

TEST(DamagedCapture, TheDamagedPacketIsBadAndNoIdentificationMakesItRight) {
  const auto frames = captured("talk");
  ASSERT_EQ(frames.size(), 5u);
  const auto packet = roce_packet_in(frames[2]);
  ASSERT_TRUE(packet);
  EXPECT_EQ(verify_icrc(packet->info, packet->payload), IcrcCheck::kBad);
}

}  // namespace
}  // namespace ucm
