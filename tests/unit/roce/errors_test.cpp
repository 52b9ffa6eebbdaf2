// What is wrong is refused, and both ends learn of it with the right status. IBTA 10.10.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "pair.h"

namespace ucm::roce::test {
namespace {

// Sends one request that must fail and checks what each end is told.
struct Expected {
  CompletionStatus sender = CompletionStatus::kSuccess;
  std::optional<EventType> receiver_event;
  std::optional<CompletionStatus> receiver;
};

void expect_failure(Pair& pair, const SendRequest& request, const std::vector<Sge>& sges, const Expected& expected) {
  ASSERT_TRUE(pair.send(pair.a, request, sges));
  const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 1, kNanosecondsPerSecond);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, expected.sender);
  EXPECT_EQ(pair.a.state(), QpState::kErr);
  if (expected.receiver_event) {
    EXPECT_EQ(pair.b.count_events(*expected.receiver_event), 1u);
    EXPECT_EQ(pair.b.state(), QpState::kErr);
  }
  const std::vector<Completion> received = pair.b.poll_recv();
  ASSERT_EQ(received.size(), expected.receiver ? 1u : 0u);
  if (expected.receiver) {
    EXPECT_EQ(received[0].status, *expected.receiver);
    EXPECT_EQ(pair.b.state(), QpState::kErr);
  }
}

constexpr Expected kRemoteAccessError{
    .sender = CompletionStatus::kRemoteAccess, .receiver_event = EventType::kQpAccessError, .receiver = std::nullopt};
constexpr Expected kInvalidRequest{.sender = CompletionStatus::kRemoteInvalidRequest,
                                   .receiver_event = EventType::kQpRequestError,
                                   .receiver = std::nullopt};

const std::vector<SendOpcode> kRemoteOpcodes{SendOpcode::kWrite, SendOpcode::kRead, SendOpcode::kFetchAdd,
                                             SendOpcode::kCompareSwap};

TEST(RemoteAccess, AnUnknownKeyIsRefused) {
  for (const SendOpcode opcode : kRemoteOpcodes) {
    Pair pair;
    pair.connect();
    SendRequest request = pair.request(opcode, pair.b, 0);
    request.rkey ^= 1;
    expect_failure(pair, request, {pair.a.sge(0, 8)}, kRemoteAccessError);
  }
}

TEST(RemoteAccess, ARangeBeyondTheRegionIsRefused) {
  for (const SendOpcode opcode : kRemoteOpcodes) {
    Pair pair;
    pair.connect();
    const SendRequest request = pair.request(opcode, pair.b, pair.b.memory_size());
    expect_failure(pair, request, {pair.a.sge(0, 8)}, kRemoteAccessError);
  }
  Pair pair;
  pair.connect();
  const SendRequest request = pair.request(SendOpcode::kWrite, pair.b, pair.b.memory_size() - 4096);
  expect_failure(pair, request, {pair.a.sge(0, 4097)}, kRemoteAccessError);
}

TEST(RemoteAccess, ARangeThatWrapsIsRefused) {
  Pair pair;
  pair.connect();
  SendRequest request = pair.request(SendOpcode::kWrite, pair.b, 0);
  request.remote_address = UINT64_MAX - 3;
  expect_failure(pair, request, {pair.a.sge(0, 8)}, kRemoteAccessError);
}

TEST(RemoteAccess, ARightTheRegionLacksIsRefused) {
  const std::uint32_t rights[] = {kAccessRemoteWrite, kAccessRemoteRead, kAccessRemoteAtomic, kAccessRemoteAtomic};
  for (std::size_t i = 0; i < kRemoteOpcodes.size(); ++i) {
    Pair pair;
    pair.connect();
    const MrKeys keys = *pair.b.engine().reg_mr({.pd = pair.b.pd,
                                                 .address = pair.b.memory(),
                                                 .length = 4096,
                                                 .iova = pair.b.address(),
                                                 .access = kAllAccess & ~rights[i]});
    SendRequest request = pair.request(kRemoteOpcodes[i], pair.b, 0);
    request.rkey = keys.rkey;
    expect_failure(pair, request, {pair.a.sge(0, 8)}, kRemoteAccessError);
  }
}

TEST(RemoteAccess, ARegionWithNewRightsOrPlaceKeepsItsKey) {
  Pair pair;
  pair.connect();
  fill(pair.a, 0, 8, 1);
  const auto change = [&](std::size_t offset, std::uint32_t access) {
    return pair.b.engine().rereg_mr(pair.b.keys.lkey, {.pd = pair.b.pd,
                                                       .address = pair.b.memory() + offset,
                                                       .length = 4096,
                                                       .iova = pair.b.address(),
                                                       .access = access});
  };
  ASSERT_TRUE(change(8192, kAccessLocalWrite | kAccessRemoteWrite));
  EXPECT_FALSE(change(0, kAccessRemoteWrite)) << "refused, and nothing changes";
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 8)}));
  ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).at(0).status, CompletionStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.a.memory(), pair.b.memory() + 8192, 8), 0);
  ASSERT_TRUE(change(8192, kAccessLocalWrite));
  expect_failure(pair, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 8)}, kRemoteAccessError);
}

