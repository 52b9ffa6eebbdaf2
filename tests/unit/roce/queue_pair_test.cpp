// The state machine of a QP, what flushing leaves behind, and completion queues.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "pair.h"
#include "roce/qp_states.h"

namespace ucm::roce::test {
namespace {

constexpr QpState kAllStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                                  QpState::kSqd,   QpState::kSqe,  QpState::kErr};

constexpr std::uint32_t kRcToRtr =
    kQpAddress | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
constexpr std::uint32_t kRcToRts = kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic;

TEST(Transitions, OnlyThoseOfTheSpecificationExist) {
  const auto reachable = [](QpState from, QpState to) {
    for (const Transition& transition : kTransitions) {
      if (transition.from == from && transition.to == to) return true;
    }
    return to == QpState::kReset || to == QpState::kErr;
  };
  // One row per state we come from, in the order of kAllStates.
  constexpr const char* kExpected[] = {"RI....E", "RIT...E", "R..S..E", "R..SD.E", "R..SD.E", "R..S..E", "R.....E"};
  constexpr const char* kLetters = "RITSDQE";
  for (std::size_t from = 0; from < std::size(kAllStates); ++from) {
    std::string row;
    for (std::size_t to = 0; to < std::size(kAllStates); ++to) {
      row += reachable(kAllStates[from], kAllStates[to]) ? kLetters[to] : '.';
    }
    EXPECT_EQ(row, kExpected[from]);
  }
}

TEST(Transitions, NeedExactlyTheirAttributes) {
  const auto legal = [](QpState from, QpState to, std::uint32_t mask) {
    return transition_is_legal(QpType::kRc, from, to, mask);
  };
  EXPECT_TRUE(legal(QpState::kReset, QpState::kInit, kQpState | kQpAccess));
  EXPECT_FALSE(legal(QpState::kReset, QpState::kInit, kQpState));
  EXPECT_FALSE(legal(QpState::kReset, QpState::kInit, kQpState | kQpAccess | kQpSqPsn));
  EXPECT_TRUE(legal(QpState::kInit, QpState::kInit, kQpAccess));
  for (std::uint32_t bit = 1; bit <= kQpDestQpn; bit <<= 1) {
    if (bit == kQpState) continue;
    EXPECT_EQ(legal(QpState::kInit, QpState::kRtr, kRcToRtr ^ bit), bit == kQpAccess) << bit;
    EXPECT_EQ(legal(QpState::kRtr, QpState::kRts, kRcToRts ^ bit), bit == kQpAccess || bit == kQpMinRnrTimer) << bit;
    EXPECT_FALSE(legal(QpState::kRts, QpState::kErr, bit));
  }
  constexpr std::uint32_t kUcToRtr = kQpAddress | kQpPathMtu | kQpDestQpn | kQpRqPsn;
  EXPECT_TRUE(transition_is_legal(QpType::kUc, QpState::kInit, QpState::kRtr, kUcToRtr));
  EXPECT_FALSE(transition_is_legal(QpType::kUc, QpState::kInit, QpState::kRtr, kUcToRtr | kQpMinRnrTimer));
  EXPECT_TRUE(transition_is_legal(QpType::kUc, QpState::kRtr, QpState::kRts, kQpSqPsn));
  EXPECT_FALSE(transition_is_legal(QpType::kUc, QpState::kRtr, QpState::kRts, kQpSqPsn | kQpTimeout));
  EXPECT_TRUE(transition_is_legal(QpType::kXrcSend, QpState::kInit, QpState::kRtr, kUcToRtr));
  EXPECT_FALSE(transition_is_legal(QpType::kXrcSend, QpState::kInit, QpState::kRtr, kRcToRtr));
  EXPECT_TRUE(transition_is_legal(QpType::kXrcSend, QpState::kRtr, QpState::kRts, kRcToRts));
  EXPECT_TRUE(transition_is_legal(QpType::kXrcRecv, QpState::kInit, QpState::kRtr, kRcToRtr));
  EXPECT_TRUE(transition_is_legal(QpType::kXrcRecv, QpState::kRtr, QpState::kRts, kQpTimeout | kQpSqPsn));
  EXPECT_FALSE(transition_is_legal(QpType::kXrcRecv, QpState::kRtr, QpState::kRts, kRcToRts));
  EXPECT_TRUE(transition_is_legal(QpType::kUd, QpState::kReset, QpState::kInit, kQpState | kQpQkey));
  EXPECT_TRUE(transition_is_legal(QpType::kUd, QpState::kInit, QpState::kRtr, kQpState));
  EXPECT_TRUE(transition_is_legal(QpType::kUd, QpState::kRtr, QpState::kRts, kQpState | kQpSqPsn));
}

TEST(Transitions, ARefusedModifyChangesNothing) {
  Pair pair;
  ASSERT_TRUE(pair.to_init(pair.a));
  const Result<void> modified = pair.a.engine().modify_qp(
      0, pair.a.qpn, {.state = QpState::kRtr, .path_mtu = 9, .rq_psn = 5}, kQpState | kRcToRtr);
  ASSERT_FALSE(modified);
  EXPECT_EQ(modified.error().code, EINVAL);
  EXPECT_EQ(pair.a.state(), QpState::kInit);
  EXPECT_EQ(pair.a.engine().query_qp(pair.a.qpn)->rq_psn, 0u);
}

TEST(States, PostingNeedsTheRightState) {
  Pair pair;
  EXPECT_FALSE(pair.recv(pair.a, 1));
  ASSERT_TRUE(pair.to_init(pair.a));
  EXPECT_TRUE(pair.recv(pair.a, 1));
  EXPECT_FALSE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0)));
  ASSERT_TRUE(pair.to_rtr(pair.a, pair.b));
  EXPECT_FALSE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0)));
  ASSERT_TRUE(pair.to_rts(pair.a));
  EXPECT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0)));
}

