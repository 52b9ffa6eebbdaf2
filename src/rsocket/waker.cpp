#include "rsocket/waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "rdma/process.h"

namespace ucm::rsocket {
namespace {

thread_local Waker this_thread;

}  // namespace

Waker::~Waker() {
  if (fd_ >= 0) ::close(fd_);
}

Result<Waker*> Waker::of_this_thread() {
  Waker& waker = this_thread;
  if (waker.fd_ >= 0 && waker.generation_ == rdma::fork_generation()) return &waker;
  if (waker.fd_ >= 0) ::close(waker.fd_);
  waker.fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (waker.fd_ < 0) return fail(errno, "no eventfd for a waiting thread");
  waker.generation_ = rdma::fork_generation();
  return &waker;
}

void Waker::wake() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(fd_, &one, sizeof(one)));  // full: awake already
}

void Waker::clear() {
  std::uint64_t count = 0;
  static_cast<void>(!::read(fd_, &count, sizeof(count)));
}

void Waiters::add(Waker& waker) {
  const std::lock_guard lock(mutex_);
  wakers_.push_back(&waker);
}

void Waiters::remove(Waker& waker) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(wakers_.begin(), wakers_.end(), &waker);
  if (found != wakers_.end()) wakers_.erase(found);
}

void Waiters::wake_others() {
  const std::lock_guard lock(mutex_);
  for (Waker* waker : wakers_) {
    if (waker != &this_thread) waker->wake();
  }
}

}  // namespace ucm::rsocket
