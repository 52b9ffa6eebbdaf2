// Every RC operation, at every size that matters, on a good and on a bad network.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "pair.h"

namespace ucm::roce::test {
namespace {

constexpr Faults kBadNetwork{.loss_percent = 10, .duplicate_percent = 5, .reorder_percent = 10, .corrupt_percent = 2};
constexpr std::uint32_t kMtu = 1024;
constexpr std::size_t kTarget = 128 * 1024;  // where in the peer's memory

struct Case {
  SendOpcode opcode;
  std::uint32_t length;
  bool bad_network;
};

class Transfer : public testing::TestWithParam<Case> {};

bool takes_receive(SendOpcode opcode) {
  return opcode == SendOpcode::kSend || opcode == SendOpcode::kSendImm || opcode == SendOpcode::kSendInvalidate ||
         opcode == SendOpcode::kWriteImm;
}

CompletionOpcode sender_opcode(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite:
    case SendOpcode::kWriteImm:
      return CompletionOpcode::kWrite;
    case SendOpcode::kRead:
      return CompletionOpcode::kRead;
    default:
      return CompletionOpcode::kSend;
  }
}

TEST_P(Transfer, ArrivesCompleteAndCompletesBothEnds) {
  const Case& parameters = GetParam();
  Pair pair(parameters.length + 7, parameters.bad_network ? kBadNetwork : Faults{});
  pair.connect();
  const bool reads = parameters.opcode == SendOpcode::kRead;
  End& source = reads ? pair.b : pair.a;
  End& sink = reads ? pair.a : pair.b;
  fill(source, 0, parameters.length, 42);
  const MrKeys spare = *pair.b.engine().reg_mr(
      {.pd = pair.b.pd, .address = pair.b.memory(), .length = 8, .iova = pair.b.address(), .access = kAllAccess});
  ASSERT_TRUE(pair.recv(pair.b, 77, {pair.b.sge(kTarget, parameters.length)}));

  SendRequest request = pair.request(parameters.opcode, pair.b, reads ? 0 : kTarget);
  request.immediate = parameters.opcode == SendOpcode::kSendInvalidate ? spare.rkey : 0x12345678;
  const std::uint32_t half = parameters.length / 2;
  const std::size_t local = reads ? kTarget : 0;
  ASSERT_TRUE(
      pair.send(pair.a, request, {pair.a.sge(local, half), pair.a.sge(local + half, parameters.length - half)}));

  const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 1);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(sent[0].wr_id, 1u);
  EXPECT_EQ(sent[0].opcode, sender_opcode(parameters.opcode));
  EXPECT_EQ(std::memcmp(source.memory(), sink.memory() + kTarget, parameters.length), 0);

  const std::vector<Completion> received = pair.b.poll_recv();
  ASSERT_EQ(received.size(), takes_receive(parameters.opcode) ? 1u : 0u);
  if (received.empty()) return;
  EXPECT_EQ(received[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(received[0].wr_id, 77u);
  EXPECT_EQ(received[0].byte_count, parameters.length);
  const bool immediate = parameters.opcode == SendOpcode::kSendImm || parameters.opcode == SendOpcode::kWriteImm;
  EXPECT_EQ(received[0].has_immediate, immediate);
  EXPECT_EQ(received[0].has_invalidated_rkey, parameters.opcode == SendOpcode::kSendInvalidate);
  if (immediate) {
    EXPECT_EQ(received[0].immediate, 0x12345678u);
  }
  if (received[0].has_invalidated_rkey) {
    EXPECT_EQ(received[0].immediate, spare.rkey);
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const SendOpcode opcode : {SendOpcode::kSend, SendOpcode::kSendImm, SendOpcode::kSendInvalidate,
                                  SendOpcode::kWrite, SendOpcode::kWriteImm, SendOpcode::kRead}) {
    for (const std::uint32_t length : {0u, 1u, kMtu - 1, kMtu, kMtu + 1, 10 * kMtu, 65536u, 65537u}) {
      for (const bool bad_network : {false, true}) cases.push_back({opcode, length, bad_network});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(EveryOperation, Transfer, testing::ValuesIn(all_cases()));

}  // namespace
}  // namespace ucm::roce::test
