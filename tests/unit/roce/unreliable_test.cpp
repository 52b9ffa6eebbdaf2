// UC queue pairs: messages that arrive whole are executed, anything else costs its message and nothing more.
// IBTA 9.8.2.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "pair.h"
#include "roce/packet.h"

namespace ucm::roce::test {
namespace {

constexpr std::uint32_t kMtu = 1024;

class UnreliableTest : public testing::Test {
 protected:
  void SetUp() override { pair.connect(); }

  void settle() {
    pair.run_until([] { return false; }, kNanosecondsPerSecond);
  }
  // Loses the packets at these places, counted from now.
  void lose(std::vector<std::uint64_t> places) {
    const std::uint64_t begin = seen_;
    pair.network.filter = [this, begin, places](const wire::DatagramInfo&, Bytes) {
      return std::ranges::find(places, seen_++ - begin) == places.end();
    };
  }
  Result<void> post(SendOpcode opcode, std::size_t from, std::uint32_t length, std::size_t to = 0) {
    SendRequest request = pair.request(opcode, pair.b, to);
    request.immediate = 0x01020304;
    return pair.send(pair.a, request, {pair.a.sge(from, length)});
  }
  bool same(std::size_t from, std::size_t to, std::size_t length) {
    return std::memcmp(pair.a.memory() + from, pair.b.memory() + to, length) == 0;
  }