TEST(States, DataInRtrSaysEstablishedOnce) {
  Pair pair;
  ASSERT_TRUE(pair.to_init(pair.b));
  ASSERT_TRUE(pair.to_rtr(pair.b, pair.a));
  ASSERT_TRUE(pair.to_init(pair.a));
  ASSERT_TRUE(pair.to_rtr(pair.a, pair.b));
  ASSERT_TRUE(pair.to_rts(pair.a));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 10)}));
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 10)}));
  }
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 3).size(), 3u);
  EXPECT_EQ(pair.b.count_events(EventType::kQpEstablished), 1u);
  EXPECT_EQ(pair.b.host->events[0].user, pair.b.qpn);
}

TEST(States, DataInRtsSaysNothing) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 10)}));
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
  EXPECT_TRUE(pair.b.host->events.empty());
}

TEST(States, ErrorStopsAnsweringReads) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kRead, pair.b, 0), {pair.a.sge(0, 10'000)}));
  std::array<std::uint8_t, kPacketSizeMax> packet;
  wire::DatagramInfo info;
  const std::size_t size = pair.a.engine().poll_packet(pair.network.now(), 0xC001, info, packet);
  pair.b.engine().on_packet(pair.network.now(), info, Bytes(packet).first(size));
  EXPECT_GT(pair.b.engine().poll_packet(pair.network.now(), 0xC001, info, packet), 0u);
  ASSERT_TRUE(pair.b.engine().modify_qp(pair.network.now(), pair.b.qpn, {.state = QpState::kErr}, kQpState));
  EXPECT_EQ(pair.b.engine().poll_packet(pair.network.now(), 0xC001, info, packet), 0u);
}

TEST(States, ErrorFlushesEverythingInOrder) {
  Pair pair;
  pair.connect();
  pair.network.filter = [](const wire::DatagramInfo&, Bytes) { return false; };
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(pair.recv(pair.a, 100 + i, {pair.a.sge(0, 10)}));
    SendRequest request = pair.request(SendOpcode::kSend, pair.b, 0);
    request.wr_id = i;
    request.signaled = i % 2 == 0;  // an error is always reported
    ASSERT_TRUE(pair.send(pair.a, request, {pair.a.sge(0, 10)}));
  }
  pair.run_until([] { return false; }, kNanosecondsPerMillisecond);
  ASSERT_TRUE(pair.a.engine().modify_qp(pair.network.now(), pair.a.qpn, {.state = QpState::kErr}, kQpState));
  const std::vector<Completion> sent = pair.a.poll_send();
  const std::vector<Completion> received = pair.a.poll_recv();
  ASSERT_EQ(sent.size(), 10u);
  ASSERT_EQ(received.size(), 10u);
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(sent[i].status, CompletionStatus::kFlushed);
    EXPECT_EQ(received[i].wr_id, 100 + i);
    EXPECT_EQ(received[i].status, CompletionStatus::kFlushed);
  }
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0)));
  ASSERT_TRUE(pair.recv(pair.a, 1));
  EXPECT_EQ(pair.a.poll_send().size(), 1u);
  EXPECT_EQ(pair.a.poll_recv().size(), 1u);
  EXPECT_EQ(pair.a.engine().next_deadline(), kNever);
}

