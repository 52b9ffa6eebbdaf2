// Where C++ ends: results become return values and errno, exceptions become ENOMEM.
#pragma once

#include <cerrno>
#include <exception>

#include "base/result.h"

namespace ucm::rdma {

// Sets errno; with UCM_DEBUG set in the environment, says on stderr what failed and why.
void report(const char* function, const Error& error);

// Runs `body`, which returns a Result; its value goes to `store`. 0, or -1 with errno set.
//
// Only std::exception is caught: the unwinding of a cancelled thread must pass through.
template <class Body, class Store>
int guarded(const char* function, Body&& body, Store&& store) {
  try {
    auto result = body();
    if (result) {
      store(result);
      return 0;
    }
    report(function, result.error());
  } catch (const std::exception&) {
    errno = ENOMEM;
  }
  return -1;
}

template <class Body>
int guarded(const char* function, Body&& body) {
  return guarded(function, body, [](const auto&) {});
}

}  // namespace ucm::rdma