TEST(RemoteAccess, ARegionOfAnotherDomainIsRefused) {
  Pair pair;
  pair.connect();
  const MrKeys keys = *pair.b.engine().reg_mr({.pd = *pair.b.engine().alloc_pd(),
                                               .address = pair.b.memory(),
                                               .length = 4096,
                                               .iova = pair.b.address(),
                                               .access = kAllAccess});
  SendRequest request = pair.request(SendOpcode::kWrite, pair.b, 0);
  request.rkey = keys.rkey;
  expect_failure(pair, request, {pair.a.sge(0, 8)}, kRemoteAccessError);
}

TEST(RemoteAccess, ARegionDeregisteredDuringAReadIsRefused) {
  Pair pair;
  pair.connect();
  int responses = 0;
  pair.network.filter = [&](const wire::DatagramInfo& info, Bytes) {
    if (info.source == pair.b.host->address && ++responses == 40) {
      EXPECT_TRUE(pair.b.engine().dereg_mr(pair.b.keys.lkey));
    }
    return true;
  };
  expect_failure(pair, pair.request(SendOpcode::kRead, pair.b, 0), {pair.a.sge(0, 200'000)}, kRemoteAccessError);
}

TEST(RemoteAccess, AnInvalidatedRegionIsRefused) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.recv(pair.b, 1));
  SendRequest invalidate = pair.request(SendOpcode::kSendInvalidate, pair.b, 0);
  invalidate.immediate = pair.b.keys.rkey;
  ASSERT_TRUE(pair.send(pair.a, invalidate));
  ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
  ASSERT_EQ(pair.b.poll_recv().size(), 1u);
  expect_failure(pair, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 8)}, kRemoteAccessError);
}

TEST(RemoteAccess, ARightTheQueuePairLacksIsAnInvalidRequest) {
  const std::uint32_t rights[] = {kAccessRemoteWrite, kAccessRemoteRead, kAccessRemoteAtomic, kAccessRemoteAtomic};
  for (std::size_t i = 0; i < kRemoteOpcodes.size(); ++i) {
    Pair pair(1, {}, {.access = kAllAccess & ~rights[i]});
    pair.connect();
    expect_failure(pair, pair.request(kRemoteOpcodes[i], pair.b, 0), {pair.a.sge(0, 8)}, kInvalidRequest);
  }
}

TEST(RemoteAccess, ReadsAndAtomicsWithoutResponderResourcesAreInvalidRequests) {
  for (const SendOpcode opcode : {SendOpcode::kRead, SendOpcode::kFetchAdd}) {
    Pair pair(1, {}, {.max_dest_rd_atomic = 0});
    pair.connect();
    expect_failure(pair, pair.request(opcode, pair.b, 0), {pair.a.sge(0, 8)}, kInvalidRequest);
  }
}

TEST(RemoteAccess, AMisalignedAtomicIsAnInvalidRequest) {
  Pair pair;
  pair.connect();
  expect_failure(pair, pair.request(SendOpcode::kFetchAdd, pair.b, 4), {pair.a.sge(0, 8)}, kInvalidRequest);
}

TEST(RemoteAccess, AZeroLengthAccessNeedsNoKey) {
  for (const SendOpcode opcode : {SendOpcode::kWrite, SendOpcode::kRead}) {
    Pair pair;
    pair.connect();
    SendRequest request = pair.request(opcode, pair.b, 0);
    request.rkey = 0;
    request.remote_address = 1;
    ASSERT_TRUE(pair.send(pair.a, request));
    const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 1);
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].status, CompletionStatus::kSuccess);
  }
}

TEST(RemoteAccess, ArrivedRequestsBeforeTheBadOneComplete) {
  Pair pair;
  pair.connect();
  SendRequest good = pair.request(SendOpcode::kRead, pair.b, 0);
  SendRequest bad = pair.request(SendOpcode::kWrite, pair.b, 0);
  bad.rkey ^= 1;
  ASSERT_TRUE(pair.send(pair.a, good, {pair.a.sge(0, 20'000)}));
  ASSERT_TRUE(pair.send(pair.a, bad, {pair.a.sge(0, 8)}));
  ASSERT_TRUE(pair.send(pair.a, good, {pair.a.sge(0, 8)}));
  const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 3);
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(sent[1].status, CompletionStatus::kRemoteAccess);
  EXPECT_EQ(sent[2].status, CompletionStatus::kFlushed);
}

// ------------------------------------------------------------------------------------------------ the receiver's fault

TEST(Receive, TooShortForTheMessage) {
  for (const std::uint32_t length : {11u, 5000u}) {
    Pair pair;
    pair.connect();
    ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, length - 1)}));
    expect_failure(pair, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, length)},
                   {.sender = CompletionStatus::kRemoteInvalidRequest,
                    .receiver_event = std::nullopt,
                    .receiver = CompletionStatus::kLocalLength});
    EXPECT_EQ(pair.b.memory()[length - 1], 0) << "written beyond the receive";
  }
}

