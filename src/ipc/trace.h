// What a node tells of its connections, one record for each message, call, timer and event: the flight recorder keeps
// them, `ucm show` and `ucm trace` print them. A wire format between a node and the `ucm` of the same version.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace ucm::ipc {

enum class TraceKind : std::uint8_t {
  kBegin = 1,  // a connection has begun, in state `to`; `message` when a message has made it
  kReceived,   // a message for a connection: input, action, from, to
  kStray,      // a message for no connection; `status` is what counts it (trace_counter names)
  kSent,       // a message; `input` (in state `from`) is what for, or with kAnswersStray what `status` counts
  kStep,       // a call or a timer at a connection: input, action, from, to
  kCall,       // a call of a program: `input` is its CmCall; `status` is errno, 0 = done
  kEvent,      // an event for a program: `input` is its CmEventType; `status` as the program sees it
};

// TraceRecord::flags
inline constexpr std::uint8_t kTraceSidr = 1;          // input, action, from and to are those of a SIDR exchange
inline constexpr std::uint8_t kTraceActive = 2;        // this side asked
inline constexpr std::uint8_t kTraceAnswersStray = 4;  // kSent
inline constexpr std::uint8_t kTraceLastWords = 8;     // kSent: said again because nobody answers it
inline constexpr std::uint8_t kTraceSidrConnect = 16;  // kSent: the call itself is what for

// Nobody's: root and the node's own user may see it.
inline constexpr std::uint32_t kTraceNoUser = UINT32_MAX;

struct TraceRecord {
  std::int64_t time_ns = 0;    // CLOCK_MONOTONIC
  std::uint32_t previous = 0;  // how many records back the one before of the same connection is; 0: there is none
  std::uint32_t id = 0;        // of rdma_cm; 0: none
  std::uint32_t local_comm_id = 0;
  std::uint32_t remote_comm_id = 0;
  std::uint32_t user = kTraceNoUser;
  std::int32_t status = 0;
  std::array<std::uint8_t, 16> peer{};  // IPv6, or IPv4 in mapped form
  TraceKind kind{};
  std::uint8_t message = 0;  // low byte of the MAD's attribute; 0: none
  std::uint8_t input = 0;
  std::uint8_t action = 0;
  std::uint8_t from = 0;
  std::uint8_t to = 0;
  std::uint8_t repetition = 0;
  std::uint8_t flags = 0;
  std::uint32_t local_qpn = 0;
  std::uint32_t remote_qpn = 0;
};
static_assert(sizeof(TraceRecord) == 64 && std::is_trivially_copyable_v<TraceRecord>);

}  // namespace ucm::ipc
