// Time as the engines see it: an argument, never a clock.
#pragma once

#include <cstdint>
#include <limits>

namespace ucm {

// A point on, or a length of, one monotonic time line, in nanoseconds. Its zero means nothing.
using TimeNs = std::int64_t;

inline constexpr TimeNs kNanosecondsPerMicrosecond = 1'000;
inline constexpr TimeNs kNanosecondsPerMillisecond = 1'000'000;
inline constexpr TimeNs kNanosecondsPerSecond = 1'000'000'000;

// What next_deadline() returns when nothing is scheduled.
inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

}  // namespace ucm
