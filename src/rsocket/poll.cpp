#include "rsocket/poll.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "rsocket/registry.h"
#include "rsocket/settings.h"
#include "rsocket/socket.h"

namespace ucm::rsocket {
namespace {

// One call of rpoll().
class Poller {
 public:
  explicit Poller(std::span<pollfd> fds) : fds_(fds) {
    for (const pollfd& entry : fds) sockets_.push_back(find_socket(entry.fd));
  }

  bool has_rsockets() const {
    return std::any_of(sockets_.begin(), sockets_.end(), [](const auto& socket) { return socket != nullptr; });
  }

  // How many are ready now.
  int look() {
    int count = 0;
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      fds_[i].revents = 0;
      if (sockets_[i] != nullptr) {
        fds_[i].revents = sockets_[i]->poll(fds_[i].events);
      } else if (fds_[i].fd >= 0) {
        ::poll(&fds_[i], 1, 0);
      }
      count += fds_[i].revents != 0 ? 1 : 0;
    }
    return count;
  }

  // Sleeps until something may be ready. 0 at the end of the time.
  Result<int> sleep(Waker& waker, int timeout_ms) {
    std::list<Waiting> waiting;
    wait_on_.clear();
    begins_.clear();
    bool ready = false;
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      begins_.push_back(wait_on_.size());
      if (sockets_[i] == nullptr) {
        wait_on_.push_back({fds_[i].fd, fds_[i].events, 0});
        continue;
      }
      waiting.emplace_back(sockets_[i]->waiters(), waker);
      ready |= sockets_[i]->poll_and_arm(fds_[i].events, wait_on_) != 0;
    }
    begins_.push_back(wait_on_.size());
    wait_on_.push_back({waker.fd(), POLLIN, 0});
    const int count = ::poll(wait_on_.data(), wait_on_.size(), ready ? 0 : timeout_ms);
    const int error = errno;
    waker.clear();
    if (count < 0) return fail(error, "interrupted");
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      if (sockets_[i] == nullptr) continue;
      sockets_[i]->after_poll(std::span(wait_on_).subspan(begins_[i], begins_[i + 1] - begins_[i]));
    }
    return ready ? 1 : count;
  }

 private:
  std::span<pollfd> fds_;
  std::vector<std::shared_ptr<Socket>> sockets_;
  std::vector<pollfd> wait_on_;
  std::vector<std::size_t> begins_;  // of each socket's part of wait_on_
};

}  // namespace

Result<int> poll_sockets(std::span<pollfd> fds, int timeout_ms) {
  Poller poller(fds);
  if (!poller.has_rsockets()) {
    const int count = ::poll(fds.data(), fds.size(), timeout_ms);
    return count >= 0 ? Result<int>(count) : fail(errno, "poll");
  }
  auto waker = Waker::of_this_thread();
  if (!waker) return tl::unexpected(waker.error());
  const Clock::time_point start = Clock::now();
  const auto end = start + std::chrono::milliseconds(timeout_ms);
  const auto spin_end = start + std::chrono::microseconds(defaults().polling_time_us);
  for (;;) {
    if (const int count = poller.look(); count != 0 || timeout_ms == 0) return count;
    const Clock::time_point now = Clock::now();
    if (timeout_ms > 0 && now >= end) return 0;
    if (now < spin_end) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now).count();
    if (auto slept = poller.sleep(**waker, timeout_ms < 0 ? -1 : static_cast<int>(left)); !slept) return slept;
  }
}

Result<int> select_sockets(int count, fd_set* readable, fd_set* writable, fd_set* exceptional, timeval* timeout) {
  std::vector<pollfd> fds;
  const auto wants = [](int fd, const fd_set* set) { return set != nullptr && FD_ISSET(fd, set); };
  for (int fd = 0; fd < count; ++fd) {
    const int events = (wants(fd, readable) ? POLLIN : 0) | (wants(fd, writable) ? POLLOUT : 0);
    if (events != 0 || wants(fd, exceptional)) fds.push_back({fd, static_cast<short>(events), 0});
  }
  const auto timeout_ms = timeout != nullptr ? timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000 : -1;
  const auto polled = poll_sockets(fds, static_cast<int>(std::min<decltype(timeout_ms)>(timeout_ms, INT32_MAX)));
  if (!polled) return polled;
  if (std::any_of(fds.begin(), fds.end(), [](const pollfd& entry) { return (entry.revents & POLLNVAL) != 0; })) {
    return fail(EBADF, "select");
  }
  int marks = 0;
  const auto keep = [&](fd_set* set, const pollfd& entry, int events) {
    if (!wants(entry.fd, set)) return;
    if ((entry.revents & events) == 0) {
      FD_CLR(entry.fd, set);
    } else {
      ++marks;
    }
  };
  for (const pollfd& entry : fds) {
    keep(readable, entry, POLLIN | POLLHUP | POLLERR);
    keep(writable, entry, POLLOUT | POLLERR);
    keep(exceptional, entry, POLLPRI);
  }
  return marks;
}

}  // namespace ucm::rsocket