  Pair pair{1, {}, {.type = QpType::kUc}};
  std::uint64_t seen_ = 0;
};

TEST_F(UnreliableTest, EveryOperationMovesItsBytesWithoutAnAnswer) {
  fill(pair.a, 0, 5000, 1);
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(10'000, 6000)}));
  ASSERT_TRUE(pair.recv(pair.b, 2, {pair.b.sge(20'000, 6000)}));
  ASSERT_TRUE(pair.recv(pair.b, 3));
  ASSERT_TRUE(post(SendOpcode::kSend, 0, 5000));
  ASSERT_TRUE(post(SendOpcode::kSendImm, 1, 17));
  ASSERT_TRUE(post(SendOpcode::kWrite, 2, 4096, 30'000));
  ASSERT_TRUE(post(SendOpcode::kWriteImm, 3, 2049, 40'000));
  settle();
  EXPECT_EQ(pair.network.packets_carried(), 5u + 1 + 4 + 3) << "nothing comes back";
  EXPECT_EQ(pair.a.poll_send().size(), 4u);
  const std::vector<Completion> received = pair.b.poll_recv();
  ASSERT_EQ(received.size(), 3u);
  EXPECT_EQ(received[0].byte_count, 5000u);
  EXPECT_TRUE(same(0, 10'000, 5000));
  EXPECT_EQ(received[1].immediate, 0x01020304u);
  EXPECT_TRUE(same(1, 20'000, 17));
  EXPECT_TRUE(same(2, 30'000, 4096));
  EXPECT_EQ(received[2].opcode, CompletionOpcode::kRecvWithImm);
  EXPECT_EQ(received[2].byte_count, 2049u);
  EXPECT_TRUE(same(3, 40'000, 2049));
}

TEST_F(UnreliableTest, ALostPacketCostsItsMessageOnlyAndTheReceiveServesTheNext) {
  for (std::uint64_t place = 0; place < 3; ++place) {
    fill(pair.a, 0, 9000, place);
    ASSERT_TRUE(pair.recv(pair.b, 7, {pair.b.sge(10'000, 3 * kMtu)}));
    lose({place});
    ASSERT_TRUE(post(SendOpcode::kSend, 0, 3 * kMtu));
    settle();
    EXPECT_EQ(pair.a.poll_send().size(), 1u) << "sent is done";
    EXPECT_TRUE(pair.b.poll_recv().empty()) << place;
    ASSERT_TRUE(post(SendOpcode::kSend, 4000, 2 * kMtu));
    settle();
    const std::vector<Completion> received = pair.b.poll_recv();
    ASSERT_EQ(received.size(), 1u) << place;
    EXPECT_EQ(pair.a.poll_send().size(), 1u);
    EXPECT_EQ(received[0].wr_id, 7u);
    EXPECT_EQ(received[0].byte_count, 2 * kMtu);
    EXPECT_TRUE(same(4000, 10'000, 2 * kMtu));
  }
  EXPECT_EQ(pair.b.state(), QpState::kRts);
}

TEST_F(UnreliableTest, AMessageWhoseEndIsLostDoesNotTakeTheNextOnesPackets) {
  fill(pair.a, 0, 9000, 3);
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(10'000, 9000)}));
  lose({1, 2});  // the end of the first message and the beginning of the second
  ASSERT_TRUE(post(SendOpcode::kSend, 0, 2 * kMtu));
  ASSERT_TRUE(post(SendOpcode::kSend, 0, 2 * kMtu));
  ASSERT_TRUE(post(SendOpcode::kSend, 3000, 100));
  settle();
  const std::vector<Completion> received = pair.b.poll_recv();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_count, 100u);
  EXPECT_TRUE(same(3000, 10'000, 100));
}

TEST_F(UnreliableTest, WhatCannotBeReceivedIsDroppedAndCounted) {
  ASSERT_TRUE(post(SendOpcode::kSend, 0, 10));
  settle();
  EXPECT_EQ(pair.b.engine().counters().no_receive, 1u) << "no receive is posted";
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 9)}));
  ASSERT_TRUE(post(SendOpcode::kSend, 0, 10));
  settle();
  EXPECT_EQ(pair.b.engine().counters().no_receive, 2u) << "too short a receive";
  ASSERT_TRUE(post(SendOpcode::kWrite, 0, 10, pair.b.memory_size()));
  settle();
  EXPECT_EQ(pair.b.engine().counters().access_errors, 1u) << "outside of the region";
  EXPECT_EQ(pair.b.state(), QpState::kRts);
  EXPECT_EQ(pair.b.host->events.size(), 0u);
  EXPECT_EQ(pair.a.poll_send().size(), 3u) << "the sender hears nothing of it";
  ASSERT_TRUE(post(SendOpcode::kSend, 0, 9));
  settle();
  EXPECT_EQ(pair.b.poll_recv().size(), 1u) << "and it goes on";
}

TEST_F(UnreliableTest, OpcodesOfAnotherServiceAreNotItsOwn) {
  Pair reliable{2};
  reliable.connect();
  reliable.network.filter = [this](const wire::DatagramInfo& info, Bytes payload) {
    pair.network.inject(info, payload);
    return false;
  };
  ASSERT_TRUE(reliable.send(reliable.a, reliable.request(SendOpcode::kSend, reliable.b, 0), {reliable.a.sge(0, 10)}));
  reliable.run_until([] { return false; }, kNanosecondsPerMillisecond);
  settle();
  EXPECT_EQ(pair.b.engine().counters().unknown_qp, 1u);
}

TEST_F(UnreliableTest, ReadsAndAtomicsCannotBePosted) {
  for (const SendOpcode opcode :
       {SendOpcode::kRead, SendOpcode::kFetchAdd, SendOpcode::kCompareSwap, SendOpcode::kSendInvalidate}) {
    const Result<void> posted = post(opcode, 0, 8);
    ASSERT_FALSE(posted);
    EXPECT_EQ(posted.error().code, EINVAL);
  }
}

TEST_F(UnreliableTest, ALocalErrorStopsTheSendQueueAndRtsStartsItAgain) {
  SendRequest bad = pair.request(SendOpcode::kSend, pair.b, 0);
  Sge wrong = pair.a.sge(0, 3000);
  wrong.lkey ^= 1;
  ASSERT_TRUE(pair.send(pair.a, bad, {wrong}));
  settle();
  const std::vector<Completion> failed = pair.a.poll_send();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status, CompletionStatus::kLocalProtection);
  EXPECT_EQ(pair.a.state(), QpState::kSqe);
  ASSERT_TRUE(post(SendOpcode::kSend, 0, 10));
  EXPECT_EQ(pair.a.poll_send().at(0).status, CompletionStatus::kFlushed);

  ASSERT_TRUE(pair.a.engine().modify_qp(pair.network.now(), pair.a.qpn, {.state = QpState::kRts}, kQpState));
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 5000)}));
  ASSERT_TRUE(post(SendOpcode::kSend, 0, 5000));
  settle();
  EXPECT_EQ(pair.b.poll_recv().size(), 1u);
}

TEST_F(UnreliableTest, TheFirstMessageTellsThatThePeerIsThere) {
  Pair fresh{3, {}, {.type = QpType::kUc}};
  ASSERT_TRUE(fresh.to_init(fresh.a));
  ASSERT_TRUE(fresh.to_rtr(fresh.a, fresh.b));
  ASSERT_TRUE(fresh.to_rts(fresh.a));
  ASSERT_TRUE(fresh.to_init(fresh.b));
  ASSERT_TRUE(fresh.to_rtr(fresh.b, fresh.a));
  ASSERT_TRUE(fresh.send(fresh.a, fresh.request(SendOpcode::kWrite, fresh.b, 0), {fresh.a.sge(0, 10)}));
  fresh.run_until([] { return false; }, kNanosecondsPerSecond);
  EXPECT_EQ(fresh.b.count_events(EventType::kQpEstablished), 1u);
}

TEST(UnreliableOnABadNetwork, WhatArrivesIsWhole) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Pair pair{seed, {.loss_percent = 10, .duplicate_percent = 5, .reorder_percent = 5}, {.type = QpType::kUc}};
    pair.connect();
    constexpr std::uint32_t kLength = 3000;
    std::size_t arrived = 0;
    for (int i = 0; i < 60; ++i) {
      fill(pair.a, 0, kLength, seed * 100 + static_cast<std::uint64_t>(i));
      if (pair.b.engine().query_qp(pair.b.qpn)->state != QpState::kRts) break;
      (void)pair.recv(pair.b, 1, {pair.b.sge(0, kLength)});
      ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, kLength)}));
      pair.network.run_for(kNanosecondsPerMillisecond);
      pair.a.poll_send();
      const std::vector<Completion> received = pair.b.poll_recv();
      arrived += received.size();
      if (received.empty()) continue;
      EXPECT_EQ(received[0].byte_count, kLength);
      EXPECT_EQ(std::memcmp(pair.a.memory(), pair.b.memory(), kLength), 0) << seed << ' ' << i;
    }
    EXPECT_GT(arrived, 10u) << seed;
    EXPECT_LT(arrived, 60u) << seed;
    EXPECT_EQ(pair.b.state(), QpState::kRts);
  }
}

}  // namespace
}  // namespace ucm::roce::test
