// What a server tells those that look, and that it waits for none of them.
#include "ipc/observe.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "daemon/fake_node.h"
#include "daemon/observation.h"
#include "daemon/stats.h"
#include "node/flight_recorder.h"
#include "node/rdma_id.h"

namespace ucm::daemon {
namespace {

using ipc::TraceKind;
using ipc::TraceRecord;

constexpr std::uint32_t kUser = 1000;

class Looker {
 public:
  explicit Looker(ServerThread& server) : socket_(server.connect()) {
    EXPECT_EQ(ask(ipc::make_request(ipc::ControlCall::kHello, 0)), 0);
  }

  int ask(const ipc::ControlRequest& request) {
    EXPECT_TRUE(ipc::send_message(socket_.get(), ipc::bytes_of(request), {}, ipc::SendMode::kWait));
    const auto message = receive();
    ipc::ControlReply reply;
    if (message.size() != sizeof reply) return -1;
    std::memcpy(&reply, message.data(), sizeof reply);
    return reply.error;
  }
  int observe(ipc::Subject subject, std::uint32_t argument = 0) {
    auto request = ipc::make_request(ipc::ControlCall::kObserve, 7);
    request.subject = static_cast<std::uint32_t>(subject);
    request.argument = argument;
    return ask(request);
  }
  // A whole message; empty: the server has hung up.
  std::vector<std::uint8_t> receive() {
    std::vector<std::uint8_t> buffer(ipc::kObserveMessageMax);
    const auto received = ipc::receive_message(socket_.get(), buffer, ipc::ReceiveMode::kWait);
    buffer.resize(received ? received->size : 0);
    return buffer;
  }
  // All of the answer; nullopt when the server hangs up before its end.
  std::optional<std::vector<std::uint8_t>> answer() {
    std::vector<std::uint8_t> all;
    while (true) {
      const auto message = receive();
      if (message.size() < sizeof(ipc::ControlHeader)) return std::nullopt;
      if (message.size() == sizeof(ipc::ControlHeader)) return all;
      all.insert(all.end(), message.begin() + sizeof(ipc::ControlHeader), message.end());
    }
  }

