// What several commands print with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace ucm::cli {

// With spaces behind it up to a width.
std::string padded(std::string text, std::size_t width);
// "0x00002a"
std::string hex(std::uint64_t value, int digits);
// What makes a time since 1970 of one of CLOCK_MONOTONIC.
std::int64_t wall_offset_ns();
// Says on standard error what failed; returns the exit status for it.
int say_failure(const Error& error);

}  // namespace ucm::cli