TEST(States, AHalfReceivedMessageIsFlushedBeforeTheReceivesBehindIt) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 50'000)}));
  ASSERT_TRUE(pair.recv(pair.b, 2, {pair.b.sge(0, 50'000)}));
  int packets = 0;
  pair.network.filter = [&](const wire::DatagramInfo&, Bytes) { return ++packets <= 4; };
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 50'000)}));
  pair.run_until([] { return false; }, kNanosecondsPerMillisecond);
  ASSERT_TRUE(pair.b.engine().modify_qp(pair.network.now(), pair.b.qpn, {.state = QpState::kErr}, kQpState));
  const std::vector<Completion> received = pair.b.poll_recv();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].wr_id, 1u);
  EXPECT_EQ(received[1].wr_id, 2u);
}

TEST(States, ResetForgetsEverythingAndTheQpConnectsAgain) {
  Pair pair;
  pair.connect();
  for (End* end : {&pair.a, &pair.b}) {
    ASSERT_TRUE(pair.recv(*end, 1, {end->sge(0, 10)}));
    ASSERT_TRUE(
        pair.send(*end, pair.request(SendOpcode::kWrite, end == &pair.a ? pair.b : pair.a, 0), {end->sge(0, 10)}));
  }
  pair.run_until([] { return false; }, kNanosecondsPerMillisecond);
  for (End* end : {&pair.a, &pair.b}) {
    ASSERT_TRUE(end->engine().modify_qp(pair.network.now(), end->qpn, {.state = QpState::kReset}, kQpState));
    EXPECT_TRUE(end->poll_send().empty());
    EXPECT_TRUE(end->poll_recv().empty());
  }
  pair.options.first_psn = 77;
  pair.connect();
  ASSERT_TRUE(pair.recv(pair.b, 9, {pair.b.sge(0, 10)}));
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 10)}));
  ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
  ASSERT_EQ(pair.b.poll_recv().size(), 1u);
}

TEST(States, DrainingFinishesWhatHasBegunAndStartsNothing) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 200'000)}));
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 10)}));
  pair.run_until([] { return false; }, 1);  // the first packets leave
  ASSERT_TRUE(pair.a.engine().modify_qp(pair.network.now(), pair.a.qpn, {.state = QpState::kSqd}, kQpState));
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 2, kNanosecondsPerSecond).size(), 1u);
  ASSERT_TRUE(pair.a.engine().modify_qp(pair.network.now(), pair.a.qpn, {.state = QpState::kRts}, kQpState));
  EXPECT_EQ(pair.wait(pair.a, pair.a.send_cq, 1, kNanosecondsPerSecond).size(), 1u);
}

TEST(States, LosingTheNodeFailsEveryQp) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.recv(pair.a, 1));
  pair.a.engine().fail_all(pair.network.now());
  EXPECT_EQ(pair.a.state(), QpState::kErr);
  ASSERT_EQ(pair.a.poll_recv().size(), 1u);
  pair.run_until([] { return true; });
  EXPECT_EQ(pair.a.count_events(EventType::kQpFatal), 1u);
}

// ------------------------------------------------------------------------------------------------ destroying

