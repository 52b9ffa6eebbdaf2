#include "rsocket/service.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "ipc/helper_thread.h"

namespace ucm::rsocket {
namespace {

// Never destroyed: its thread may run while the program exits.
constinit Service* service = nullptr;
constinit std::mutex creation;  // of the service

// The parent's is left alone in a child. The lock is made anew there: another thread may have held it.
[[gnu::constructor]] void forget_in_children() {
  pthread_atfork(nullptr, nullptr, [] {
    service = nullptr;
    std::construct_at(&creation);
  });
}

}  // namespace

Service& Service::instance() {
  const std::lock_guard lock(creation);
  if (service == nullptr) service = new Service;
  return *service;
}

Result<void> Service::attend(std::shared_ptr<Socket> socket) {
  const std::lock_guard lock(mutex_);
  if (kick_fd_ < 0) {
    if (auto started = start(); !started) return started;
  }
  const auto known = std::ranges::find(entries_, socket, &Entry::socket);
  if (known != entries_.end()) {
    known->asked = true;
  } else {
    entries_.push_back({std::move(socket), true});
  }
  kick();
  return {};
}

Result<void> Service::start() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return fail(errno, "no eventfd for the service thread");
  kick_fd_ = fd;
  const auto thread = ipc::start_helper_thread("ucm-rsocket", [this] { run(); });
  if (!thread) {
    kick_fd_ = -1;
    ::close(fd);
    return tl::unexpected(thread.error());
  }
  pthread_detach(*thread);
  return {};
}

void Service::kick() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(kick_fd_, &one, sizeof(one)));
}

void Service::run() {
  std::vector<pollfd> wait_on;
  for (;;) {
    wait_on.clear();
    wait_on.push_back({kick_fd_, POLLIN, 0});
    const int timeout_ms = turn(wait_on);
    ::poll(wait_on.data(), wait_on.size(), timeout_ms);
    std::uint64_t kicks = 0;
    static_cast<void>(!::read(kick_fd_, &kicks, sizeof(kicks)));
  }
}

int Service::turn(std::vector<pollfd>& wait_on) {
  std::vector<std::shared_ptr<Socket>> serving;
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      entry.asked = false;
      serving.push_back(entry.socket);
    }
  }
  const Clock::time_point now = Clock::now();
  Clock::time_point next = Clock::time_point::max();
  for (const std::shared_ptr<Socket>& socket : serving) {
    if (const auto again = socket->serve(now, wait_on)) {
      next = std::min(next, *again);
      continue;
    }
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const Entry& entry) { return entry.socket == socket && !entry.asked; });
  }
  if (next == Clock::time_point::max()) return -1;
  const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  return static_cast<int>(std::clamp<std::int64_t>(wait_ms, 0, 3'600'000));
}

}  // namespace ucm::rsocket
