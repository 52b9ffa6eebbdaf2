// What a lossy, duplicating, reordering, corrupting network may not change: every operation happens once, in order,
// with the right bytes. And what it costs in (simulated) time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "pair.h"
#include "wire/headers.h"

namespace ucm::roce::test {
namespace {

constexpr std::size_t kSlotSize = 4096;  // bytes of memory per operation, on each side
constexpr std::size_t kSlots = 40;       // operations of a mixed run, per side
constexpr std::size_t kCounterAt = 0;    // slot 0 of the responder holds the counter that atomics add to
constexpr std::size_t kLocalBase = 256 * 1024;
constexpr std::uint64_t kAtomicIncrement = 1;

struct Operation {
  SendOpcode opcode;
  std::uint32_t length;
};

// A random series of operations of one side on the other, and what they must leave behind.
class Workload {
 public:
  Workload(Pair& pair, End& from, End& to, std::uint64_t seed) : pair_(pair), from_(from), to_(to), random_(seed) {
    constexpr SendOpcode kOpcodes[] = {SendOpcode::kSend,     SendOpcode::kSendImm, SendOpcode::kWrite,
                                       SendOpcode::kWriteImm, SendOpcode::kRead,    SendOpcode::kFetchAdd};
    for (std::size_t i = 1; i < kSlots; ++i) {
      const SendOpcode opcode = kOpcodes[random_.below(std::size(kOpcodes))];
      const auto length = static_cast<std::uint32_t>(random_.below(kSlotSize + 1));
      operations_.push_back({opcode, opcode == SendOpcode::kFetchAdd ? 8 : length});
    }
  }

  // The source of operation i is slot i of the local half (for a READ: of the remote half).
  void post() {
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& operation = operations_[i];
      const std::size_t slot = (i + 1) * kSlotSize;
      if (operation.opcode == SendOpcode::kRead) {
        fill(to_, slot, operation.length, i);
      } else {
        fill(from_, kLocalBase + slot, operation.length, i);
      }
      if (takes_receive(operation.opcode)) {
        ASSERT_TRUE(pair_.recv(to_, i, {to_.sge(slot, kSlotSize)}));
        ++receives_;
      }
      SendRequest request = pair_.request(operation.opcode, to_, slot);
      request.wr_id = i;
      request.immediate = static_cast<std::uint32_t>(i);
      if (operation.opcode == SendOpcode::kFetchAdd) {
        request.remote_address = to_.address(kCounterAt);
        request.compare_or_add = kAtomicIncrement;
      }
      ASSERT_TRUE(pair_.send(from_, request, {from_.sge(kLocalBase + slot, operation.length)}));
    }
  }

  bool done() {
    for (const Completion& completion : from_.poll_send()) sent_.push_back(completion);
    for (const Completion& completion : to_.poll_recv()) received_.push_back(completion);
    return sent_.size() >= operations_.size() && received_.size() >= receives_;
  }

  void verify() {
    ASSERT_EQ(sent_.size(), operations_.size());
    ASSERT_EQ(received_.size(), receives_);
    std::size_t next_receive = 0;
    std::uint64_t counter = 0;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& operation = operations_[i];
      const std::size_t slot = (i + 1) * kSlotSize;
      EXPECT_EQ(sent_[i].status, CompletionStatus::kSuccess) << i;
      EXPECT_EQ(sent_[i].wr_id, i);
      if (takes_receive(operation.opcode)) {
        const Completion& completion = received_[next_receive++];
        EXPECT_EQ(completion.wr_id, i);
        EXPECT_EQ(completion.byte_count, operation.length);
        EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
      }
      if (operation.opcode == SendOpcode::kFetchAdd) {
        std::uint64_t found = 0;
        std::memcpy(&found, from_.memory() + kLocalBase + slot, sizeof found);
        EXPECT_EQ(found, counter) << "atomic " << i << " was executed out of order or more than once";
        counter += kAtomicIncrement;
      } else {
        EXPECT_EQ(std::memcmp(from_.memory() + kLocalBase + slot, to_.memory() + slot, operation.length), 0) << i;
      }
    }
    std::uint64_t total = 0;
    std::memcpy(&total, to_.memory() + kCounterAt, sizeof total);
    EXPECT_EQ(total, counter);
  }

 private:
  static bool takes_receive(SendOpcode opcode) {
    return opcode == SendOpcode::kSend || opcode == SendOpcode::kSendImm || opcode == SendOpcode::kWriteImm;
  }

