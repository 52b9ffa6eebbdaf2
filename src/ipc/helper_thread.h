// The threads that UCM starts in programs.
#pragma once

#include <pthread.h>

#include <functional>

#include "base/result.h"

namespace ucm::ipc {

// Starts a thread that the program does not notice. Its name begins with "ucm-", it takes no signals except for faults
// of its own, and its stack is the same whatever the program has chosen for its own threads (`ulimit -s`,
// pthread_setattr_default_np()). The caller joins or detaches it.
Result<pthread_t> start_helper_thread(const char* name, std::function<void()> body);

}  // namespace ucm::ipc