TEST(Destroy, WithWorkPostedAndPacketsInFlightIsSafe) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kRead, pair.b, 0), {pair.a.sge(0, 200'000)}));
  ASSERT_TRUE(pair.send(pair.b, pair.request(SendOpcode::kWrite, pair.a, 0), {pair.b.sge(0, 200'000)}));
  pair.run_until([] { return false; }, 50 * kNanosecondsPerMicrosecond);
  ASSERT_TRUE(pair.a.engine().destroy_qp(pair.network.now(), pair.a.qpn));
  EXPECT_FALSE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0)));
  const std::vector<Completion> sent = pair.wait(pair.b, pair.b.send_cq, 1);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, CompletionStatus::kRetryExceeded);
  EXPECT_GT(pair.a.engine().counters().unknown_qp, 0u);
  EXPECT_EQ(pair.a.engine().next_deadline(), kNever);
}

TEST(Destroy, RemovesTheQpsCompletionsAndLeavesOthers) {
  Pair pair;
  End other = pair.b;
  pair.open(other, *pair.b.host, 0x55);
  QpParams params{.qpn = 0x66,
                  .pd = pair.b.pd,
                  .send_cq = pair.b.send_cq,
                  .recv_cq = pair.b.recv_cq,
                  .capacity = {.send_wr_max = 4, .recv_wr_max = 4, .send_sge_max = 1, .recv_sge_max = 1}};
  ASSERT_TRUE(pair.b.engine().create_qp(params));
  for (const Qpn qpn : {pair.b.qpn, params.qpn}) {
    ASSERT_TRUE(pair.b.engine().modify_qp(0, qpn, {.state = QpState::kErr}, kQpState));
    ASSERT_TRUE(pair.b.engine().post_recv(0, qpn, {.wr_id = qpn}));
  }
  ASSERT_TRUE(pair.b.engine().destroy_qp(0, pair.b.qpn));
  const std::vector<Completion> left = pair.b.poll_recv();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].wr_id, params.qpn);
}

TEST(Destroy, TakesUndeliveredEventsWithIt) {
  Pair pair;
  pair.connect();
  pair.a.engine().fail_all(pair.network.now());
  ASSERT_TRUE(pair.a.engine().destroy_qp(pair.network.now(), pair.a.qpn));
  EXPECT_FALSE(pair.a.engine().poll_event());
}

TEST(Destroy, IsRefusedWhileInUse) {
  Pair pair;
  Engine& engine = pair.a.engine();
  EXPECT_EQ(engine.dealloc_pd(pair.a.pd).error().code, EBUSY);
  EXPECT_EQ(engine.destroy_cq(pair.a.send_cq).error().code, EBUSY);
  ASSERT_TRUE(engine.destroy_qp(0, pair.a.qpn));
  EXPECT_TRUE(engine.destroy_cq(pair.a.send_cq));
  EXPECT_FALSE(engine.destroy_cq(pair.a.send_cq));
  EXPECT_EQ(engine.dealloc_pd(pair.a.pd).error().code, EBUSY);
  ASSERT_TRUE(engine.dereg_mr(pair.a.keys.lkey));
  EXPECT_TRUE(engine.dealloc_pd(pair.a.pd));
}

// The receiver acts on a message at once and goes: its acknowledgement still has to reach the sender.
TEST(Destroy, TheLastAcknowledgementStillLeaves) {
  for (const bool destroy : {false, true}) {
    Pair pair;
    pair.connect();
    ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 10)}));
    std::vector<std::uint8_t> packet;
    wire::DatagramInfo packet_info;
    pair.network.filter = [&](const wire::DatagramInfo& info, Bytes payload) {
      packet.assign(payload.begin(), payload.end());
      packet_info = info;
      return info.source != pair.a.host->address;
    };
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 10)}));
    pair.run_until([] { return true; });
    pair.b.engine().on_packet(pair.network.now(), packet_info, packet);
    if (destroy) {
      ASSERT_TRUE(pair.b.engine().destroy_qp(pair.network.now(), pair.b.qpn));
    } else {
      ASSERT_TRUE(pair.b.engine().modify_qp(pair.network.now(), pair.b.qpn, {.state = QpState::kErr}, kQpState));
    }
    const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 1, kNanosecondsPerMillisecond);
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].status, CompletionStatus::kSuccess);
  }
}

