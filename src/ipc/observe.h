// What `ucm` asks of a running node beside its status. After the reply to kObserve come messages on the same socket,
// each a ControlHeader and a piece of the answer; a header alone ends it. A trace has no end but the session's; a
// recording that its reader was too slow for ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ipc/control_messages.h"
#include "ipc/trace.h"

namespace ucm::ipc {

enum class Subject : std::uint32_t {
  kList = 1,  // every piece is a JSON array of listeners and connections
  kShow,      // of the connection that `argument` (an ID, or else a comm ID) names, newest record first: each a
              // TraceFrame without a MAD, and behind it why a call or an event is a failure
  kStats,     // JSON text, cut anywhere
  kTrace,     // from now on: each record a TraceFrame, and the MAD of a message behind it
  kRecord,    // from now on: records of the engine as in a file (src/recording); never a part of one
};

// A record as it happens. `record.kind` 0 tells instead how many records the reader was too slow for (`record.status`).
struct TraceFrame {
  TraceRecord record;
  std::array<std::uint8_t, 16> source{};
  std::array<std::uint8_t, 16> destination{};
  std::uint32_t ifindex = 0;
  std::uint16_t source_port = 0;
  std::uint16_t mad_size = 0;  // bytes behind this; 0: not a message
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t sent = 0;
  std::uint8_t why_size = 0;  // kShow: bytes of text behind this
  std::uint8_t reserved[4]{};
};
static_assert(sizeof(TraceFrame) == 112 && std::is_trivially_copyable_v<TraceFrame>);

// A piece is at most so long; nothing in it is cut in two, but text.
inline constexpr std::size_t kObservePieceMax = 48 * 1024;
inline constexpr std::size_t kObserveMessageMax = sizeof(ControlHeader) + kObservePieceMax;

}  // namespace ucm::ipc
