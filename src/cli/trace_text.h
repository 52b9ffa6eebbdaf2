// Records of the flight recorder as a person reads them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "ipc/observe.h"

namespace ucm::cli {

// "sent     REP  retry 2, in rep_sent" : what happened and why, without time and whose it is.
std::string what_text(const ipc::TraceRecord& record);
// With the node's reason, where it has told one: of a call or an event that is a failure.
struct ToldRecord {
  ToldRecord(const ipc::TraceRecord& of, std::string reason = {}) : record(of), why(std::move(reason)) {}
  ipc::TraceRecord record;
  std::string why;
};
std::string what_text(const ToldRecord& told);
// What of a CM message matters: "qpn 0x000101 psn 0x123456 …"; empty for bytes that are none.
std::string message_text(Bytes mad);
// "REQ"; "?" for what has no name.
std::string message_name(std::uint8_t message);

// The story of one connection; `records` with the newest one first. `wall_offset_ns` makes a time since 1970 of a
// record's.
std::string story_text(const std::vector<ToldRecord>& records, std::int64_t wall_offset_ns);
// One line, ended, for one record as it happens.
std::string trace_line(const ipc::TraceFrame& frame, Bytes mad, std::int64_t wall_offset_ns);
// The comment at a captured packet: whose it is and what came of it, or why it was sent.
std::string comment_text(const ipc::TraceRecord& record);

}  // namespace ucm::cli