  Pair& pair_;
  End& from_;
  End& to_;
  Random random_;
  std::vector<Operation> operations_;
  std::size_t receives_ = 0;
  std::vector<Completion> sent_;
  std::vector<Completion> received_;
};

struct RunResult {
  std::uint64_t digest = 0;
  TimeNs duration = 0;
};

RunResult run_mixed(std::uint64_t seed, const Faults& faults, PairOptions options = {}) {
  options.memory_size = 512 * 1024;
  Pair pair(seed, faults, options);
  pair.connect();
  const TimeNs start = pair.network.now();
  Workload forward(pair, pair.a, pair.b, seed * 2 + 1);
  Workload backward(pair, pair.b, pair.a, seed * 2);
  const bool both_ways = !is_xrc(options.type);  // a pair of XRC is one direction
  forward.post();
  if (both_ways) backward.post();
  EXPECT_TRUE(pair.run_until(
      [&] {
        const bool one = forward.done();
        return (!both_ways || backward.done()) && one;
      },
      60 * kNanosecondsPerSecond));
  forward.verify();
  if (both_ways) backward.verify();
  return {pair.network.digest(), pair.network.now() - start};
}

class MixedRun : public testing::TestWithParam<std::uint32_t> {};

void run_many_mixed(QpType type, std::uint32_t loss_percent) {
  constexpr std::uint64_t kSeeds = 60;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Faults faults{.loss_percent = loss_percent,
                        .duplicate_percent = static_cast<std::uint32_t>(random.below(20)),
                        .reorder_percent = static_cast<std::uint32_t>(random.below(20)),
                        .corrupt_percent = static_cast<std::uint32_t>(random.below(4))};
    const PairOptions options{.type = type,
                              .path_mtu = static_cast<std::uint8_t>(1 + random.below(5)),
                              .timeout = static_cast<std::uint8_t>(random.below(2) * 20),
                              .max_rd_atomic = static_cast<std::uint8_t>(1 + random.below(4)),
                              .first_psn = random.next_u32() & wire::kMask24};
    run_mixed(seed, faults, options);
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(MixedRun, LeavesWhatAPerfectNetworkWould) { run_many_mixed(QpType::kRc, GetParam()); }
TEST_P(MixedRun, OfXrcDoesAsWell) { run_many_mixed(QpType::kXrcSend, GetParam()); }
INSTANTIATE_TEST_SUITE_P(LossPercent, MixedRun, testing::Values(0u, 5u, 10u, 20u));

TEST(Determinism, TheSameSeedGivesTheSamePacketsAtTheSameTimes) {
  const Faults faults{.loss_percent = 10, .duplicate_percent = 10, .reorder_percent = 10};
  const RunResult first = run_mixed(7, faults);
  EXPECT_EQ(first.digest, run_mixed(7, faults).digest);
  EXPECT_NE(first.digest, run_mixed(8, faults).digest);
}

TEST(Recovery, APerfectNetworkSeesNoRetransmission) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 200'000)}));
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kRead, pair.b, 0), {pair.a.sge(0, 200'000)}));
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 2).size(), 2u);
  EXPECT_EQ(pair.a.engine().counters().packets_retransmitted, 0u);
  EXPECT_EQ(pair.b.engine().counters().duplicates, 0u);
}

// The tail of a burst is lost: nothing behind it reports the loss, and the QP's own timeout is two seconds.
TEST(Recovery, ALostTailComesBackWithinMilliseconds) {
  for (const SendOpcode opcode : {SendOpcode::kWrite, SendOpcode::kRead, SendOpcode::kFetchAdd}) {
    Pair pair(1, {}, {.timeout = 19, .retry_count = 0});
    pair.connect();
    int packets = 0;
    pair.network.filter = [&](const wire::DatagramInfo&, Bytes) { return ++packets != 1; };
    const TimeNs start = pair.network.now();
    ASSERT_TRUE(pair.send(pair.a, pair.request(opcode, pair.b, 0), {pair.a.sge(8, 8)}));
    const std::vector<Completion> done = pair.wait(pair.a, pair.a.send_cq, 1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, CompletionStatus::kSuccess);
    EXPECT_LT(pair.network.now() - start, 30 * kNanosecondsPerMillisecond);
  }
}

