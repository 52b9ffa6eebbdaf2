#include "abi/rdmacm/boundary.h"

#include <cstdio>
#include <cstdlib>

namespace ucm::rdma {

void report(const char* function, const Error& error) {
  static const bool debug = std::getenv("UCM_DEBUG") != nullptr;
  if (debug && error.code != EAGAIN) std::fprintf(stderr, "ucm: %s: %s\n", function, error.message.c_str());
  errno = error.code;
}

}  // namespace ucm::rdma
