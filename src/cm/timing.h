// The CM's times: exponents of 4.096 us on the wire, converted as Linux does.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace ucm::cm {

// Linux: 2^(t-8) ms, at least 1; exact would be 4.9 % more.
constexpr std::uint32_t milliseconds(std::uint8_t exponent) { return exponent > 8 ? 1u << (exponent - 8) : 1u; }

constexpr TimeNs duration(std::uint32_t ms) { return TimeNs{ms} * kNanosecondsPerMillisecond; }

// The local ACK timeout of a QP: twice the packet lifetime plus the peer's ACK delay, as one exponent.
constexpr std::uint8_t ack_timeout(std::uint8_t ack_delay, std::uint8_t packet_lifetime) {
  const int trip = packet_lifetime + 1;
  const int sum =
      trip >= ack_delay ? trip + (ack_delay >= trip - 1 ? 1 : 0) : ack_delay + (trip >= ack_delay - 1 ? 1 : 0);
  return static_cast<std::uint8_t>(std::min(sum, 31));
}

static_assert(milliseconds(20) == 4096 && milliseconds(24) == 65536 && milliseconds(3) == 1);
static_assert(ack_timeout(15, 16) == 17 && ack_timeout(15, 18) == 19 && ack_timeout(15, 13) == 16);

}  // namespace ucm::cm
