// XRC: a queue pair that only sends, one that only receives, and shared receive queues that requests name themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "pair.h"
#include "roce/packet.h"

namespace ucm::roce::test {
namespace {

constexpr std::uint32_t kMtu = 1024;

class XrcTest : public testing::Test {
 protected:
  void SetUp() override { pair.connect(); }

  // Another SRQ at b, with a domain, a completion queue and memory of its own.
  struct Queue {
    PdId pd{};
    CqId cq{};
    SrqId srq{};
    std::uint32_t number = 0;
    std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(8192);
    MrKeys keys;
    Sge sge(std::uint32_t length) { return {reinterpret_cast<std::uintptr_t>(bytes.data()), length, keys.lkey}; }
  };
  std::unique_ptr<Queue> open_queue(XrcdId xrcd) {
    Engine& engine = pair.b.engine();
    auto queue = std::make_unique<Queue>();
    queue->pd = *engine.alloc_pd();
    queue->cq = *engine.create_cq(64, 0);
    queue->srq = *engine.create_srq(
        {.pd = queue->pd, .wr_max = 8, .sge_max = 1, .xrc = SrqParams::Xrc{.xrcd = xrcd, .cq = queue->cq}, .user = 77});
    queue->number = *engine.srq_number(queue->srq);
    const auto address = reinterpret_cast<std::uintptr_t>(queue->bytes.data());
    queue->keys = *engine.reg_mr({.pd = queue->pd,
                                  .address = queue->bytes.data(),
                                  .length = queue->bytes.size(),
                                  .iova = address,
                                  .access = kAllAccess});
    return queue;
  }
  void post_receive(Queue& queue, std::uint64_t wr_id, std::uint32_t length) {
    const Sge sge = queue.sge(length);
    ASSERT_TRUE(
        pair.b.engine().post_srq_recv(pair.network.now(), queue.srq, {.wr_id = wr_id, .sges = std::span(&sge, 1)}));
  }
  Result<void> send_to(std::uint32_t srq_number, std::uint32_t length, SendOpcode opcode = SendOpcode::kSend) {
    SendRequest request = pair.request(opcode, pair.b, 0);
    request.remote_srq = srq_number;
    return pair.send(pair.a, request, {pair.a.sge(0, length)});
  }
  CompletionStatus next_send() {
    const std::vector<Completion> completions = pair.wait(pair.a, pair.a.send_cq, 1);
    EXPECT_EQ(completions.size(), 1u);
    return completions.empty() ? CompletionStatus::kGeneral : completions[0].status;
  }