TEST(Recovery, ALostPacketInTheMiddleComesBackWithoutATimer) {
  Pair pair;
  pair.connect();
  int packets = 0;
  int refusals = 0;
  pair.network.filter = [&](const wire::DatagramInfo& info, Bytes payload) {
    if (info.source == pair.b.host->address) refusals += payload[wire::Bth::kSize] == wire::kSyndromeNakSequence;
    return ++packets != 3;
  };
  const TimeNs start = pair.network.now();
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 10 * 1024)}));
  ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
  EXPECT_LT(pair.network.now() - start, kNanosecondsPerMillisecond);
  EXPECT_EQ(pair.b.engine().counters().out_of_sequence, 7u);
  EXPECT_EQ(refusals, 1) << "one NAK until the missing packet has come";
}

// Every response behind a lost one says that it is missing; one repetition is enough.
TEST(Recovery, ALostReadResponseIsAskedForOnce) {
  Pair pair;
  pair.connect();
  int packets = 0;
  pair.network.filter = [&](const wire::DatagramInfo&, Bytes) { return ++packets != 4; };
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kRead, pair.b, 0), {pair.a.sge(0, 20 * 1024)}));
  ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
  EXPECT_EQ(pair.a.engine().counters().packets_retransmitted, 1u);
}

struct RetryCase {
  std::uint8_t timeout;
  std::uint8_t retry_count;
  TimeNs ends;
};
class DeadPeer : public testing::TestWithParam<RetryCase> {};

TEST_P(DeadPeer, FailsTheSendAfterExactlyItsRetries) {
  const auto [timeout, retry_count, ends] = GetParam();
  Pair pair(1, {}, {.timeout = timeout, .retry_count = retry_count});
  pair.connect();
  pair.network.filter = [](const wire::DatagramInfo&, Bytes) { return false; };
  const TimeNs start = pair.network.now();
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 100)}));
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 100)}));
  const std::vector<Completion> done = pair.wait(pair.a, pair.a.send_cq, 2);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[0].status, CompletionStatus::kRetryExceeded);
  EXPECT_EQ(done[1].status, CompletionStatus::kFlushed);
  EXPECT_EQ(pair.network.now() - start, ends);
  EXPECT_EQ(pair.a.state(), QpState::kErr);
}
// Two seconds in all, within once and four times what is set.
constexpr TimeNs kInterval8 = TimeNs{4096} << 8;
constexpr TimeNs kInterval14 = TimeNs{4096} << 14;
constexpr TimeNs kInterval19 = TimeNs{4096} << 19;
INSTANTIATE_TEST_SUITE_P(Limits, DeadPeer,
                         testing::Values(RetryCase{8, 7, 4 * 8 * kInterval8}, RetryCase{14, 0, 4 * kInterval14},
                                         RetryCase{14, 7, 2 * kNanosecondsPerSecond},
                                         RetryCase{19, 3, 4 * kInterval19}));

TEST(Recovery, WithoutATimeoutASendSurvivesAnyOutage) {
  Pair pair(1, {}, {.timeout = 0});
  pair.connect();
  bool broken = true;
  pair.network.filter = [&](const wire::DatagramInfo&, Bytes) { return !broken; };
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 100)}));
  pair.network.run_for(3600 * kNanosecondsPerSecond);
  EXPECT_TRUE(pair.a.poll_send().empty());
  broken = false;
  const TimeNs repaired = pair.network.now();
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
  EXPECT_LE(pair.network.now() - repaired, 2 * kNanosecondsPerSecond);
}

TEST(Recovery, ProbesOfADeadPeerAreBounded) {
  Pair pair(1, {}, {.timeout = 31});
  pair.connect();
  pair.network.filter = [](const wire::DatagramInfo&, Bytes) { return false; };
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 100)}));
  pair.network.run_for(3600 * kNanosecondsPerSecond);
  EXPECT_GT(pair.network.packets_carried(), 10u);
  EXPECT_LT(pair.network.packets_carried(), 20u);
}

// ------------------------------------------------------------------------------------------------ receiver not ready

