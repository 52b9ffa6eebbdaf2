#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace ucm {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "ucm: %s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace ucm