  Pair pair{1, {}, {.type = QpType::kXrcSend}};
};

TEST_F(XrcTest, EveryOperationDoesWhatItDoesOverRc) {
  fill(pair.a, 0, 5000, 1);
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(10'000, 6000)}));
  ASSERT_TRUE(pair.recv(pair.b, 2));
  ASSERT_TRUE(send_to(pair.b.srq_number, 5000, SendOpcode::kSendImm));
  SendRequest write = pair.request(SendOpcode::kWriteImm, pair.b, 20'000);
  ASSERT_TRUE(pair.send(pair.a, write, {pair.a.sge(0, 3000)}));
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kRead, pair.b, 20'000), {pair.a.sge(30'000, 3000)}));
  SendRequest add = pair.request(SendOpcode::kFetchAdd, pair.b, 40'000);
  add.compare_or_add = 5;
  ASSERT_TRUE(pair.send(pair.a, add, {pair.a.sge(40'000, 8)}));
  const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 4);
  ASSERT_EQ(sent.size(), 4u);
  for (const Completion& completion : sent) EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
  const std::vector<Completion> received = pair.b.poll_recv();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].byte_count, 5000u);
  EXPECT_TRUE(received[0].has_immediate);
  EXPECT_EQ(received[0].qpn, pair.b.qpn) << "the receiving QP's";
  EXPECT_EQ(received[0].source_qpn, pair.a.qpn);
  EXPECT_EQ(received[1].opcode, CompletionOpcode::kRecvWithImm);
  EXPECT_EQ(std::memcmp(pair.b.memory() + 10'000, pair.a.memory(), 5000), 0);
  EXPECT_EQ(std::memcmp(pair.b.memory() + 20'000, pair.a.memory(), 3000), 0);
  EXPECT_EQ(std::memcmp(pair.a.memory() + 30'000, pair.a.memory(), 3000), 0);
  EXPECT_EQ(pair.b.storage[40'000 / 8], 5u);
}

TEST_F(XrcTest, EveryRequestNamesItsQueueAndNoAnswerDoes) {
  std::size_t requests = 0;
  std::size_t answers = 0;
  pair.network.filter = [&](const wire::DatagramInfo&, Bytes payload) {
    const auto packet = parse_packet(payload.first(payload.size() - wire::kIcrcSize));
    EXPECT_TRUE(packet);
    if (!packet) return true;
    EXPECT_EQ(wire::service_of(packet->bth.opcode), wire::Service::kXrc);
    if (is_response(packet->traits.kind)) {
      ++answers;
    } else {
      ++requests;
      EXPECT_EQ(packet->xrc.srq_number, pair.b.srq_number);
    }
    return true;
  };
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 4 * kMtu)}));
  ASSERT_TRUE(send_to(pair.b.srq_number, 4 * kMtu));
  ASSERT_TRUE(send_to(pair.b.srq_number, 2 * kMtu, SendOpcode::kRead));
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 2).size(), 2u);
  EXPECT_EQ(requests, 5u);
  EXPECT_GE(answers, 3u);
}

// IBTA A14: opcode, then the number right behind the BTH and in front of everything else.
TEST_F(XrcTest, PacketsLookAsTheSpecificationSays) {
  std::vector<std::vector<std::uint8_t>> seen;
  pair.network.filter = [&](const wire::DatagramInfo&, Bytes payload) {
    seen.emplace_back(payload.begin(), payload.end());
    return true;
  };
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 64)}));
  SendRequest request = pair.request(SendOpcode::kWriteImm, pair.b, 0x20);
  request.remote_address = 0x7000'0000'0020;
  request.immediate = 0x04030201;  // as it lies in memory
  ASSERT_TRUE(pair.send(pair.a, request, {pair.a.sge(0, 4)}));
  EXPECT_EQ(next_send(), CompletionStatus::kSuccess);
  ASSERT_EQ(seen.size(), 2u);
  const std::vector<std::uint8_t>& sent = seen[0];
  ASSERT_EQ(sent.size(), 12u + 4 + 16 + 4 + 4 + 4);
  EXPECT_EQ(sent[0], 0xAB) << "RDMA WRITE Only with Immediate";
  EXPECT_EQ(load_be32(&sent[12]), pair.b.srq_number);
  EXPECT_EQ(load_be64(&sent[16]), 0x7000'0000'0020u);
  EXPECT_EQ(load_be32(&sent[24]), pair.b.keys.rkey);
  EXPECT_EQ(load_be32(&sent[28]), 4u);
  EXPECT_EQ(load_be32(&sent[32]), 0x01020304u);
  const std::vector<std::uint8_t>& answered = seen[1];
  ASSERT_EQ(answered.size(), 12u + 4 + 4);
  EXPECT_EQ(answered[0], 0xB1) << "Acknowledge";
  EXPECT_EQ(load_be24(&answered[5]), pair.a.qpn);
}

TEST_F(XrcTest, OneQueuePairFeedsEverySharedQueueOfItsDomain) {
  const auto second = open_queue(*pair.b.xrcd);
  fill(pair.a, 0, 3000, 1);
  post_receive(*second, 22, 4000);
  ASSERT_TRUE(pair.recv(pair.b, 11, {pair.b.sge(0, 4000)}));
  ASSERT_TRUE(send_to(second->number, 3000));
  ASSERT_TRUE(send_to(pair.b.srq_number, 100));
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 2).size(), 2u);
  const std::vector<Completion> other = pair.b.poll(second->cq);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].wr_id, 22u);
  EXPECT_EQ(other[0].byte_count, 3000u);
  EXPECT_EQ(std::memcmp(second->bytes.data(), pair.a.memory(), 3000), 0);
  const std::vector<Completion> own = pair.b.poll_recv();
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0].wr_id, 11u);
}

TEST_F(XrcTest, AnEmptySharedQueueMakesTheSenderWait) {
  ASSERT_TRUE(send_to(pair.b.srq_number, 10));
  pair.network.run_for(10 * kNanosecondsPerMillisecond);
  EXPECT_TRUE(pair.a.poll_send().empty());
  EXPECT_GE(pair.b.engine().counters().no_receive, 1u);
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 10)}));
  EXPECT_EQ(next_send(), CompletionStatus::kSuccess);
}