TEST(ReceiverNotReady, WaitsTheReceiversTimerAndGoesOn) {
  Pair pair(1, {.delay_ns = 1000}, {.rnr_retry = 7, .min_rnr_timer = 20});  // 10.24 ms
  pair.connect();
  fill(pair.a, 0, 3000, 5);
  int sequence_naks = 0;
  pair.network.filter = [&](const wire::DatagramInfo&, Bytes payload) {
    const bool acknowledges = wire::Bth::parse(payload)->opcode == wire::Opcode::kRcAck;
    sequence_naks += acknowledges && payload[wire::Bth::kSize] == wire::kSyndromeNakSequence;
    return true;
  };
  const TimeNs start = pair.network.now();
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 3000)}));
  pair.run_until([] { return false; }, 25 * kNanosecondsPerMillisecond);
  EXPECT_TRUE(pair.a.poll_send().empty());
  EXPECT_EQ(pair.b.engine().counters().no_receive, 3u);
  ASSERT_TRUE(pair.recv(pair.b, 5, {pair.b.sge(0, 4096)}));
  ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
  EXPECT_NEAR(static_cast<double>(pair.network.now() - start), 3 * 10.24e6, 50e3);
  EXPECT_EQ(sequence_naks, 0) << "what follows the refused packet asks for nothing";
  EXPECT_EQ(pair.b.poll_recv().size(), 1u);
  EXPECT_EQ(std::memcmp(pair.a.memory(), pair.b.memory(), 3000), 0);
}

TEST(ReceiverNotReady, GivesUpAfterExactlyItsRetries) {
  for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{6}}) {
    Pair pair(1, {}, {.rnr_retry = retries});
    pair.connect();
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 100)}));
    const std::vector<Completion> done = pair.wait(pair.a, pair.a.send_cq, 1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, CompletionStatus::kRnrRetryExceeded);
    EXPECT_EQ(pair.b.engine().counters().no_receive, retries + 1u);
  }
}

TEST(ReceiverNotReady, EachMessageHasAllItsRetries) {
  Pair pair(1, {}, {.rnr_retry = 1, .min_rnr_timer = 20});
  pair.connect();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 100)}));
    pair.run_until([] { return false; }, 5 * kNanosecondsPerMillisecond);
    ASSERT_TRUE(pair.recv(pair.b, 5, {pair.b.sge(0, 100)}));
    const std::vector<Completion> done = pair.wait(pair.a, pair.a.send_cq, 1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, CompletionStatus::kSuccess);
  }
  EXPECT_EQ(pair.b.engine().counters().no_receive, 5u);
}

TEST(ReceiverNotReady, SevenMeansForEver) {
  Pair pair(1, {}, {.timeout = 8, .retry_count = 0, .rnr_retry = 7, .min_rnr_timer = 12});
  pair.connect();
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWriteImm, pair.b, 0), {pair.a.sge(0, 2500)}));
  pair.run_until([] { return false; }, 10 * kNanosecondsPerSecond);
  EXPECT_TRUE(pair.a.poll_send().empty());
  EXPECT_GT(pair.b.engine().counters().no_receive, 10'000u);
  ASSERT_TRUE(pair.recv(pair.b, 5));
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
}

// ------------------------------------------------------------------------------------------------ limits on the wire

struct Opened {
  std::uint32_t requests = 0;  // READs and atomics sent
  std::uint32_t answers = 0;   // last response packets sent
};

TEST(Limits, NoMoreReadsAndAtomicsAreOpenThanThePeerAllows) {
  for (const std::uint8_t depth : {std::uint8_t{1}, std::uint8_t{3}}) {
    Pair pair(1, {}, {.max_rd_atomic = depth});
    pair.connect();
    Opened opened;
    std::uint32_t open_max = 0;
    pair.network.filter = [&](const wire::DatagramInfo&, Bytes payload) {
      using wire::Opcode;
      const Opcode opcode = wire::Bth::parse(payload)->opcode;
      opened.requests += opcode == Opcode::kRcReadRequest || opcode == Opcode::kRcFetchAdd;
      opened.answers += opcode == Opcode::kRcReadResponseOnly || opcode == Opcode::kRcReadResponseLast ||
                        opcode == Opcode::kRcAtomicAck;
      open_max = std::max(open_max, opened.requests - opened.answers);
      return true;
    };
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kRead, pair.b, 0), {pair.a.sge(0, 3000)}));
      ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kFetchAdd, pair.b, 0), {pair.a.sge(0, 8)}));
    }
    EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 20).size(), 20u);
    EXPECT_EQ(open_max, depth);
  }
}

