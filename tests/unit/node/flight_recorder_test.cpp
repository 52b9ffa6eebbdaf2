// What the flight recorder keeps of the connections of two nodes.
#include "node/flight_recorder.h"

#include <algorithm>
#include <string>

#include "unit/node/nodes.h"

namespace ucm::node {
namespace {

using ipc::TraceKind;
using ipc::TraceRecord;

constexpr std::size_t kCapacity = 256;

class Recorded : public Nodes {
 protected:
  Recorded() {
    a_.core.record(recorder_a_);
    b_.core.record(recorder_b_);
  }

  // The story of an ID, oldest first, one word each: what kind, and of which message, call or event.
  static std::vector<TraceRecord> story(const FlightRecorder& recorder, std::uint32_t id) {
    std::vector<TraceRecord> records;
    auto number = recorder.find([&](const TraceRecord& record) { return record.id == id; });
    for (; number; number = recorder.previous(*number)) records.push_back(recorder.record(*number));
    std::ranges::reverse(records);
    return records;
  }
  static std::string messages_of(const std::vector<TraceRecord>& records) {
    std::string text;
    for (const TraceRecord& record : records) {
      if (record.message == 0) continue;
      text += record.kind == TraceKind::kSent ? '>' : '<';
      text += std::to_string(record.message - 0x10);
      if (record.repetition != 0) text += "+" + std::to_string(record.repetition);
      text += ' ';
    }
    return text;
  }
  static std::size_t count(const std::vector<TraceRecord>& records, TraceKind kind) {
    return static_cast<std::size_t>(std::ranges::count(records, kind, &TraceRecord::kind));
  }