TEST_F(XrcTest, ASharedQueueOfAnotherDomainIsRefused) {
  const auto foreign = open_queue(*pair.b.engine().alloc_xrcd());
  post_receive(*foreign, 1, 100);
  ASSERT_TRUE(send_to(foreign->number, 10));
  EXPECT_EQ(next_send(), CompletionStatus::kRemoteAccess);
  EXPECT_EQ(pair.b.count_events(EventType::kQpAccessError), 1u);
  EXPECT_TRUE(pair.b.poll(foreign->cq).empty());
}

TEST_F(XrcTest, ASharedQueueThatIsNotThereIsRefused) {
  ASSERT_TRUE(send_to(pair.b.srq_number + 1, 10, SendOpcode::kWrite));
  EXPECT_EQ(next_send(), CompletionStatus::kRemoteAccess);
}

TEST_F(XrcTest, MemoryIsThatOfTheSharedQueuesDomain) {
  const auto second = open_queue(*pair.b.xrcd);
  SendRequest write = pair.request(SendOpcode::kWrite, pair.b, 0);
  write.remote_srq = second->number;
  ASSERT_TRUE(pair.send(pair.a, write, {pair.a.sge(0, 10)}));
  EXPECT_EQ(next_send(), CompletionStatus::kRemoteAccess) << "the key is of the first queue's domain";
}

TEST_F(XrcTest, ASharedQueueDestroyedDuringAMessageEndsTheConnectionOnly) {
  auto second = open_queue(*pair.b.xrcd);
  post_receive(*second, 1, 4 * kMtu);
  std::size_t packets = 0;
  pair.network.filter = [&](const wire::DatagramInfo& info, Bytes) {
    if (info.destination == pair.b.host->address && ++packets == 2) {
      EXPECT_TRUE(pair.b.engine().destroy_srq(second->srq));
    }
    return true;
  };
  ASSERT_TRUE(send_to(second->number, 4 * kMtu));
  EXPECT_EQ(next_send(), CompletionStatus::kRemoteAccess);
  EXPECT_TRUE(pair.b.poll(second->cq).empty());
  EXPECT_TRUE(pair.b.engine().destroy_cq(second->cq));
}

TEST_F(XrcTest, ASharedQueueDestroyedDuringAReadEndsTheConnectionOnly) {
  auto second = open_queue(*pair.b.xrcd);
  std::size_t answers = 0;
  pair.network.filter = [&](const wire::DatagramInfo& info, Bytes) {
    if (info.destination == pair.a.host->address && ++answers == 2) {
      EXPECT_TRUE(pair.b.engine().destroy_srq(second->srq));
    }
    return true;
  };
  SendRequest read = pair.request(SendOpcode::kRead, pair.b, 0);
  read.remote_srq = second->number;
  read.remote_address = reinterpret_cast<std::uintptr_t>(second->bytes.data());
  read.rkey = second->keys.rkey;
  ASSERT_TRUE(pair.send(pair.a, read, {pair.a.sge(0, 6 * kMtu)}));
  EXPECT_EQ(next_send(), CompletionStatus::kRemoteAccess);
}

TEST_F(XrcTest, ItsCompletionsStayWhenTheReceivingQueuePairGoes) {
  ASSERT_TRUE(pair.recv(pair.b, 5, {pair.b.sge(0, 10)}));
  ASSERT_TRUE(send_to(pair.b.srq_number, 10));
  EXPECT_EQ(next_send(), CompletionStatus::kSuccess);
  ASSERT_TRUE(pair.b.engine().destroy_qp(pair.network.now(), pair.b.qpn));
  EXPECT_EQ(pair.b.poll_recv().size(), 1u);
}

TEST_F(XrcTest, EachDirectionRefusesTheOthersCalls) {
  const Sge sge = pair.a.sge(0, 8);
  EXPECT_EQ(pair.a.engine().post_recv(0, pair.a.qpn, {.sges = std::span(&sge, 1)}).error().code, EINVAL);
  EXPECT_EQ(pair.b.engine().post_recv(0, pair.b.qpn, {.sges = std::span(&sge, 1)}).error().code, EINVAL);
  EXPECT_EQ(pair.send(pair.b, pair.request(SendOpcode::kSend, pair.a, 0)).error().code, EINVAL);
  EXPECT_EQ(send_to(1u << 24, 8).error().code, EINVAL) << "a number has 24 bits";
}

