// In place of src/base/check.cpp: a failed check is a finding with a trace, not the end of the process.
#include <stdexcept>
#include <string>

#include "base/check.h"

namespace ucm {

void check_failed(const char* condition, const char* file, int line) {
  throw std::logic_error("check failed: " + std::string(condition) + " (" + file + ":" + std::to_string(line) + ")");
}

}  // namespace ucm
