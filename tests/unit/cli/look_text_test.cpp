// What `ucm list`, `show` and `trace` print.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "cli/diagram.h"
#include "cli/list_text.h"
#include "cli/trace_text.h"
#include "cm/counters.h"
#include "cm/state_machine.h"
#include "wire/cm_messages.h"
#include "wire/mad.h"

namespace ucm::cli {
namespace {

using ipc::TraceKind;
using ipc::TraceRecord;
using nlohmann::json;

template <class Enum>
std::uint8_t number(Enum value) {
  return static_cast<std::uint8_t>(value);
}

std::size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

json connection() {
  return {{"kind", "connection"},
          {"id", 262143},
          {"state", "mra_rep_received"},
          {"active", false},
          {"local", "[fd77:1234:5678:9abc:def0:1234:5678:9abc]:65535"},
          {"remote", "[fd77:1234:5678:9abc:def0:1234:5678:9abd]:65535"},
          {"local_comm_id", 0xFFFFFFFF},
          {"remote_comm_id", 0xFFFFFFFF},
          {"qpn", 0xFFFFFF},
          {"peer_qpn", 0xFFFFFF},
          {"answer_time_ns", 999'990'000},
          {"age_ns", 3'599'000'000'000},
          {"in_state_ns", 999'990'000},
          {"retries", 65535},
          {"last_sent", {{"message", 0x17}, {"ago_ns", 3'599'000'000'000}}},
          {"last_received", {{"message", 0x18}, {"ago_ns", 3'599'000'000'000}}},
          {"pid", 4194303},
          {"program", "fifteen_letters"}};
}

TEST(List, TheWidestConnectionFitsEightyColumns) {
  const std::string text = entry_text(connection(), ListForm::kLong);
  EXPECT_LE(widest_line(text), 80u) << text;
  for (const char* part :
       {"#262143 mra_rep_received, passive", "(4194303 fifteen_letters)", "sent SIDR_REQ 3599.00 s ago",
        "answers in 999.99 ms", "0xffffffff", "0xffffff", "retries 65535"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(List, AnUnknownOrEmptyEntryIsPrintedAllTheSame) {
  EXPECT_FALSE(entry_text(json::object(), ListForm::kLong).empty());
  EXPECT_FALSE(entry_text(json::object(), ListForm::kShort).empty());
}

TEST(List, AFilterLetsThroughWhatMatchesAll) {
  const json entry = connection();
  EXPECT_TRUE(ListFilter{}.matches(entry));
  EXPECT_TRUE((ListFilter{.state = "mra_rep_received", .pid = 4194303}.matches(entry)));
  EXPECT_FALSE((ListFilter{.state = "established"}.matches(entry)));
  EXPECT_FALSE((ListFilter{.state = "mra_rep_received", .pid = 1}.matches(entry)));
  EXPECT_TRUE((ListFilter{.address = "fd77:1234:5678:9abc:def0:1234:5678:9abd"}.matches(entry)));
  EXPECT_FALSE((ListFilter{.address = "fd77:1234:5678:9abc:def0:1234:5678:9ab"}.matches(entry)));
  EXPECT_TRUE((ListFilter{.address = "10.0.0.1"}.matches({{"local", "10.0.0.1:5"}})));
  EXPECT_FALSE((ListFilter{.address = "10.0.0.1"}.matches({{"local", "10.0.0.11:5"}})));
}

TEST(Duration, HasTheUnitThatFits) {
  EXPECT_EQ(duration_text(0), "0.0 us");
  EXPECT_EQ(duration_text(1'500), "1.5 us");
  EXPECT_EQ(duration_text(1'500'000), "1.50 ms");
  EXPECT_EQ(duration_text(90'000'000'000), "90.00 s");
  EXPECT_EQ(duration_text(7'200'000'000'000), "2.0 h");
}

TEST(Trace, SaysWhatAMessageWasForAndWhatCameOfIt) {
  EXPECT_EQ(what_text({.kind = TraceKind::kReceived,
                       .message = 0x13,
                       .input = number(cm::Input::kRep),
                       .action = number(cm::Action::kTakeRep),
                       .from = number(cm::State::kReqSent),
                       .to = number(cm::State::kRepReceived)}),
            "received REP   req_sent -> rep_received (take_rep)");
  EXPECT_EQ(what_text({.kind = TraceKind::kSent,
                       .message = 0x10,
                       .input = number(cm::Input::kRetryDue),
                       .from = number(cm::State::kReqSent),
                       .repetition = 2}),
            "sent     REQ   retry 2: no answer, in req_sent");
  EXPECT_EQ(what_text({.kind = TraceKind::kSent, .message = 0x16, .flags = ipc::kTraceLastWords}),
            "sent     DREP  said again: nobody would answer it");
  EXPECT_EQ(what_text({.status = 0, .kind = TraceKind::kSent, .message = 0x12, .flags = ipc::kTraceAnswersStray}),
            "sent     REJ   because of a message: " + std::string(cm::kCounterFields[0].name));
  EXPECT_EQ(what_text({.status = 22, .kind = TraceKind::kCall, .input = 11}), "call     accept: Invalid argument");
  EXPECT_EQ(what_text({.status = -110, .kind = TraceKind::kEvent, .input = 7}),
            "event    UNREACHABLE, Connection timed out");
  EXPECT_EQ(what_text({.status = 28, .kind = TraceKind::kEvent, .input = 8}), "event    REJECTED, reason 28");
}

// A record comes from another process: whatever is in it is printed and nothing worse.
TEST(Trace, AnyRecordIsPrinted) {
  for (int kind = 0; kind < 256; ++kind) {
    for (const int value : {0, 1, 5, 13, 14, 15, 20, 255}) {
      for (const int flags : {0, 1, 31, 255}) {
        TraceRecord record{.status = value * 1000, .kind = static_cast<TraceKind>(kind)};
        record.message = record.input = record.action = record.from = record.to = static_cast<std::uint8_t>(value);
        record.flags = static_cast<std::uint8_t>(flags);
        EXPECT_FALSE(what_text(record).empty());
      }
    }
  }
}

TEST(Trace, TellsWhatMattersOfAMessage) {
  wire::Rej rej;
  rej.reason = wire::RejReason::kInvalidServiceId;
  std::array<std::uint8_t, wire::kMadSize> mad{};
  wire::MadHeader{.attribute = wire::Attribute::kRej}.emit(MutableBytes(mad).first(wire::MadHeader::kSize));
  rej.emit(MutableBytes(mad).subspan(wire::MadHeader::kSize));
  EXPECT_EQ(message_text(mad), "reason 8 (nobody listens)");
  for (std::size_t size = 0; size < mad.size(); ++size) EXPECT_EQ(message_text(Bytes(mad).first(size)), "");
}

TEST(Trace, AStoryHasTheReasonsOfFailures) {
  const TraceRecord refused{.status = 22, .kind = TraceKind::kCall, .input = 10};
  EXPECT_EQ(what_text(ToldRecord(refused, "the QP number is not the process's")),
            "call     connect: Invalid argument: the QP number is not the process's");
}

TEST(Trace, AStoryBeginsWithWhoseItIs) {
  const std::vector<TraceRecord> records{{.time_ns = 3'500'000, .id = 7, .kind = TraceKind::kEvent, .input = 9},
                                         {.time_ns = 2'000'000,
                                          .local_comm_id = 0xAB,
                                          .user = 1000,
                                          .peer = wire::IpAddress::ipv4(0x0A000002).bytes,
                                          .kind = TraceKind::kStep,
                                          .local_qpn = 0x101}};
  const std::string text = story_text({records.begin(), records.end()}, 0);
  for (const char* part : {"ID 7, user 1000, peer 10.0.0.2", "comm ID 0x000000ab", "QP 0x000101", "+0.000  step",
                           "+1.500  event    ESTABLISHED"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(story_text({}, 0), "");
}

TEST(Diagram, HasARowAndTheArrowsDirectionForEveryRecord) {
  const std::vector<TraceRecord> records{{.time_ns = 2'500'000, .id = 7, .kind = TraceKind::kEvent, .input = 9},
                                         {.time_ns = 2'000'000, .kind = TraceKind::kReceived, .message = 0x13},
                                         {.time_ns = 1'000'000,
                                          .peer = wire::IpAddress::ipv4(0x0A000002).bytes,
                                          .kind = TraceKind::kSent,
                                          .message = 0x10,
                                          .repetition = 1},
                                         {.kind = TraceKind::kStep, .to = number(cm::State::kReqSent)}};
  const std::string svg = diagram_svg(diagram_of({records.begin(), records.end()}));
  for (const char* part : {"ID 7<", ">10.0.0.2<", ">0.000<", ">1.000<", ">2.000<", ">2.500<", ">REQ<", ">REP<",
                           "event    ESTABLISHED", "x1=\"640\" y1=\"86\" x2=\"1060\" y2=\"86\" class=\"arrow again\"",
                           "x1=\"1060\" y1=\"112\" x2=\"640\" y2=\"112\" class=\"arrow\"", "-&gt;"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part << "\n" << svg;
  }
}

}  // namespace
}  // namespace ucm::cli