// Nobody can ask a QP that is gone: it says its last word three times.
TEST(Destroy, ALostLastAcknowledgementFailsNothing) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 10)}));
  int answers = 0;
  pair.network.filter = [&](const wire::DatagramInfo& info, Bytes) {
    return info.source != pair.b.host->address || ++answers > 2;
  };
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 10)}));
  ASSERT_EQ(pair.wait(pair.b, pair.b.recv_cq, 1, kNanosecondsPerMillisecond).size(), 1u);
  ASSERT_TRUE(pair.b.engine().destroy_qp(pair.network.now(), pair.b.qpn));
  const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 1, kNanosecondsPerMillisecond);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(answers, 3);
}

TEST(States, AQpInErrorRepeatsALostAcknowledgement) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 10)}));
  bool lossy = true;
  pair.network.filter = [&](const wire::DatagramInfo& info, Bytes) {
    return !(lossy && info.source == pair.b.host->address);
  };
  ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 10)}));
  pair.run_until([] { return false; }, kNanosecondsPerMillisecond);
  ASSERT_TRUE(pair.b.engine().modify_qp(pair.network.now(), pair.b.qpn, {.state = QpState::kErr}, kQpState));
  lossy = false;
  const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 1, kNanosecondsPerSecond);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].status, CompletionStatus::kSuccess);
}

// ------------------------------------------------------------------------------------------------ completion queues

TEST(CompletionQueues, AnArmedQueueNotifiesOnce) {
  Pair pair;
  pair.connect();
  const auto write = [&] {
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 10)}));
    pair.run_until([] { return false; }, kNanosecondsPerMillisecond);
  };
  write();
  EXPECT_EQ(pair.a.count_events(EventType::kCompletion), 0u);
  pair.a.engine().request_notify(pair.a.send_cq, NotifyKind::kNextCompletion);
  write();
  write();
  EXPECT_EQ(pair.a.count_events(EventType::kCompletion), 1u);
  EXPECT_EQ(pair.a.host->events[0].user, 100 + pair.a.qpn);
}

TEST(CompletionQueues, ASolicitedRequestWaitsForASolicitedMessageOrAnError) {
  Pair pair;
  pair.connect();
  const auto send = [&](bool solicited) {
    ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 10)}));
    SendRequest request = pair.request(SendOpcode::kSend, pair.b, 0);
    request.solicited = solicited;
    ASSERT_TRUE(pair.send(pair.a, request, {pair.a.sge(0, 10)}));
    pair.run_until([] { return false; }, kNanosecondsPerMillisecond);
  };
  pair.b.engine().request_notify(pair.b.recv_cq, NotifyKind::kNextSolicited);
  send(false);
  EXPECT_EQ(pair.b.count_events(EventType::kCompletion), 0u);
  send(true);
  EXPECT_EQ(pair.b.count_events(EventType::kCompletion), 1u);
  pair.b.engine().request_notify(pair.b.recv_cq, NotifyKind::kNextSolicited);
  ASSERT_TRUE(pair.recv(pair.b, 1));
  ASSERT_TRUE(pair.b.engine().modify_qp(pair.network.now(), pair.b.qpn, {.state = QpState::kErr}, kQpState));
  pair.run_until([] { return true; });
  EXPECT_EQ(pair.b.count_events(EventType::kCompletion), 2u);
}

TEST(CompletionQueues, UnsignaledSendsCompleteSilently) {
  Pair pair;
  pair.connect();
  SendRequest request = pair.request(SendOpcode::kWrite, pair.b, 0);
  for (int i = 0; i < 1000; ++i) {
    request.signaled = i % 32 == 31;
    while (!pair.send(pair.a, request, {pair.a.sge(0, 10)})) {
      ASSERT_FALSE(pair.wait(pair.a, pair.a.send_cq, 1).empty());
    }
  }
}

TEST(CompletionQueues, AnOverrunIsReportedAndFailsTheQp) {
  Pair pair(1, {}, {.completions = 3});
  pair.connect();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 10)}));
  }
  pair.run_until([] { return false; }, kNanosecondsPerMillisecond);
  EXPECT_EQ(pair.a.count_events(EventType::kCqOverrun), 1u);
  EXPECT_EQ(pair.a.count_events(EventType::kQpFatal), 1u);
  EXPECT_EQ(pair.a.state(), QpState::kErr);
  Completion completion;
  EXPECT_FALSE(pair.a.engine().poll_cq(pair.a.send_cq, {&completion, 1}));
}

