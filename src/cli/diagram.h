// The story of a connection as a ladder diagram.
#pragma once

#include <string>
#include <vector>

#include "ipc/trace.h"

namespace ucm::cli {

// A whole SVG file that needs nothing else: this host's line and the peer's, with an arrow for every message and the
// calls, timers and events beside it, from the oldest down; one row for each, with its time. `records` with the newest
// one first.
std::string diagram_svg(const std::vector<ipc::TraceRecord>& records);

}  // namespace ucm::cli