TEST(Receive, WithoutTheRightToItsMemory) {
  Pair pair;
  pair.connect();
  Sge sge = pair.b.sge(0, 100);
  sge.lkey ^= 1;
  ASSERT_TRUE(pair.recv(pair.b, 1, {sge}));
  expect_failure(pair, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 100)},
                 {.sender = CompletionStatus::kRemoteOperation,
                  .receiver_event = std::nullopt,
                  .receiver = CompletionStatus::kLocalProtection});
}

// ------------------------------------------------------------------------------------------------ the sender's fault

TEST(LocalErrors, AWrongKeyFailsTheSendAfterItsPredecessorsSucceed) {
  for (const SendOpcode opcode : {SendOpcode::kWrite, SendOpcode::kRead}) {
    Pair pair;
    pair.connect();
    Sge bad = pair.a.sge(0, 100);
    bad.lkey ^= 1;
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 5000)}));
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kRead, pair.b, 0), {pair.a.sge(0, 5000)}));
    ASSERT_TRUE(pair.send(pair.a, pair.request(opcode, pair.b, 0), {bad}));
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 10)}));
    const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 4);
    ASSERT_EQ(sent.size(), 4u);
    EXPECT_EQ(sent[0].status, CompletionStatus::kSuccess);
    EXPECT_EQ(sent[1].status, CompletionStatus::kSuccess);
    EXPECT_EQ(sent[2].status, CompletionStatus::kLocalProtection);
    EXPECT_EQ(sent[3].status, CompletionStatus::kFlushed);
    EXPECT_EQ(pair.a.state(), QpState::kErr);
    EXPECT_EQ(pair.b.state(), QpState::kRts) << "the peer did nothing wrong";
  }
}

TEST(LocalErrors, ReadingIntoReadOnlyMemoryFails) {
  Pair pair;
  pair.connect();
  const MrKeys keys = *pair.a.engine().reg_mr(
      {.pd = pair.a.pd, .address = pair.a.memory(), .length = 4096, .iova = pair.a.address(), .access = 0});
  Sge sge = pair.a.sge(0, 100);
  sge.lkey = keys.lkey;
  expect_failure(
      pair, pair.request(SendOpcode::kRead, pair.b, 0), {sge},
      {.sender = CompletionStatus::kLocalProtection, .receiver_event = std::nullopt, .receiver = std::nullopt});
}

TEST(LocalErrors, LocalInvalidateWorksInOrderAndFailsOnAStrangeKey) {
  Pair pair;
  pair.connect();
  const MrKeys keys = *pair.a.engine().reg_mr({.pd = pair.a.pd,
                                               .address = pair.a.memory(),
                                               .length = 4096,
                                               .iova = pair.a.address(),
                                               .access = kAccessLocalWrite});
  Sge sge = pair.a.sge(0, 100);
  sge.lkey = keys.lkey;
  SendRequest invalidate{.wr_id = 2, .opcode = SendOpcode::kLocalInvalidate, .signaled = true, .immediate = keys.rkey};
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {sge}));
  ASSERT_TRUE(pair.send(pair.a, invalidate));
  ASSERT_TRUE(pair.send(pair.a, invalidate));
  const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 3);
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(sent[1].status, CompletionStatus::kSuccess);
  EXPECT_EQ(sent[1].opcode, CompletionOpcode::kLocalInvalidate);
  EXPECT_EQ(sent[2].status, CompletionStatus::kLocalQpOperation);
}

TEST(LocalErrors, EveryLocalInvalidateIsExecuted) {
  Pair pair;
  pair.connect();
  for (int i = 0; i < 20; ++i) {
    const MrKeys keys = *pair.a.engine().reg_mr(
        {.pd = pair.a.pd, .address = pair.a.memory(), .length = 64, .iova = 0x1000, .access = kAccessLocalWrite});
    ASSERT_TRUE(pair.send(
        pair.a, {.wr_id = 2, .opcode = SendOpcode::kLocalInvalidate, .signaled = true, .immediate = keys.rkey}));
    ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
    ASSERT_TRUE(pair.a.engine().dereg_mr(keys.lkey));
  }
  SendRequest again{.wr_id = 2, .opcode = SendOpcode::kLocalInvalidate, .immediate = 0x1234};
  expect_failure(
      pair, again, {},
      {.sender = CompletionStatus::kLocalQpOperation, .receiver_event = std::nullopt, .receiver = std::nullopt});
}

