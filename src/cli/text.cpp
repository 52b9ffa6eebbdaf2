#include "cli/text.h"

#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace ucm::cli {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string hex(std::uint64_t value, int digits) {
  std::array<char, 24> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "0x%0*" PRIx64, digits, value);
  return buffer.data();
}

std::int64_t wall_offset_ns() {
  using std::chrono::nanoseconds;
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const auto steady = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(wall).count() -
         std::chrono::duration_cast<nanoseconds>(steady).count();
}

int say_failure(const Error& error) {
  std::fprintf(stderr, "ucm: %s\n", error.message.c_str());
  return EXIT_FAILURE;
}

}  // namespace ucm::cli