TEST(CompletionQueues, ResizingKeepsWhatIsQueued) {
  Pair pair(1, {}, {.completions = 4});
  pair.connect();
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kWrite, pair.b, 0), {pair.a.sge(0, 10)}));
  }
  pair.run_until([] { return false; }, kNanosecondsPerMillisecond);
  EXPECT_FALSE(pair.a.engine().resize_cq(pair.a.send_cq, 3));
  ASSERT_TRUE(pair.a.engine().resize_cq(pair.a.send_cq, 8));
  EXPECT_EQ(pair.a.engine().cq_capacity(pair.a.send_cq), 8u);
  EXPECT_EQ(pair.a.poll_send().size(), 4u);
}

// ------------------------------------------------------------------------------------------------ SRQ

TEST(SharedReceive, FeedsItsQpsAndSaysWhenItRunsLow) {
  Pair pair(1, {}, {.with_srq = true});
  pair.connect();
  EXPECT_EQ(pair.b.engine().post_recv(0, pair.b.qpn, {}).error().code, EINVAL);
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(pair.recv(pair.b, i, {pair.b.sge(i * 100, 100)}));
  ASSERT_TRUE(pair.b.engine().set_srq_limit(*pair.b.srq, 4));
  EXPECT_EQ(pair.b.engine().srq_limit(*pair.b.srq), 4u);
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(pair.send(pair.a, pair.request(SendOpcode::kSend, pair.b, 0), {pair.a.sge(0, 50)}));
    ASSERT_EQ(pair.wait(pair.a, pair.a.send_cq, 1).size(), 1u);
    EXPECT_EQ(pair.b.count_events(EventType::kSrqLimit), i < 2 ? 0u : 1u) << "fewer than four are left";
  }
  const std::vector<Completion> received = pair.b.poll_recv();
  ASSERT_EQ(received.size(), 5u);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(received[i].wr_id, i);
  EXPECT_EQ(pair.b.count_events(EventType::kSrqLimit), 1u);
  EXPECT_EQ(pair.b.engine().srq_limit(*pair.b.srq), 0u);
}

TEST(SharedReceive, AnErrorLeavesTheOthersReceivesAndAnnouncesTheLast) {
  Pair pair(1, {}, {.with_srq = true});
  pair.connect();
  ASSERT_TRUE(pair.recv(pair.b, 1, {pair.b.sge(0, 100)}));
  ASSERT_TRUE(pair.b.engine().modify_qp(pair.network.now(), pair.b.qpn, {.state = QpState::kErr}, kQpState));
  EXPECT_TRUE(pair.b.poll_recv().empty());
  pair.run_until([] { return true; });
  EXPECT_EQ(pair.b.count_events(EventType::kQpLastWqe), 1u);
  EXPECT_EQ(pair.b.engine().destroy_srq(*pair.b.srq).error().code, EBUSY);
  ASSERT_TRUE(pair.b.engine().destroy_qp(0, pair.b.qpn));
  EXPECT_TRUE(pair.b.engine().destroy_srq(*pair.b.srq));
}

// ------------------------------------------------------------------------------------------------ atomics

TEST(Atomics, CompareSwapChangesOnlyWhatIsAsExpected) {
  Pair pair;
  pair.connect();
  pair.b.storage[0] = 5;
  SendRequest request = pair.request(SendOpcode::kCompareSwap, pair.b, 0);
  request.compare_or_add = 5;
  request.swap = 6;
  for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(pair.send(pair.a, request, {pair.a.sge(i * 8, 8)}));
  const std::vector<Completion> sent = pair.wait(pair.a, pair.a.send_cq, 2);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].opcode, CompletionOpcode::kCompareSwap);
  EXPECT_EQ(pair.a.storage[0], 5u);
  EXPECT_EQ(pair.a.storage[1], 6u);
  EXPECT_EQ(pair.b.storage[0], 6u);
}

}  // namespace
}  // namespace ucm::roce::test