TEST_F(XrcTest, EachDirectionIgnoresTheOthersPackets) {
  std::vector<std::pair<wire::DatagramInfo, std::vector<std::uint8_t>>> seen;
  pair.network.filter = [&](const wire::DatagramInfo& info, Bytes payload) {
    seen.emplace_back(info, std::vector<std::uint8_t>(payload.begin(), payload.end()));
    return true;
  };
  ASSERT_TRUE(send_to(pair.b.srq_number, 8, SendOpcode::kWrite));
  EXPECT_EQ(next_send(), CompletionStatus::kSuccess);
  ASSERT_EQ(seen.size(), 2u);
  pair.network.filter = nullptr;
  // What each has sent comes back to it.
  for (auto& [info, payload] : seen) {
    std::swap(info.source, info.destination);
    const bool request = info.destination == pair.a.host->address;
    store_be24(&payload[5], request ? pair.a.qpn : pair.b.qpn);
    const std::size_t size = payload.size() - wire::kIcrcSize;
    wire::store_icrc(MutableBytes(payload).subspan(size), wire::icrc(info, Bytes(payload).first(size)));
    End& end = request ? pair.a : pair.b;
    const std::uint64_t before = end.engine().counters().unknown_qp;
    pair.network.inject(info, payload);
    pair.network.run_for(kNanosecondsPerMillisecond);
    EXPECT_EQ(end.engine().counters().unknown_qp, before + 1);
  }
}

TEST_F(XrcTest, WhatIsInUseCannotBeDestroyed) {
  Engine& engine = pair.b.engine();
  EXPECT_EQ(engine.dealloc_xrcd(*pair.b.xrcd).error().code, EBUSY);
  EXPECT_EQ(engine.destroy_cq(pair.b.recv_cq).error().code, EBUSY);
  ASSERT_TRUE(engine.destroy_srq(*pair.b.srq)) << "the receiving QP has no claim on it";
  ASSERT_TRUE(engine.destroy_cq(pair.b.recv_cq));
  EXPECT_EQ(engine.dealloc_xrcd(*pair.b.xrcd).error().code, EBUSY) << "the receiving QP";
  ASSERT_TRUE(engine.destroy_qp(pair.network.now(), pair.b.qpn));
  ASSERT_TRUE(engine.dealloc_xrcd(*pair.b.xrcd));
  EXPECT_EQ(engine.dealloc_xrcd(*pair.b.xrcd).error().code, EINVAL);
}

TEST_F(XrcTest, SharedQueuesOfTheTwoKindsDoNotMix) {
  Engine& engine = pair.b.engine();
  const PdId pd = pair.b.pd;
  const SrqId plain = *engine.create_srq({.pd = pd, .wr_max = 1});
  EXPECT_EQ(engine.srq_number(plain).error().code, EINVAL);
  QpParams rc{.qpn = 0x99, .pd = pd, .send_cq = pair.b.send_cq, .recv_cq = pair.b.recv_cq, .srq = *pair.b.srq};
  EXPECT_EQ(engine.create_qp(rc).error().code, EINVAL);
  QpParams target{.qpn = 0x98, .type = QpType::kXrcRecv, .xrcd = XrcdId{12345}};
  EXPECT_EQ(engine.create_qp(target).error().code, EINVAL);
  EXPECT_EQ(
      engine.create_srq({.pd = pd, .wr_max = 1, .xrc = SrqParams::Xrc{.xrcd = XrcdId{12345}, .cq = {}}}).error().code,
      EINVAL);
}

TEST_F(XrcTest, ASharedQueueSaysWhenItRunsLow) {
  ASSERT_TRUE(pair.b.engine().set_srq_limit(*pair.b.srq, 1));
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 10)}));
  ASSERT_TRUE(send_to(pair.b.srq_number, 10));
  EXPECT_EQ(next_send(), CompletionStatus::kSuccess);
  EXPECT_EQ(pair.b.count_events(EventType::kSrqLimit), 1u);
}

}  // namespace
}  // namespace ucm::roce::test
