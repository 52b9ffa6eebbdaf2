#include "rsocket/socket.h"

#include <fcntl.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rsocket/settings.h"

namespace ucm::rsocket {

void AddressOut::store(const sockaddr_storage& value) const {
  if (size == nullptr) return;
  const socklen_t whole = value.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  // Debian's librspreload.so asks for the size alone, to learn the family.
  if (address != nullptr) std::memcpy(address, &value, std::min(*size, whole));
  *size = whole;
}

Result<int> Socket::control(int command, int argument) {
  switch (command) {
    case F_GETFL:
      return O_RDWR | status_flags_;
    case F_SETFL:
      status_flags_ = argument & O_NONBLOCK;
      return 0;
    case F_GETFD:
    case F_SETFD: {
      const int done = fcntl(fd(), command, argument);
      if (done < 0) return fail(errno, "fcntl");
      return done;
    }
    default:
      return fail(ENOTSUP, "unknown command of fcntl");
  }
}

Result<off_t> Socket::map_memory(void* /*memory*/, std::size_t /*size*/, int /*protection*/, off_t /*offset*/) {
  return fail(ENOTSUP, "only streams map memory");
}
Result<void> Socket::unmap_memory(void* /*memory*/, std::size_t /*size*/) {
  return fail(ENOTSUP, "only streams map memory");
}
Result<std::size_t> Socket::write_mapped(const void* /*data*/, std::size_t /*size*/, off_t /*offset*/, int /*flags*/) {
  return fail(ENOTSUP, "only streams map memory");
}

short Socket::poll(short events) {
  const std::lock_guard lock(mutex_);
  progress();
  return static_cast<short>(ready() & (events | POLLERR | POLLHUP));
}

short Socket::poll_and_arm(short events, std::vector<pollfd>& wait_on) {
  const std::lock_guard lock(mutex_);
  arm(wait_on);
  progress();
  return static_cast<short>(ready() & (events | POLLERR | POLLHUP));
}

void Socket::after_poll(std::span<const pollfd> waited_on) {
  const std::lock_guard lock(mutex_);
  take_events(waited_on);
}

bool Socket::spin(std::unique_lock<std::mutex>& lock, std::optional<Clock::time_point>& until) {
  const Clock::time_point now = Clock::now();
  if (!until) until = now + std::chrono::microseconds(defaults().polling_time_us);
  if (now >= *until) return false;
  // Another thread may want the socket meanwhile.
  lock.unlock();
  lock.lock();
  return true;
}

Result<void> Socket::sleep(std::unique_lock<std::mutex>& lock, std::vector<pollfd>& wait_on) {
  auto waker = Waker::of_this_thread();
  if (!waker) return tl::unexpected(waker.error());
  wait_on.push_back({(*waker)->fd(), POLLIN, 0});
  int ready_count = 0;
  int error = 0;
  {
    const Waiting waiting(waiters_, **waker);
    lock.unlock();
    ready_count = ::poll(wait_on.data(), wait_on.size(), -1);
    error = errno;
    lock.lock();
  }
  (*waker)->clear();
  if (ready_count < 0) return fail(error, "interrupted");
  wait_on.pop_back();
  take_events(wait_on);
  return {};
}

}  // namespace ucm::rsocket
