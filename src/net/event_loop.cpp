#include "net/event_loop.h"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "net/owned_fd.h"

namespace ucm::net {
namespace {

// fds served per turn; those that are left stay readable and come first in the next turn.
constexpr int kReadyFdsPerTurn = 64;

// How long the loop keeps turning after the last work before it sleeps: a sleep and a cross-core wake-up cost more than
// 20 us, a busy round trip less than 10. Only where a program, its peer and the node have a core each: on fewer cores
// it keeps one of them from running, and everything takes longer (docs/performance.md).
constexpr TimeNs kSpinNs = 20 * kNanosecondsPerMicrosecond;
constexpr unsigned kCoresToSpin = 3;
// Meanwhile hooks look at memory in every turn, and the kernel is asked for readable descriptors this often.
constexpr TimeNs kLookNs = 3 * kNanosecondsPerMicrosecond;

TimeNs monotonic_now() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * kNanosecondsPerSecond + ts.tv_nsec;
}

int wait_ready(int epoll_fd, epoll_event* events, TimeNs timeout_ns) {
  if (timeout_ns == kNever) return epoll_wait(epoll_fd, events, kReadyFdsPerTurn, -1);
  const timespec timeout{.tv_sec = timeout_ns / kNanosecondsPerSecond, .tv_nsec = timeout_ns % kNanosecondsPerSecond};
  const int ready = epoll_pwait2(epoll_fd, events, kReadyFdsPerTurn, &timeout, nullptr);
  if (ready >= 0 || errno != ENOSYS) return ready;
  // Linux < 5.11: whole milliseconds, rounded up so that the deadline has passed on return.
  const TimeNs timeout_ms =
      std::min<TimeNs>((timeout_ns + kNanosecondsPerMillisecond - 1) / kNanosecondsPerMillisecond, 60'000);
  return epoll_wait(epoll_fd, events, kReadyFdsPerTurn, static_cast<int>(timeout_ms));
}

}  // namespace

struct EventLoop::Impl {
  struct Source {
    std::uint32_t generation;
    // Shared, so that a callback may remove its own entry while it runs.
    std::shared_ptr<std::function<void(std::uint32_t)>> ready;
  };
  struct SleepHook {
    std::function<bool()> prepare;
    std::function<void()> after_wake;
  };

  OwnedFd epoll;
  TimeNs now = monotonic_now();
  TimeNs spin_ns = 0;
  bool stopped = false;
  bool busy = false;
  std::uint32_t next_generation = 0;
  std::unordered_map<int, Source> sources;
  std::vector<std::function<TimeNs(TimeNs)>> hooks;
  std::vector<SleepHook> sleep_hooks;

  void serve(const epoll_event& event);
  TimeNs run_hooks();
  int sleep(std::array<epoll_event, kReadyFdsPerTurn>& events, TimeNs deadline);
};

// An event whose fd was removed (and perhaps added anew) earlier in the same turn carries a generation that is gone.
void EventLoop::Impl::serve(const epoll_event& event) {
  const auto fd = static_cast<int>(event.data.u64 & UINT32_MAX);
  const auto it = sources.find(fd);
  if (it == sources.end() || it->second.generation != event.data.u64 >> 32) return;
  const auto ready = it->second.ready;
  (*ready)(event.events);
}

TimeNs EventLoop::Impl::run_hooks() {
  TimeNs deadline = kNever;
  // By index: a hook may add another one.
  for (std::size_t i = 0; i < hooks.size(); ++i) deadline = std::min(deadline, hooks[i](now));
  return deadline;
}

// Every hook that was prepared is told of the wake-up, also when a later one refuses.
int EventLoop::Impl::sleep(std::array<epoll_event, kReadyFdsPerTurn>& events, TimeNs deadline) {
  const std::size_t count = sleep_hooks.size();
  std::size_t prepared = 0;
  bool may_sleep = true;
  while (may_sleep && prepared < count) may_sleep = sleep_hooks[prepared++].prepare();

  TimeNs timeout_ns = 0;
  if (may_sleep) timeout_ns = deadline == kNever ? kNever : std::max<TimeNs>(0, deadline - monotonic_now());
  const int ready = wait_ready(epoll.get(), events.data(), timeout_ns);
  for (std::size_t i = 0; i < prepared; ++i) sleep_hooks[i].after_wake();
  return ready;
}

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  auto impl = std::make_unique<Impl>();
  impl->epoll = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  if (!impl->epoll.valid()) return fail(errno, std::string("epoll_create1: ") + std::strerror(errno));
  if (std::thread::hardware_concurrency() >= kCoresToSpin) impl->spin_ns = kSpinNs;
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(impl)));
}

EventLoop::EventLoop(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventLoop::~EventLoop() = default;

TimeNs EventLoop::now() const { return impl_->now; }

Result<void> EventLoop::add(int fd, std::function<void(std::uint32_t)> ready, Trigger trigger) {
  UCM_CHECK(!impl_->sources.contains(fd));
  const std::uint32_t generation = impl_->next_generation++;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  if (trigger == Trigger::kEdge) event.events |= EPOLLET;
  event.data.u64 = std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(fd);
  if (epoll_ctl(impl_->epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return fail(errno, "cannot watch descriptor " + std::to_string(fd) + ": " + std::strerror(errno));
  }
  impl_->sources[fd] = {generation, std::make_shared<std::function<void(std::uint32_t)>>(std::move(ready))};
  return {};
}

void EventLoop::remove(int fd) {
  if (impl_->sources.erase(fd) != 0) epoll_ctl(impl_->epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::add_hook(std::function<TimeNs(TimeNs)> hook) { impl_->hooks.push_back(std::move(hook)); }

void EventLoop::add_before_sleep(std::function<bool()> prepare, std::function<void()> after_wake) {
  impl_->sleep_hooks.push_back({std::move(prepare), std::move(after_wake)});
}

void EventLoop::run() {
  std::array<epoll_event, kReadyFdsPerTurn> events;
  TimeNs spin_until = 0;
  TimeNs next_look = 0;
  impl_->stopped = false;
  while (true) {
    impl_->now = monotonic_now();
    const TimeNs deadline = impl_->run_hooks();
    if (impl_->stopped) return;

    if (impl_->busy) spin_until = impl_->now + impl_->spin_ns;
    impl_->busy = false;
    const bool spin = impl_->now < spin_until;
    if (spin && impl_->now < next_look) continue;
    const int ready = spin ? wait_ready(impl_->epoll.get(), events.data(), 0) : impl_->sleep(events, deadline);
    impl_->now = monotonic_now();
    next_look = impl_->now + kLookNs;
    if (ready > 0) spin_until = impl_->now + impl_->spin_ns;
    for (int i = 0; i < ready; ++i) impl_->serve(events[i]);
    if (impl_->stopped) return;
  }
}

void EventLoop::stay_awake() { impl_->busy = true; }

void EventLoop::stop() { impl_->stopped = true; }

}  // namespace ucm::net
