// The story of a connection as a ladder diagram.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/trace_text.h"
#include "ipc/trace.h"

namespace ucm::cli {

struct DiagramRow {
  enum class Kind : std::uint8_t { kSent, kReceived, kEvent, kOther };
  std::int64_t time_ns = 0;  // since whenever
  Kind kind{};
  bool again = false;   // a message that was sent before
  std::string message;  // its name; empty: it is none
  std::string text;     // what it is for, or what came of it
};
DiagramRow row_of(const ToldRecord& told);

struct Diagram {
  std::string own;                 // over this host's line
  std::string peer;                // over the other one
  std::vector<DiagramRow> rows{};  // the oldest first
};
// `records` with the newest one first.
Diagram diagram_of(const std::vector<ToldRecord>& records);

// A whole SVG file that needs nothing else: this host's line and the peer's, with an arrow for every message and the
// calls, timers and events beside it, from the oldest down; one row for each, with its time.
std::string diagram_svg(const Diagram& diagram);

}  // namespace ucm::cli
