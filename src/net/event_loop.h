// A single-threaded epoll loop: file descriptors, one clock, and hooks that run once per turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "base/time.h"

namespace ucm::net {

class EventLoop {
 public:
  static Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();

  // CLOCK_MONOTONIC, read once per turn.
  TimeNs now() const;

  // kLevel: as long as it is readable. kEdge: once whenever somebody has written to it; nobody needs to read.
  enum class Trigger { kLevel, kEdge };

  // `ready` runs when fd is readable or hung up, with the epoll event bits. One entry per fd.
  Result<void> add(int fd, std::function<void(std::uint32_t epoll_events)> ready, Trigger trigger = Trigger::kLevel);
  // Safe inside callbacks, also for the fd being served.
  void remove(int fd);

  // Runs once per turn after the fds were served: does what is due and returns the next deadline (kNever: none).
  void add_hook(std::function<TimeNs(TimeNs now)> hook);
  // Runs just before sleeping; returns false when there is work and the loop must not sleep this turn.
  void add_before_sleep(std::function<bool()> prepare, std::function<void()> after_wake);

  // Runs until stop(). Bounded work per turn.
  void run();
  // From inside a hook: there was work, so that more is likely soon.
  void stay_awake();
  // From inside the loop's thread.
  void stop();

 private:
  struct Impl;
  explicit EventLoop(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ucm::net