 private:
  ipc::FileDescriptor socket_;
};

std::vector<node::Node::Listing> listings(std::size_t count) {
  std::vector<node::Node::Listing> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    all[i].kind = node::Node::Listing::Kind::kConnection;
    all[i].id = static_cast<std::uint32_t>(i + 1);
    all[i].state = "established";
    all[i].local = {.family = 4, .port = 1, .address = wire::IpAddress::ipv4(0x0a000001).bytes};
    all[i].remote = {.family = 4, .port = 2, .address = wire::IpAddress::ipv4(0x0a000002).bytes};
  }
  return all;
}

// As of the calls of one ID of `user`.
void call_often(node::FlightRecorder& recorder, std::uint32_t id, std::uint32_t user, int times) {
  node::RdmaId caller;
  caller.id = id;
  caller.user = user;
  for (int i = 0; i < times; ++i) {
    recorder.at(i);
    recorder.begin_call(&caller);
    recorder.end_call(&caller, ipc::CmCall::kListen, 0);
  }
}

struct Told {
  TraceRecord record;
  std::string why;
};
std::vector<Told> told_in(Bytes bytes) {
  std::vector<Told> all;
  while (bytes.size() >= sizeof(ipc::TraceFrame)) {
    ipc::TraceFrame frame;
    std::memcpy(&frame, bytes.data(), sizeof frame);
    bytes = bytes.subspan(sizeof frame);
    all.push_back({frame.record, std::string(reinterpret_cast<const char*>(bytes.data()), frame.why_size)});
    bytes = bytes.subspan(frame.why_size);
  }
  EXPECT_TRUE(bytes.empty());
  return all;
}

TEST(Observe, AListComesInPiecesThatEachAreJson) {
  ServerThread server;
  server.node.listings = listings(3);
  server.node.list_calls = 100;
  Looker looker(server);
  ASSERT_EQ(looker.observe(ipc::Subject::kList), 0);
  std::size_t entries = 0;
  std::size_t pieces = 0;
  while (true) {
    const auto message = looker.receive();
    ASSERT_GE(message.size(), sizeof(ipc::ControlHeader));
    if (message.size() == sizeof(ipc::ControlHeader)) break;
    const auto piece = nlohmann::json::parse(message.begin() + sizeof(ipc::ControlHeader), message.end());
    entries += piece.size();
    ++pieces;
    EXPECT_EQ(piece[0]["local"], "10.0.0.1:1");
  }
  EXPECT_EQ(pieces, 100u);
  EXPECT_EQ(entries, 300u);
  // And again on the same socket.
  ASSERT_EQ(looker.observe(ipc::Subject::kStats), 0);
  const auto stats = looker.answer();
  ASSERT_TRUE(stats);
  EXPECT_EQ(nlohmann::json::parse(*stats)["counters"]["node_received"], 7);
}

TEST(Observe, AReaderThatDoesNotReadIsDroppedAndTheOthersDoNotNotice) {
  ServerThread server({.socket_name = {}, .observer_patience_ns = 0, .log = {}});
  server.node.listings = listings(40);
  server.node.list_calls = 10'000;
  Looker stuck(server);
  ASSERT_EQ(stuck.observe(ipc::Subject::kList), 0);
  for (int i = 0; i < 100'000 && server.counters().observers_dropped == 0; ++i) continue;
  EXPECT_EQ(server.counters().observers_dropped, 1u);
  EXPECT_FALSE(stuck.answer());
  server.node.list_calls = 1;
  Looker other(server);
  ASSERT_EQ(other.observe(ipc::Subject::kList), 0);
  EXPECT_TRUE(other.answer());
}

TEST(Observe, OneQuestionAtATime) {
  node::FlightRecorder recorder(64);
  ServerThread server;
  server.node.flight_recorder = &recorder;
  Looker looker(server);
  ASSERT_EQ(looker.observe(ipc::Subject::kTrace), 0);
  EXPECT_EQ(looker.observe(ipc::Subject::kList), EBUSY);
}

TEST(Observe, WithoutARecorderThereIsNoStoryAndAnUnknownSubjectIsRefused) {
  ServerThread server;
  Looker looker(server);
  EXPECT_EQ(looker.observe(ipc::Subject::kShow, 1), ENODATA);
  EXPECT_EQ(looker.observe(ipc::Subject::kTrace), ENODATA);
  EXPECT_EQ(looker.observe(static_cast<ipc::Subject>(99)), EINVAL);
  EXPECT_EQ(looker.observe(ipc::Subject::kList), 0);
  EXPECT_TRUE(looker.answer());
}

TEST(Observe, ATraceTellsWhatHappensFromNowOn) {
  node::FlightRecorder recorder(64);
  ServerThread server;
  server.node.flight_recorder = &recorder;
  call_often(recorder, 1, kUser, 1);
  Looker looker(server);
  ASSERT_EQ(looker.observe(ipc::Subject::kTrace), 0);
  server.run([&] { call_often(recorder, 2, kUser, 3); });
  std::size_t frames = 0;
  while (frames < 3) {
    const auto message = looker.receive();
    ASSERT_GT(message.size(), sizeof(ipc::ControlHeader));
    for (std::size_t at = sizeof(ipc::ControlHeader); at < message.size(); at += sizeof(ipc::TraceFrame)) {
      ipc::TraceFrame frame;
      ASSERT_LE(at + sizeof frame, message.size());
      std::memcpy(&frame, &message[at], sizeof frame);
      EXPECT_EQ(frame.record.id, 2u);
      EXPECT_EQ(frame.record.kind, TraceKind::kCall);
      ++frames;
    }
  }
}

TEST(Observe, AStoryIsTheWholeOneNewestFirst) {
  node::FlightRecorder recorder(4096);
  call_often(recorder, 5, kUser, 1000);  // more than one piece
  node::RdmaId caller;
  caller.id = 5;
  caller.user = kUser;
  caller.last_record = recorder.total();
  recorder.begin_call(&caller);
  recorder.explain("because");
  recorder.end_call(&caller, ipc::CmCall::kConnect, EINVAL);
  ServerThread server;
  server.node.flight_recorder = &recorder;
  Looker looker(server);
  EXPECT_EQ(looker.observe(ipc::Subject::kShow, 6), ENOENT);
  ASSERT_EQ(looker.observe(ipc::Subject::kShow, 5), 0);
  const auto answer = looker.answer();
  ASSERT_TRUE(answer);
  const auto told = told_in(*answer);
  ASSERT_EQ(told.size(), 1001u);
  EXPECT_EQ(told[0].record.status, EINVAL);
  EXPECT_EQ(told[0].why, "because");
  EXPECT_EQ(told[1].record.time_ns, 999);
  EXPECT_EQ(told[1].why, "");
  EXPECT_EQ(told.back().record.time_ns, 0);
}

TEST(Observation, OneUserSeesNothingOfAnother) {
  node::FlightRecorder recorder(64);
  call_often(recorder, 5, kUser, 1);
  EXPECT_TRUE(ShowObservation(recorder, {.user = kUser}, 5).found());
  EXPECT_TRUE(ShowObservation(recorder, {.user = 0, .sees_all = true}, 5).found());
  EXPECT_FALSE(ShowObservation(recorder, {.user = kUser + 1}, 5).found());

  FakeNode node;
  node.listings = listings(2);
  node.listings[0].user = kUser;
  node.listings[1].user = kUser + 1;
  ListObservation list(
      node, {.user = kUser}, [](node::SessionId) { return ListObservation::Program{}; }, [] { return TimeNs{0}; });
  Piece piece;
  ASSERT_EQ(list.next(piece), Observation::Next::kPiece);
  EXPECT_EQ(nlohmann::json::parse(piece).size(), 1u);

  TraceObservation trace({.user = kUser});
  trace.take({.user = kUser + 1}, nullptr);
  trace.take({}, nullptr);
  EXPECT_FALSE(trace.has_news());
  trace.take({.user = kUser}, nullptr);
  EXPECT_TRUE(trace.has_news());
}

TEST(Observation, ATraceThatNobodyReadsIsBoundedAndTellsWhatIsLost) {
  TraceObservation trace({.user = 0, .sees_all = true});
  const std::array<std::uint8_t, 256> mad{};
  const wire::DatagramInfo info;
  const node::FlightRecorder::Message message{.info = info, .mad = mad, .sent = true};
  constexpr std::int32_t kTaken = 100'000;
  for (std::int32_t i = 0; i < kTaken; ++i) trace.take({.kind = TraceKind::kSent}, &message);
  std::int32_t told = 0;
  std::int32_t lost = 0;
  Piece piece;
  while (trace.next(piece) == Observation::Next::kPiece) {
    ASSERT_LE(piece.size(), ipc::kObservePieceMax);
    for (std::size_t at = 0; at < piece.size();) {
      ipc::TraceFrame frame;
      std::memcpy(&frame, &piece[at], sizeof frame);
      at += sizeof frame + frame.mad_size;
      (frame.record.kind == TraceKind{} ? lost : told) += frame.record.kind == TraceKind{} ? frame.record.status : 1;
    }
    piece.clear();
  }
  EXPECT_GT(lost, 0);
  EXPECT_EQ(told + lost, kTaken);
}

TEST(Prometheus, EveryLineIsACommentOrANameWithAValueAndBucketsGrow) {
  node::FlightRecorder recorder(64);
  cm::Connection connection;
  connection.state = cm::State::kReqSent;
  recorder.at(0);
  recorder.on_begin(0, connection);
  recorder.at(3'000'000);
  recorder.on_step(0, connection, cm::Input::kRep, {.action = cm::Action::kTakeRep, .next = cm::State::kRepReceived});
  nlohmann::json stats = recorder_stats(recorder);
  stats["counters"] = {{"retries", 2}};
  stats["held"] = {{"ids", 1}};
  const std::string text = prometheus_text(stats);
  for (const char* line : {"ucm_events_total{kind=\"retries\"} 2\n", "ucm_held{kind=\"ids\"} 1\n",
                           "ucm_connections{state=\"rep_received\"} 1\n", "ucm_connections{state=\"req_sent\"} 0\n",
                           "ucm_state_seconds_bucket{state=\"req_sent\",le=\"0.004194304\"} 1\n",
                           "ucm_state_seconds_bucket{state=\"req_sent\",le=\"+Inf\"} 1\n",
                           "ucm_state_seconds_sum{state=\"req_sent\"} 0.003000000\n",
                           "ucm_state_seconds_count{state=\"req_sent\"} 1\n", "ucm_set_up_seconds_count 0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(Record, ComesInWholeRecordsAndEndsForAReaderWhoIsTooSlow) {
  RecordObservation recording;
  const auto sink = recording.sink();
  const std::vector<std::uint8_t> record(1000, 7);
  EXPECT_FALSE(recording.has_news());
  std::size_t taken = 0;
  while (sink(record)) ++taken;
  EXPECT_GE(taken * record.size(), 46u << 20);
  EXPECT_FALSE(sink(record)) << "it goes on behind a gap";
  std::size_t given = 0;
  while (true) {
    EXPECT_TRUE(recording.has_news());
    Piece piece;
    if (recording.next(piece) == Observation::Next::kEnd) break;
    ASSERT_EQ(piece.size() % record.size(), 0u);
    ASSERT_LE(piece.size(), ipc::kObservePieceMax);
    given += piece.size() / record.size();
  }
  EXPECT_EQ(given, taken);
}

TEST(Record, ASinkOutlivesItsReader) {
  auto recording = std::make_unique<RecordObservation>();
  const auto sink = recording->sink();
  const std::vector<std::uint8_t> record(10);
  EXPECT_TRUE(sink(record));
  recording.reset();
  EXPECT_FALSE(sink(record));
}

TEST(Record, OneAtATime) {
  ServerThread server;
  Looker first(server);
  Looker second(server);
  ASSERT_EQ(first.observe(ipc::Subject::kRecord), 0);
  EXPECT_EQ(second.observe(ipc::Subject::kRecord), EBUSY);
  const std::vector<std::uint8_t> record{1, 2, 3};
  server.run([&] { EXPECT_TRUE(server.node.record_sink(record)); });
  const auto message = first.receive();
  EXPECT_TRUE(std::equal(record.begin(), record.end(), message.begin() + sizeof(ipc::ControlHeader), message.end()));
}

}  // namespace
}  // namespace ucm::daemon
