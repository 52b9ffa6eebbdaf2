// Steady traffic allocates nothing.
#include <gtest/gtest.h>

#include <array>

#include "pair.h"
#include "unit/cm/allocation_counter.h"

namespace ucm::roce::test {
namespace {

// Carries packets between both engines until neither has any, without the simulated network, which does allocate.
void exchange(Pair& pair, TimeNs now) {
  std::array<std::uint8_t, kPacketSizeMax> packet;
  wire::DatagramInfo info;
  for (bool more = true; more;) {
    more = false;
    for (End* end : {&pair.a, &pair.b}) {
      End& peer = end == &pair.a ? pair.b : pair.a;
      while (const std::size_t size = end->engine().poll_packet(now, 0xC001, info, packet)) {
        peer.engine().on_packet(now, info, Bytes(packet).first(size));
        more = true;
      }
    }
  }
}

void transfer(Pair& pair, SendOpcode opcode, TimeNs now) {
  const std::uint32_t length = opcode == SendOpcode::kFetchAdd ? 8 : 20'000;
  const Sge from = pair.a.sge(0, length);
  const Sge into = pair.b.sge(0, length);
  SendRequest request = pair.request(opcode, pair.b, 0);
  request.sges = {&from, 1};
  if (opcode == SendOpcode::kSend) {
    ASSERT_TRUE(pair.b.engine().post_recv(now, pair.b.qpn, {.wr_id = 1, .sges = {&into, 1}}));
  }
  ASSERT_TRUE(pair.a.engine().post_send(now, pair.a.qpn, request));
  exchange(pair, now);
  Completion completion;
  ASSERT_EQ(*pair.a.engine().poll_cq(pair.a.send_cq, {&completion, 1}), 1u);
  ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
  ASSERT_EQ(*pair.b.engine().poll_cq(pair.b.recv_cq, {&completion, 1}), opcode == SendOpcode::kSend ? 1u : 0u);
}

TEST(Allocations, SteadyTrafficMakesNone) {
  Pair pair;
  pair.connect();
  constexpr SendOpcode kOpcodes[] = {SendOpcode::kSend, SendOpcode::kWrite, SendOpcode::kRead, SendOpcode::kFetchAdd};
  TimeNs now = pair.network.now();
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      for (const SendOpcode opcode : kOpcodes) transfer(pair, opcode, ++now);
    }
  };
  rounds(300);  // queues reach their sizes
  const std::size_t before = ucm::test::allocations();
  rounds(300);
  EXPECT_EQ(ucm::test::allocations(), before);
}

}  // namespace
}  // namespace ucm::roce::test
