// Every limit and tuning constant of the device that its users need not see, with the reason for each.
// What users do need to see is in engine.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace ucm::roce {

// Linux: an rxe requester keeps at most 128 PSNs unacknowledged; staying below that suits every peer.
inline constexpr std::uint32_t kWindowPacketsMax = 128;
// What a QP may have in flight before it has heard anything: all QPs of a host share one UDP receive buffer, which on a
// stock system is 208 KiB counted with overhead.
inline constexpr std::uint32_t kWindowPacketsInitial = 32;
inline constexpr std::uint32_t kWindowBytesInitial = 64 * 1024;
// Loss never shrinks the window below this: with one packet alone every loss would need a timer.
inline constexpr std::uint32_t kWindowPacketsMin = 4;
// An acknowledgement is asked for at least this often, so that the window keeps moving inside long messages. (Linux
// asks every 64 packets; a window may be smaller than that.)
inline constexpr std::uint32_t kAckEveryPackets = 8;

// What all retries of a QP last at least, as far as the specification lets: on a busy host a process that could answer,
// or the node that would pass it on, waits for a processor for hundreds of milliseconds.
inline constexpr TimeNs kRetriesMin = 2 * kNanosecondsPerSecond;
// IBTA 9.7.6.1.3: a timeout is noticed between once and four times the interval that is set.
inline constexpr TimeNs kRetryIntervalsMax = 4;

// The probe timer resends what is unacknowledged long before the QP's own `timeout` would, and costs no retry.
// Its floor is above the time a busy host takes to schedule the receiving thread.
inline constexpr TimeNs kProbeDelayMin = 5 * kNanosecondsPerMillisecond;
// Before the first measured round trip.
inline constexpr TimeNs kProbeDelayInitial = 20 * kNanosecondsPerMillisecond;
inline constexpr TimeNs kProbeDelayMax = kNanosecondsPerSecond;
// Probes without an answer before only the QP's `timeout` is left; together about ten seconds.
inline constexpr std::uint32_t kProbesMax = 16;

// Responses a QP owes beyond those to READs and atomics: acknowledgements merge, so few are ever needed.
inline constexpr std::size_t kResponsesSpare = 8;
// Acknowledgements still owed by destroyed QPs; more are dropped, and the peers' retries then decide.
inline constexpr std::size_t kFarewellsMax = 1024;
// How often a destroyed QP's last acknowledgement is said again: where 1 % gets lost, once in a million all of them
// are.
inline constexpr std::size_t kFarewellRepeats = 2;

inline constexpr std::uint32_t kObjectsMax = 1u << 20;  // of each kind; the slot part of an id
// Linux: where a gather element is kept, as many bytes of inline data may be. rdma_xclient sends 16 and asks for none.
inline constexpr std::uint32_t kInlinePerSge = 16;
inline constexpr std::size_t kGroupsPerQpMax = 64;  // multicast groups of one QP: a search goes through all
inline constexpr std::size_t kGrhSize = 40;         // bytes in front of a UD message
inline constexpr std::uint8_t kRetriesEndless = 7;  // rnr_retry

}  // namespace ucm::roce
