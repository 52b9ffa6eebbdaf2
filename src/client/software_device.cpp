#include "client/software_device.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "ipc/helper_thread.h"

namespace ucm::client {

namespace {

// Held while the device of this process is made.
constinit std::mutex creation;

Error system_error(const char* what) {
  const int code = errno;
  return Error{code, std::string(what) + ": " + std::strerror(code)};
}

Result<RandomKey> random_key() {
  RandomKey key{};
  if (getrandom(key.data(), sizeof key, 0) != sizeof key) return tl::unexpected(system_error("no random bytes"));
  return key;
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void drain(int eventfd) {
  std::uint64_t count = 0;
  // Non-blocking; nothing to read is as good.
  (void)!read(eventfd, &count, sizeof count);
}

}  // namespace

constinit std::atomic<SoftwareDevice*> SoftwareDevice::current{nullptr};

// A forked child starts without a device: its parent's thread and attachment to the node are not its own. The lock is
// made anew there, for a thread that does not exist in the child may have held it.
void SoftwareDevice::forget_in_children() {
  pthread_atfork(nullptr, nullptr, [] {
    current.store(nullptr);
    std::construct_at(&creation);
  });
}

Result<SoftwareDevice*> SoftwareDevice::get(const Sinks& sinks) {
  if (SoftwareDevice* const device = current.load(std::memory_order_acquire)) return device;
  const std::lock_guard lock(creation);
  if (SoftwareDevice* const device = current.load(std::memory_order_relaxed)) return device;
  auto created = create(sinks);
  if (!created) return tl::unexpected(std::move(created.error()));
  SoftwareDevice* const device = created->release();
  current.store(device, std::memory_order_release);
  return device;
}

Result<std::unique_ptr<SoftwareDevice>> SoftwareDevice::create(const Sinks& sinks) {
  auto session = Session::get();
  if (!session) return tl::unexpected(std::move(session.error()));
  const auto sockets = (*session)->send_sockets();
  if (!sockets) return tl::unexpected(sockets.error());
  auto link = (*session)->open_data_link();
  if (!link) return tl::unexpected(std::move(link.error()));
  if (auto watched = (*session)->watch_devices(sinks.devices_changed); !watched) return tl::unexpected(watched.error());
  const auto key = random_key();
  if (!key) return tl::unexpected(key.error());
  const int kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (kick_fd < 0) return tl::unexpected(system_error("no eventfd for the software device"));

  std::unique_ptr<SoftwareDevice> device(
      new SoftwareDevice(sinks, std::move(*session), std::move(*link), *sockets, *key, kick_fd));
  if (auto started = device->start_helper(); !started) {
    close(kick_fd);
    return tl::unexpected(std::move(started.error()));
  }
  return device;
}

SoftwareDevice::SoftwareDevice(const Sinks& sinks, std::shared_ptr<Session> session, std::unique_ptr<DataLink> link,
                               const SendSockets& sockets, const RandomKey& key, int kick_fd)
    : sinks_(sinks),
      session_(std::move(session)),
      link_(std::move(link)),
      kick_fd_(kick_fd),
      engine_(key),
      sender_({.ipv4 = sockets.ipv4, .ipv6 = sockets.ipv6, .port = sockets.port}) {}

Result<void> SoftwareDevice::start_helper() {
  const auto thread = ipc::start_helper_thread("ucm-device", [this] { run_helper(); });
  if (!thread) return tl::unexpected(thread.error());
  pthread_detach(*thread);
  return {};
}

TimeNs SoftwareDevice::clock_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNanosecondsPerSecond + now.tv_nsec;
}

void SoftwareDevice::settle(TimeNs now) {
  // Before events are passed on: a thread that an event wakes must not take its queue for unchanged.
  progress_.fetch_add(1, std::memory_order_release);
  send_packets(now);
  while (const auto event = engine_.poll_event()) sinks_.event(*event);
  const TimeNs wake = next_wake(now);
  if (wake < wakes_at_) {
    wakes_at_ = wake;
    kick();
  }
}

void SoftwareDevice::kick() {
  const std::uint64_t one = 1;
  (void)!write(kick_fd_, &one, sizeof one);  // fails only when the counter is full, which wakes as well
}

void SoftwareDevice::send_packets(TimeNs now) {
  unsent_ = true;
  for (std::size_t sent = 0; sent < kPacketsPerTurn; sent += kBatchPackets) {
    if (!flush_batch()) return;
    fill_batch(now);
    if (batch_end_ == 0) {
      unsent_ = false;
      return;
    }
  }
  flush_batch();
}

// The batch is empty before.
void SoftwareDevice::fill_batch(TimeNs now) {
  batch_begin_ = batch_end_ = 0;
  while (batch_end_ < kBatchPackets) {
    net::Datagram& datagram = datagrams_[batch_end_];
    auto& buffer = buffers_[batch_end_];
    const std::size_t length = engine_.poll_packet(now, sender_.port(), datagram.info, buffer);
    if (length == 0) return;
    datagram.payload = Bytes(buffer).first(length);
    ++batch_end_;
  }
}

// False when the socket takes no more for now.
bool SoftwareDevice::flush_batch() {
  const auto waiting = std::span(datagrams_).subspan(batch_begin_, batch_end_ - batch_begin_);
  batch_begin_ += sender_.send(waiting);
  return batch_begin_ == batch_end_;
}

bool SoftwareDevice::take_packets(TimeNs now) {
  const std::size_t taken = link_->poll(
      [&](const wire::DatagramInfo& info, Bytes payload) { engine_.on_packet(now, info, payload); }, kPacketsPerTurn);
  if (taken > 0) taken_at_ = now;
  return taken > 0;
}

void SoftwareDevice::fail_all(TimeNs now) {
  lost_.store(true);
  engine_.fail_all(now);
  settle(now);
  sinks_.lost();
}

// When the helper has to be awake at the latest.
TimeNs SoftwareDevice::next_wake(TimeNs now) const {
  const TimeNs deadline = engine_.next_deadline();
  return unsent_ ? std::min(deadline, now + kSocketRetry) : deadline;
}

void SoftwareDevice::serve() {
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || lost()) return;
    const TimeNs now = clock_now();
    const bool only_polls = now - std::exchange(served_at_, now) < kTightLoop;
    ++serve_calls_;
    if (take_packets(now)) settle(now);
    // Only one may sleep on the link at a time.
    if (!only_polls || now - taken_at_ < kSpin || !standing_back_ || dozing_) return;
    if (!link_->wait_prepare()) return;
    dozing_ = true;
  }
  doze();
}

