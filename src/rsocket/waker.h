// How a thread that sleeps in poll() hears that another thread has changed something: each thread has an eventfd, and a
// socket a list of those that wait for it.
#pragma once

#include <mutex>
#include <vector>

#include "base/result.h"

namespace ucm::rsocket {

// The eventfd of the calling thread.
class Waker {
 public:
  // That of this thread, made at the first call.
  static Result<Waker*> of_this_thread();
  Waker() = default;
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  int fd() const { return fd_; }
  void wake();
  void clear();

 private:
  int fd_ = -1;
  unsigned generation_ = 0;  // a child's threads share nothing with the parent's
};

class Waiters {
 public:
  void add(Waker& waker);
  void remove(Waker& waker);
  // All but the calling thread's.
  void wake_others();

 private:
  std::mutex mutex_;
  std::vector<Waker*> wakers_;
};

// Waits for as long as it lives.
class Waiting {
 public:
  Waiting(Waiters& waiters, Waker& waker) : waiters_(waiters), waker_(waker) { waiters_.add(waker_); }
  ~Waiting() { waiters_.remove(waker_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Waiters& waiters_;
  Waker& waker_;
};

}  // namespace ucm::rsocket
