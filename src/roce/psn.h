// Packet sequence numbers: 24 bits, compared modulo 2^24 (IBTA 9.7.2).
#pragma once

#include <cstdint>

#include "wire/headers.h"

namespace ucm::roce {

constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t count) { return (psn + count) & wire::kMask24; }

// How far `to` lies ahead of `from`; negative when it lies behind.
constexpr std::int32_t psn_distance(std::uint32_t from, std::uint32_t to) {
  const std::uint32_t ahead = (to - from) & wire::kMask24;
  return ahead < 0x800000 ? static_cast<std::int32_t>(ahead) : static_cast<std::int32_t>(ahead) - 0x1000000;
}

}  // namespace ucm::roce
