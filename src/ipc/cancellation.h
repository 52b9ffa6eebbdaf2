// Threads that a program cancels.
#pragma once

#include <pthread.h>

namespace ucm::ipc {

// Keeps the calling thread from being cancelled in the middle of a call: programs cancel threads that wait for events,
// and mean their own waits.
class CancellationOff {
 public:
  CancellationOff() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &previous_); }
  ~CancellationOff() { pthread_setcancelstate(previous_, nullptr); }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  int previous_ = 0;
};

}  // namespace ucm::ipc
