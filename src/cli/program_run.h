// `ucm run`: a program with UCM's libraries in front of the system's, and a node for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace ucm::cli {

// What the shell's own tools use: 125 for a failure of ucm itself, 126 for a program that cannot be run, 127 for one
// that is not there.
inline constexpr int kExitOwnFailure = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Whose devices the program gets.
enum class DeviceChoice : std::uint8_t {
  kAuto,   // the system's when it has one that can be opened
  kSoft,   // UCM's software devices
  kVerbs,  // those of the system's libibverbs
};

struct RunOptions {
  DeviceChoice device = DeviceChoice::kAuto;
  bool embedded = false;
  std::string faults;
  double idle_exit_s = 30;
  bool verbose = false;
  std::vector<std::string> command;  // the program and its arguments; not empty
};

// The folder of UCM's libraries, beside that of this program. ENOENT: they are not there.
Result<std::string> find_libraries();

// Becomes the program; returns an exit code only when that fails.
int run_program(const RunOptions& options);

}  // namespace ucm::cli