  FlightRecorder recorder_a_{kCapacity}, recorder_b_{kCapacity};
};

TEST_F(Recorded, AConnectionsStoryHasItsCallsMessagesAndEventsOnBothSides) {
  const Connection ids = establish();
  EXPECT_EQ(call(a_, CmCall::kDisconnect, ids.active), 0);
  expect_event(b_, CmEventType::kDisconnected);
  EXPECT_EQ(call(b_, CmCall::kDisconnect, ids.passive), 0);
  settle();

  const auto active = story(recorder_a_, ids.active);
  EXPECT_EQ(messages_of(active), ">0 <3 >4 >5 <6 ");  // REQ, REP, RTU, DREQ, DREP
  EXPECT_EQ(count(active, TraceKind::kCall), 3u);     // create, resolve twice; the others are the engine's steps
  EXPECT_EQ(count(active, TraceKind::kEvent), 4u);    // resolved twice, response, disconnected
  EXPECT_EQ(active.front().input, static_cast<std::uint8_t>(CmCall::kCreateId));
  EXPECT_TRUE(std::ranges::is_sorted(active, {}, &TraceRecord::time_ns));
  EXPECT_EQ(active.back().peer, kB.bytes);
  EXPECT_EQ(active.back().local_qpn, 0u);  // an event
  const auto rep = std::ranges::find(active, 0x13, &TraceRecord::message);
  ASSERT_NE(rep, active.end());
  EXPECT_EQ(rep->from, static_cast<std::uint8_t>(cm::State::kReqSent));
  EXPECT_EQ(rep->to, static_cast<std::uint8_t>(cm::State::kRepReceived));
  EXPECT_EQ(rep->local_qpn, 501u);
  EXPECT_EQ(rep->remote_qpn, 502u);

  const auto passive = story(recorder_b_, ids.passive);
  EXPECT_EQ(messages_of(passive), "<0 >3 <4 <5 >6 ");
  EXPECT_EQ(passive.front().kind, TraceKind::kBegin);  // by the REQ, before there is an ID
  EXPECT_EQ(passive.front().remote_comm_id, rep->local_comm_id);
  EXPECT_EQ(passive.front().id, 0u);
}

TEST_F(Recorded, ARepetitionTellsHowOftenAndWhy) {
  network_.set_tap([](const wire::DatagramInfo&, net::MemoryNetwork::Payload&) { return false; });
  const std::uint32_t id = start_connect(a_, kB);
  run_until(now_ + 150 * kMs);
  const auto records = story(recorder_a_, id);
  EXPECT_EQ(messages_of(records).substr(0, 12), ">0 >0+1 >0+2");
  const auto again = std::ranges::find(records, 1, &TraceRecord::repetition);
  ASSERT_NE(again, records.end());
  EXPECT_EQ(again->input, static_cast<std::uint8_t>(cm::Input::kRetryDue));
  const auto& counts = recorder_a_.messages()[0x10];
  EXPECT_EQ(counts.sent, counts.repeated + 1);
  const FlightRecorder::Track* const track = recorder_a_.connection_track(0);
  ASSERT_NE(track, nullptr);
  EXPECT_EQ(track->retries, counts.repeated);
  EXPECT_EQ(track->sent, 0x10);
  EXPECT_EQ(track->received, 0);
}

TEST_F(Recorded, ARequestForNobodyIsAStrayAndItsRefusalTellsWhy) {
  start_connect(a_, kB);
  settle();
  const auto stray = recorder_b_.find([](const TraceRecord& r) { return r.kind == TraceKind::kStray; });
  ASSERT_TRUE(stray);
  EXPECT_EQ(recorder_b_.record(*stray).status, trace_counter(&cm::Counters::rejected_no_listener));
  EXPECT_EQ(recorder_b_.record(*stray).peer, kA.bytes);
  const auto refusal = recorder_b_.find([](const TraceRecord& r) { return r.kind == TraceKind::kSent; });
  ASSERT_TRUE(refusal);
  EXPECT_EQ(recorder_b_.record(*refusal).message, 0x12);
  EXPECT_NE(recorder_b_.record(*refusal).flags & ipc::kTraceAnswersStray, 0);
  EXPECT_EQ(recorder_b_.record(*refusal).status, trace_counter(&cm::Counters::rejected_no_listener));
  EXPECT_EQ(recorder_b_.messages()[0x10].refused, 1u);
}

TEST_F(Recorded, ARefusedCallTellsItsError) {
  const std::uint32_t id = create(a_);
  EXPECT_NE(call(a_, CmCall::kAccept, id), 0);
  const auto records = story(recorder_a_, id);
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back().kind, TraceKind::kCall);
  EXPECT_EQ(records.back().status, EINVAL);
}

TEST_F(Recorded, TheRingForgetsTheOldestAndStoriesEndThere) {
  const Connection ids = establish();
  const std::uint32_t other = create(a_);
  for (std::size_t i = 0; i < kCapacity - 4; ++i) call(a_, CmCall::kAccept, other);
  EXPECT_EQ(recorder_a_.total() - recorder_a_.oldest(), kCapacity);
  EXPECT_LE(story(recorder_a_, ids.active).size(), 3u);
  EXPECT_EQ(story(recorder_a_, other).size(), kCapacity - 3);
  for (std::size_t i = 0; i < 3; ++i) call(a_, CmCall::kAccept, other);
  EXPECT_TRUE(story(recorder_a_, ids.active).empty());
  EXPECT_EQ(story(recorder_a_, other).size(), kCapacity);
}

TEST_F(Recorded, AConnectionInTheSlotOfAFormerOneHasAStoryOfItsOwn) {
  const Connection first = establish();
  call(a_, CmCall::kDestroyId, first.active);
  call(b_, CmCall::kDestroyId, first.passive);
  run_until(now_ + 10 * kNanosecondsPerSecond);
  const std::uint32_t second = start_connect(a_, kB);
  settle();
  const auto records = story(recorder_a_, second);
  EXPECT_EQ(records.front().input, static_cast<std::uint8_t>(CmCall::kCreateId));
  EXPECT_EQ(count(records, TraceKind::kBegin), 1u);
}

TEST_F(Recorded, TimesInStatesAreSimulatedTime) {
  listen(b_, kB);
  const std::uint32_t active = start_connect(a_, kB);
  skip_resolution_events(a_);
  const std::uint32_t passive = expect_event(b_, CmEventType::kConnectRequest).id;
  now_ += 3 * kMs;
  EXPECT_EQ(b_.execute(now_, {.call = CmCall::kAccept, .id = passive, .conn = conn(502)}).error, 0);
  expect_event(a_, CmEventType::kConnectResponse);
  EXPECT_EQ(call(a_, CmCall::kEstablish, active), 0);
  settle();
  EXPECT_EQ(recorder_b_.time_in(cm::State::kReqReceived).sum, 3 * kMs);
  EXPECT_EQ(recorder_b_.time_in(cm::State::kReqReceived).total(), 1u);
  EXPECT_EQ(recorder_a_.time_in(cm::State::kReqSent).sum, 3 * kMs);
  EXPECT_EQ(recorder_a_.set_up_time().total(), 1u);
}

TEST_F(Recorded, TheTapSeesMessagesAsTheyTravel) {
  std::string seen;
  recorder_a_.set_tap([&](const TraceRecord& record, const FlightRecorder::Message* message) {
    if (message == nullptr) return;
    EXPECT_EQ(message->mad.size(), 256u);
    EXPECT_EQ(message->sent, record.kind == TraceKind::kSent);
    EXPECT_EQ(message->sent ? message->info.destination : message->info.source, kB);
    seen += message->sent ? '>' : '<';
  });
  establish();
  EXPECT_EQ(seen, "><>");
}

TEST(Histogram, ATimeIsInTheBucketThatEndsAtOrAfterIt) {
  Histogram histogram;
  histogram.add(0);
  histogram.add(Histogram::upper_end(0));
  histogram.add(Histogram::upper_end(0) + 1);
  histogram.add(Histogram::upper_end(1));
  histogram.add(INT64_MAX / 2);
  EXPECT_EQ(histogram.counts[0], 2u);
  EXPECT_EQ(histogram.counts[1], 2u);
  EXPECT_EQ(histogram.counts[Histogram::kBuckets - 1], 1u);
  EXPECT_EQ(histogram.total(), 5u);
}

TEST_F(Recorded, AFailureHasItsReason) {
  const auto reason_of = [&](const FlightRecorder& recorder, std::uint32_t id) {
    const auto number = recorder.find([&](const TraceRecord& record) { return record.id == id && record.status != 0; });
    return number ? std::string(recorder.reason_of(*number)) : "nothing";
  };
  const std::uint32_t nobody = start_connect(a_, kB);
  skip_resolution_events(a_);
  expect_event(a_, CmEventType::kRejected);
  EXPECT_EQ(reason_of(recorder_a_, nobody), "nobody listens");

  const std::uint32_t idle = create(a_);
  EXPECT_EQ(call(a_, CmCall::kAccept, idle), EINVAL);
  EXPECT_EQ(reason_of(recorder_a_, idle), "not in this state");
}

TEST_F(Recorded, OnlyTheLastReasonsAreKept) {
  const std::uint32_t idle = create(a_);
  EXPECT_EQ(call(a_, CmCall::kAccept, idle), EINVAL);
  const std::uint64_t first = recorder_a_.total() - 1;
  EXPECT_EQ(recorder_a_.reason_of(first), "not in this state");
  for (int i = 0; i < 2000; ++i) call(a_, CmCall::kAccept, idle);
  EXPECT_EQ(recorder_a_.reason_of(first), "");
  EXPECT_EQ(recorder_a_.reason_of(recorder_a_.total() - 1), "not in this state");
}

}  // namespace
}  // namespace ucm::node
