// Packets from somebody who means harm: they may end the connection they belong to, never more.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "pair.h"
#include "roce/packet.h"
#include "wire/icrc.h"

namespace ucm::roce::test {
namespace {

using wire::Opcode;

class HostileTest : public testing::Test {
 protected:
  void SetUp() override { pair.connect(); }

  wire::DatagramInfo info() const {
    return {.source = pair.a.host->address, .destination = pair.b.host->address, .source_port = 0xC001};
  }
  // A packet to b, sealed.
  template <class... Headers>
  std::vector<std::uint8_t> seal(const wire::DatagramInfo& from, wire::Bth bth, std::size_t payload_size,
                                 const Headers&... headers) {
    std::array<std::uint8_t, kPacketSizeMax> buffer{};
    PacketWriter writer(buffer);
    bth.pad_count = pad_of(payload_size);
    writer.add(bth);
    (writer.add(headers), ...);
    writer.payload(payload_size);
    const std::size_t size = writer.size();
    wire::store_icrc(MutableBytes(buffer).subspan(size), wire::icrc(from, Bytes(buffer).first(size)));
    return {buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(size + wire::kIcrcSize)};
  }
  wire::Bth bth(Opcode opcode, std::uint32_t psn) {
    return {.opcode = opcode, .destination_qpn = pair.b.qpn, .ack_request = true, .psn = psn};
  }
  void deliver(const std::vector<std::uint8_t>& packet) {
    pair.b.engine().on_packet(pair.network.now(), info(), packet);
  }
  const Counters& counters() { return pair.b.engine().counters(); }
  std::uint32_t psn() const { return pair.options.first_psn; }

  Pair pair;
};

TEST_F(HostileTest, OnlyThePeerIsHeard) {
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 100)}));
  wire::DatagramInfo stranger = info();
  stranger.source = wire::IpAddress::ipv4(0x0A000003);
  pair.b.engine().on_packet(0, stranger, seal(stranger, bth(Opcode::kRcSendOnly, psn()), 10));
  EXPECT_EQ(counters().wrong_source, 1u);
  EXPECT_TRUE(pair.b.poll_recv().empty());
  deliver(seal(info(), bth(Opcode::kRcSendOnly, psn()), 10));
  EXPECT_EQ(pair.b.poll_recv().size(), 1u);
}

TEST_F(HostileTest, EachKindOfBadPacketIsCounted) {
  deliver({});
  deliver(std::vector<std::uint8_t>(15));
  std::vector<std::uint8_t> damaged = seal(info(), bth(Opcode::kRcSendOnly, psn()), 10);
  damaged[20] ^= 1;
  deliver(damaged);
  EXPECT_EQ(counters().icrc_errors, 3u);
  deliver(seal(info(), bth(static_cast<Opcode>(0x3F), psn()), 0));
  deliver(seal(info(), bth(Opcode::kRcWriteOnly, psn()), 4));
  EXPECT_EQ(counters().malformed, 2u) << "unknown opcode, missing header";
  wire::Bth other = bth(Opcode::kRcSendOnly, psn());
  other.destination_qpn = 0x999;
  deliver(seal(info(), other, 0));
  deliver(seal(info(), bth(Opcode::kUdSendOnly, psn()), 0, wire::Deth{}));
  EXPECT_EQ(counters().unknown_qp, 2u) << "no such QP, wrong type";
  other = bth(Opcode::kRcSendOnly, psn());
  other.pkey = 0x1234;
  deliver(seal(info(), other, 0));
  EXPECT_EQ(counters().pkey_violations, 1u);
  EXPECT_EQ(pair.b.state(), QpState::kRts);
}

TEST_F(HostileTest, WrongSegmentationEndsTheConnectionOnly) {
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 100'000)}));
  deliver(seal(info(), bth(Opcode::kRcSendFirst, psn()), 1023));  // a first packet fills the path MTU
  EXPECT_EQ(pair.b.state(), QpState::kErr);
  pair.run_until([] { return true; });
  EXPECT_EQ(pair.b.count_events(EventType::kQpRequestError), 1u);
}