TEST(Limits, AtMost128PacketsAreUnacknowledged) {
  Pair pair(1, {.delay_ns = 10 * kNanosecondsPerMillisecond}, {.path_mtu = 1});
  pair.connect();
  std::int64_t sent = 0;
  std::int64_t acknowledged = 0;
  std::int64_t most = 0;
  int unasked = 0;
  int most_unasked = 0;
  pair.network.filter = [&](const wire::DatagramInfo& info, Bytes payload) {
    const wire::Bth bth = *wire::Bth::parse(payload);
    if (info.source == pair.a.host->address) {
      unasked = bth.ack_request ? 0 : unasked + 1;
      most_unasked = std::max(most_unasked, unasked);
    }
    const std::int64_t position = (bth.psn - pair.options.first_psn) & wire::kMask24;
    if (info.source == pair.a.host->address) {
      sent = std::max(sent, position + 1);
    } else {
      acknowledged = std::max(acknowledged, position + 1);
    }
    most = std::max(most, sent - acknowledged);
    return true;
  };
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 200'000)}));
  }
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 20).size(), 20u);
  EXPECT_LE(most, 128);
  EXPECT_GT(most, 100);
  EXPECT_LT(most_unasked, 64) << "Linux expects to be asked for an acknowledgement at least every 64 packets";
}

TEST(Limits, TheResponsesOfReadsFitTheWindowToo) {
  Pair pair(1, {.delay_ns = 10 * kNanosecondsPerMillisecond}, {.path_mtu = 1});
  pair.connect();
  std::int64_t asked = 0;
  std::int64_t answered = 0;
  std::int64_t most = 0;
  pair.network.filter = [&](const wire::DatagramInfo& info, Bytes payload) {
    if (info.source == pair.a.host->address) {
      const std::uint32_t length = wire::Reth::parse(payload.subspan(wire::Bth::kSize))->dma_length;
      asked += (length + 255) / 256;
    } else {
      ++answered;
    }
    most = std::max(most, asked - answered);
    return true;
  };
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kRead, pair.b, 0), {pair.a.sge(0, 100'000)}));
  }
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 10).size(), 10u);
  EXPECT_LE(most, 128);
  EXPECT_GT(most, 64);
}

TEST(Fence, HoldsBackWhatFollowsARead) {
  Pair pair;
  pair.connect();
  std::vector<wire::Opcode> order;
  pair.network.filter = [&](const wire::DatagramInfo&, Bytes payload) {
    order.push_back(wire::Bth::parse(payload)->opcode);
    return true;
  };
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kRead, pair.b, 0), {pair.a.sge(0, 100)}));
  SendRequest fenced = pair.request(SendOpcode::kWrite, pair.b, 0);
  fenced.fence = true;
  ASSERT_TRUE(pair.send(pair.a, fenced, {pair.a.sge(0, 100)}));
  ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 2).size(), 2u);
  const std::vector<wire::Opcode> expected{wire::Opcode::kRcReadRequest, wire::Opcode::kRcReadResponseOnly,
                                           wire::Opcode::kRcWriteOnly, wire::Opcode::kRcAck};
  EXPECT_EQ(order, expected);
}

TEST(Fairness, ASmallMessageDoesNotWaitForABulkTransferOfAnotherQp) {
  Pair pair(1, {}, {.memory_size = 1024 * 1024});
  pair.connect();
  // A second pair of QPs between the same hosts.
  End c = pair.a;
  End d = pair.b;
  pair.open(c, *pair.a.host, 0x33);
  pair.open(d, *pair.b.host, 0x44);
  for (End* end : {&c, &d}) {
    ASSERT_TRUE(pair.to_init(*end));
    ASSERT_TRUE(pair.to_rtr(*end, end == &c ? d : c));
    ASSERT_TRUE(pair.to_rts(*end));
  }
  std::size_t before_small = 0;
  bool small_seen = false;
  pair.network.filter = [&](const wire::DatagramInfo&, Bytes payload) {
    small_seen = small_seen || wire::Bth::parse(payload)->destination_qpn == d.qpn;
    if (!small_seen) ++before_small;
    return true;
  };
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 1'000'000)}));
  ASSERT_TRUE(pair.send(c, pair.request(SendOpcode::kWrite, d, 0), {c.sge(0, 10)}));
  ASSERT_EQ(pair.wait(c, c.send_cq, 1).size(), 1u);
  EXPECT_LE(before_small, 2u);
}

}  // namespace
}  // namespace ucm::roce::test
