// Assertions that stay on in release builds: a programmer's fault ends the process with a message.
#pragma once

namespace ucm {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace ucm

#define UCM_CHECK(condition) \
  (static_cast<bool>(condition) ? void() : ::ucm::check_failed(#condition, __FILE__, __LINE__))