TEST_F(HostileTest, AWriteCannotLeaveItsRange) {
  const wire::Reth reth{.virtual_address = pair.b.address(0), .rkey = pair.b.keys.rkey, .dma_length = 1024 + 10};
  deliver(seal(info(), bth(Opcode::kRcWriteFirst, psn()), 1024, reth));
  deliver(seal(info(), bth(Opcode::kRcWriteMiddle, psn() + 1), 1024));
  EXPECT_EQ(pair.b.state(), QpState::kErr);
}

TEST_F(HostileTest, AnswersToWhatWasNeverAskedAreIgnored) {
  ASSERT_TRUE(pair.send(pair.b, pair.request(SendOpcode::kWrite, pair.a, 0), {pair.b.sge(0, 100)}));
  pair.network.filter = [](const wire::DatagramInfo&, Bytes) { return false; };
  pair.run_until([] { return true; });  // the request leaves and is lost
  deliver(seal(info(), bth(Opcode::kRcAck, psn() + 5), 0, wire::Aeth{.syndrome = wire::kSyndromeAck}));
  deliver(seal(info(), bth(Opcode::kRcReadResponseOnly, psn()), 8, wire::Aeth{.syndrome = wire::kSyndromeAck}));
  deliver(seal(info(), bth(Opcode::kRcAtomicAck, psn()), 0, wire::Aeth{}, wire::AtomicAckEth{}));
  deliver(seal(info(), bth(Opcode::kRcAck, psn()), 0, wire::Aeth{.syndrome = 0xFF}));
  EXPECT_EQ(counters().malformed, 4u);
  EXPECT_TRUE(pair.b.poll_send().empty());
  deliver(seal(info(), bth(Opcode::kRcAck, psn()), 0, wire::Aeth{.syndrome = wire::kSyndromeAck}));
  EXPECT_EQ(pair.b.poll_send().size(), 1u);
}

TEST_F(HostileTest, AReadAnswerOfTheWrongLengthEndsTheConnection) {
  pair.network.filter = [](const wire::DatagramInfo&, Bytes) { return false; };
  ASSERT_TRUE(pair.send(pair.b, pair.request(SendOpcode::kRead, pair.a, 0), {pair.b.sge(0, 100)}));
  pair.run_until([] { return true; });
  deliver(seal(info(), bth(Opcode::kRcReadResponseOnly, psn()), 101, wire::Aeth{.syndrome = wire::kSyndromeAck}));
  const std::vector<Completion> sent = pair.b.poll_send();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, CompletionStatus::kBadResponse);
}

// A READ repeated while it is being answered starts its answer again, as one that begins there.
TEST_F(HostileTest, ARepeatedReadIsAnsweredFromItsStart) {
  const wire::Reth reth{.virtual_address = pair.b.address(0), .rkey = pair.b.keys.rkey, .dma_length = 3 * 1024};
  const auto request = seal(info(), bth(Opcode::kRcReadRequest, psn()), 0, reth);
  const auto next = [&] {
    std::array<std::uint8_t, kPacketSizeMax> out;
    wire::DatagramInfo to;
    return pair.b.engine().poll_packet(pair.network.now(), 0xC001, to, out) == 0 ? Opcode{}
                                                                                 : wire::Bth::parse(out)->opcode;
  };
  deliver(request);
  EXPECT_EQ(next(), Opcode::kRcReadResponseFirst);
  EXPECT_EQ(next(), Opcode::kRcReadResponseMiddle);
  const wire::Reth rest{.virtual_address = pair.b.address(1024), .rkey = pair.b.keys.rkey, .dma_length = 2 * 1024};
  deliver(seal(info(), bth(Opcode::kRcReadRequest, psn() + 1), 0, rest));
  EXPECT_EQ(next(), Opcode::kRcReadResponseFirst);
  EXPECT_EQ(next(), Opcode::kRcReadResponseLast);
  deliver(request);
  EXPECT_EQ(next(), Opcode::kRcReadResponseFirst) << "also when the answer had left";
}

