// Result<T>: a value or an Error that says enough to act on. Used for faults of the environment and for
// refused requests; a programmer's fault is UCM_CHECK, a peer's fault is counted and dropped.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace ucm {

struct Error {
  int code = 0;         // an errno value, never 0
  std::string message;  // what failed, with which address, device or limit; no trailing newline
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(int code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace ucm