void SoftwareDevice::doze() {
  pollfd packets{.fd = link_->wake_fd(), .events = POLLIN, .revents = 0};
  const timespec timeout{.tv_sec = 0, .tv_nsec = kDoze};
  // The bare system call: polling a completion queue must not be where a thread is cancelled.
  syscall(SYS_ppoll, &packets, 1, &timeout, nullptr, 0);
  const std::lock_guard lock(mutex_);
  link_->wait_done();
  dozing_ = false;
  served_at_ = clock_now();
  serve_calls_ += kCallsOfAServer;
}

void SoftwareDevice::stop_serving() {
  const std::lock_guard lock(mutex_);
  serve_calls_ = 0;
  if (standing_back_) kick();
}

void SoftwareDevice::run_helper() {
  TimeNs idle_since = clock_now();
  while (!lost()) {
    if (take_turn()) {
      idle_since = clock_now();
    } else if (clock_now() - idle_since < kSpin) {
      pause_cpu();
    } else {
      sleep();
      idle_since = clock_now();
    }
  }
}

bool SoftwareDevice::take_turn() {
  const std::lock_guard lock(mutex_);
  const TimeNs now = clock_now();
  if (link_->lost()) {
    fail_all(now);
    return true;
  }
  // First what has come: no deadline may pass for want of an answer that only this thread's lateness kept waiting.
  const bool taken = take_packets(now);
  const bool due = engine_.next_deadline() <= now;
  if (due) engine_.on_deadline(now);
  if (!due && !taken && !unsent_) return false;
  settle(now);
  return true;
}

// A planned wake-up that became needless stays: most deadlines are of retransmissions that an answer makes needless
// soon, and without it nearly every request posted would have to wake the helper for its own.
void SoftwareDevice::sleep() {
  bool announced = false;
  TimeNs wake = 0;
  TimeNs now = 0;
  {
    const std::lock_guard lock(mutex_);
    now = clock_now();
    if (planned_wake_ <= now) planned_wake_ = kNever;
    wake = planned_wake_ = std::min(planned_wake_, next_wake(now));
    standing_back_ = dozing_ || serve_calls_ >= kCallsOfAServer;
    serve_calls_ = 0;
    if (standing_back_) {
      wake = std::min(wake, now + kStandBack);
    } else {
      announced = link_->wait_prepare();
      if (!announced) return;
    }
    wakes_at_ = wake;
  }

  std::array<pollfd, 3> fds{{
      {.fd = kick_fd_, .events = POLLIN, .revents = 0},
      {.fd = session_->lost_fd(), .events = POLLIN, .revents = 0},
      {.fd = announced ? link_->wake_fd() : -1, .events = POLLIN, .revents = 0},
  }};
  const TimeNs rest = std::max<TimeNs>(wake - now, 0);
  const timespec timeout{.tv_sec = rest / kNanosecondsPerSecond, .tv_nsec = rest % kNanosecondsPerSecond};
  ppoll(fds.data(), fds.size(), wake == kNever ? nullptr : &timeout, nullptr);

  const std::lock_guard lock(mutex_);
  wakes_at_ = kAwake;
  standing_back_ = false;
  if (announced) link_->wait_done();
  if ((fds[0].revents & POLLIN) != 0) drain(kick_fd_);
  if ((fds[1].revents & (POLLIN | POLLHUP)) != 0 && !lost()) fail_all(clock_now());
}

}  // namespace ucm::client
