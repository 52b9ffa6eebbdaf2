// Limits of a node, with their reasons.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace ucm::node {

// Requests an application has not read yet, per listener; also what a backlog of 0 means.  // Linux: sysctl max_backlog
inline constexpr std::uint32_t kBacklogMax = 1024;

// Datagrams taken per readable socket and turn: the commands of programs get their turn under a flood.
inline constexpr std::size_t kDatagramsPerTurn = 256;

// Expired timers of the engine served per turn, in calls that are bounded themselves.
inline constexpr int kDeadlineCallsPerTurn = 64;

// Connections looked at per call of list().
inline constexpr std::uint32_t kListSlotsMax = 1024;

// How often a waited-for neighbour is looked at again beside the kernel's notifications, which may be lost.
inline constexpr TimeNs kNeighborCheckNs = 100 * kNanosecondsPerMillisecond;

// After this time a port that holds datagrams back (injected faults) is asked again.
inline constexpr TimeNs kHeldDatagramsNs = kNanosecondsPerMillisecond;

}  // namespace ucm::node