// The acknowledgement of a repeated WRITE arrives just when the local operation behind it is next in turn again.
TEST(LocalErrors, ALocalInvalidateDoneBeforeGoingBackIsNotDoneAgain) {
  Pair pair;
  pair.connect();
  const MrKeys keys = *pair.a.engine().reg_mr(
      {.pd = pair.a.pd, .address = pair.a.memory(), .length = 64, .iova = 0x1000, .access = kAccessLocalWrite});
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 10)}));
  ASSERT_TRUE(pair.send(
      pair.a, {.wr_id = 2, .opcode = SendOpcode::kLocalInvalidate, .signaled = true, .immediate = keys.rkey}));
  bool lossy = true;
  pair.network.filter = [&](const wire::DatagramInfo&, Bytes) { return !lossy; };
  pair.run_until([] { return false; }, kNanosecondsPerMillisecond);
  EXPECT_TRUE(pair.a.poll_send().empty()) << "completions keep their order";

  Engine& engine = pair.a.engine();
  const TimeNs later = pair.network.now() + kNanosecondsPerSecond / 20;
  engine.on_deadline(later);
  std::array<std::uint8_t, kPacketSizeMax> packet;
  wire::DatagramInfo info;
  const std::size_t size = engine.poll_packet(later, 0xC001, info, packet);
  ASSERT_GT(size, 0u);
  pair.b.engine().on_packet(later, info, Bytes(packet).first(size));
  const std::size_t answer = pair.b.engine().poll_packet(later, 0xC001, info, packet);
  engine.on_packet(later, info, Bytes(packet).first(answer));
  lossy = false;
  for (std::uint64_t i = 3; i < 9; ++i) {
    SendRequest request = pair.request(SendOpcode::kWrite, pair.b, 0);
    request.wr_id = i;
    ASSERT_TRUE(pair.send(pair.a, request, {pair.a.sge(0, 10)}));
  }
  const std::vector<Completion> done = pair.wait(pair.a, pair.a.send_cq, 8);
  ASSERT_EQ(done.size(), 8u);
  for (std::uint64_t i = 0; i < done.size(); ++i) {
    EXPECT_EQ(done[i].wr_id, i + 1);
    EXPECT_EQ(done[i].status, CompletionStatus::kSuccess);
  }
  EXPECT_EQ(engine.counters().packets_sent, 8u) << "the first WRITE twice, the others once";
}

TEST(LocalErrors, PostingWhatCannotBeIsRefused) {
  Pair pair;
  pair.connect();
  const auto code = [&](const SendRequest& request, const std::vector<Sge>& sges) {
    const Result<void> posted = pair.send(pair.a, request, sges);
    return posted ? 0 : posted.error().code;
  };
  SendRequest request = pair.request(SendOpcode::kSend, pair.b, 0);
  EXPECT_EQ(code(request, std::vector<Sge>(9, pair.a.sge(0, 1))), EINVAL);
  EXPECT_EQ(code(request, {{.address = 0, .length = 1u << 31, .lkey = 0}}), EINVAL);
  request.inline_data = true;
  std::vector<std::uint8_t> bytes(257);
  EXPECT_EQ(code(request, {{.address = reinterpret_cast<std::uintptr_t>(bytes.data()), .length = 257}}), EINVAL);
  EXPECT_EQ(code(pair.request(SendOpcode::kFetchAdd, pair.b, 0), {pair.a.sge(0, 4)}), EINVAL);
  for (std::uint32_t i = 0; i < pair.options.work_requests; ++i) {
    EXPECT_EQ(code(pair.request(SendOpcode::kWrite, pair.b, 0), {}), 0);
  }
  EXPECT_EQ(code(pair.request(SendOpcode::kWrite, pair.b, 0), {}), ENOMEM);
}

TEST(LocalErrors, InlineDataMayChangeAfterPosting) {
  Pair pair;
  pair.connect();
  std::vector<std::uint8_t> bytes(200, 7);
  SendRequest request = pair.request(SendOpcode::kWrite, pair.b, 0);
  request.inline_data = true;
  const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
  ASSERT_TRUE(pair.send(pair.a, request, {{.address = at, .length = 100}, {.address = at + 100, .length = 100}}));
  std::ranges::fill(bytes, std::uint8_t{9});
  ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
  EXPECT_EQ(pair.b.memory()[0], 7);
  EXPECT_EQ(pair.b.memory()[199], 7);
}

}  // namespace
}  // namespace ucm::roce::test