// A flood of requests that each deserve an answer may not pile up answers without bound.
TEST_F(HostileTest, AFloodOfRequestsHasBoundedAnswers) {
  const wire::Reth reth{.virtual_address = pair.b.address(0), .rkey = pair.b.keys.rkey, .dma_length = 8};
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    deliver(seal(info(), bth(Opcode::kRcReadRequest, (psn() + i) & wire::kMask24), 0, reth));
    deliver(seal(info(), bth(Opcode::kRcSendOnly, psn()), 0));
  }
  std::size_t answers = 0;
  std::array<std::uint8_t, kPacketSizeMax> out;
  wire::DatagramInfo to;
  while (pair.b.engine().poll_packet(pair.network.now(), 0xC001, to, out) != 0) ++answers;
  EXPECT_LT(answers, 400u);
  EXPECT_GT(answers, 100u);
}

// Random bytes with a right ICRC, most of them aimed at the QP: nothing may break, and memory outside the region and
// other QPs stay as they were.
TEST(Garbage, NeverTouchesWhatItMayNot) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Pair pair(seed, {}, {.first_psn = 100, .memory_size = 16 * 1024});
    pair.connect();
    Random random(seed);
    std::vector<std::uint8_t> guarded(8192, 0x5A);
    const MrKeys keys = *pair.b.engine().reg_mr(
        {.pd = pair.b.pd, .address = guarded.data() + 4096, .length = 1024, .iova = 0x1000, .access = kAllAccess});
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(pair.recv(pair.b, 1, {{0x1000, 1024, keys.lkey}}));
      ASSERT_TRUE(pair.send(pair.b,
                            pair.request(random.chance(1, 2) ? SendOpcode::kRead : SendOpcode::kWrite, pair.a, 0),
                            {{0x1000, 1024, keys.lkey}}));
    }
    pair.network.filter = [](const wire::DatagramInfo&, Bytes) { return false; };
    for (int i = 0; i < 200; ++i) {
      std::vector<std::uint8_t> packet(16 + random.below(1100));
      for (std::uint8_t& byte : packet) byte = static_cast<std::uint8_t>(random.next());
      wire::Bth bth{.opcode = static_cast<Opcode>(random.below(0x20)),
                    .pad_count = static_cast<std::uint8_t>(random.below(4)),
                    .destination_qpn = pair.b.qpn,
                    .ack_request = random.chance(1, 2),
                    .psn = static_cast<std::uint32_t>(98 + random.below(30))};
      bth.emit(packet);
      if (packet.size() >= 44 && random.chance(3, 4)) {
        wire::Reth{.virtual_address = 0x1000 + random.below(1100),
                   .rkey = keys.rkey,
                   .dma_length = static_cast<std::uint32_t>(random.below(1100))}
            .emit(MutableBytes(packet).subspan(wire::Bth::kSize));
      }
      packet.resize(packet.size() / 4 * 4);
      const wire::DatagramInfo info{.source = pair.a.host->address, .destination = pair.b.host->address};
      const std::size_t size = packet.size() - wire::kIcrcSize;
      wire::store_icrc(MutableBytes(packet).subspan(size), wire::icrc(info, Bytes(packet).first(size)));
      pair.b.engine().on_packet(pair.network.now(), info, packet);
      pair.run_until([] { return false; }, static_cast<TimeNs>(random.below(kNanosecondsPerMillisecond)));
    }
    EXPECT_TRUE(std::all_of(guarded.begin(), guarded.begin() + 4096, [](std::uint8_t b) { return b == 0x5A; }));
    EXPECT_TRUE(std::all_of(guarded.begin() + 5120, guarded.end(), [](std::uint8_t b) { return b == 0x5A; }));
  }
}

}  // namespace
}  // namespace ucm::roce::test
