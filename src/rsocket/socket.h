// What every rsocket can do, as the calls of librdmacm ask it; and how threads wait for one.
//
// Threads: every call from any thread. A socket's lock is held while its state is looked at, never while a thread
// sleeps; a thread that sleeps is on the list of waiters, and whoever changes something wakes the others.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "rsocket/waker.h"

namespace ucm::rsocket {

using Clock = std::chrono::steady_clock;

// An address that a call gives out, as getpeername(2) does: cut to `*size`, which becomes its whole size.
struct AddressOut {
  sockaddr* address = nullptr;
  socklen_t* size = nullptr;

  void store(const sockaddr_storage& value) const;
};

class Socket : public std::enable_shared_from_this<Socket> {
 public:
  virtual ~Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // The descriptor that the program knows the socket by. It is the socket's own until the socket is gone.
  virtual int fd() const = 0;

  virtual Result<void> bind(const sockaddr* address, socklen_t size) = 0;
  virtual Result<void> listen(int backlog) = 0;
  virtual Result<std::shared_ptr<Socket>> accept(const AddressOut& peer) = 0;
  virtual Result<void> connect(const sockaddr* address, socklen_t size) = 0;
  virtual Result<void> shut_down(int how) = 0;
  // Ends the socket; calls of other threads on it return EBADF.
  virtual void close() = 0;

  virtual Result<std::size_t> receive(std::span<const iovec> into, int flags, const AddressOut& from) = 0;
  virtual Result<std::size_t> send(std::span<const iovec> data, int flags, const sockaddr* to, socklen_t size) = 0;

  virtual Result<void> peer_name(const AddressOut& out) = 0;
  virtual Result<void> local_name(const AddressOut& out) = 0;
  virtual Result<void> set_option(int level, int name, const void* value, socklen_t size) = 0;
  virtual Result<void> get_option(int level, int name, void* value, socklen_t* size) = 0;
  Result<int> control(int command, int argument);

  virtual Result<off_t> map_memory(void* memory, std::size_t size, int protection, off_t offset);
  virtual Result<void> unmap_memory(void* memory, std::size_t size);
  virtual Result<std::size_t> write_mapped(const void* data, std::size_t size, off_t offset, int flags);

  // For rpoll(): does what can be done and tells what is ready.
  short poll(short events);
  // The same, and makes sure that one of `wait_on` becomes readable when that may change.
  short poll_and_arm(short events, std::vector<pollfd>& wait_on);
  // Afterwards, with what poll() said of what poll_and_arm() added.
  void after_poll(std::span<const pollfd> waited_on);
  Waiters& waiters() { return waiters_; }

  // For the service thread: works on behalf of a program that does not call. Returns when to call again, and adds what
  // to wait for until then; nullopt when this socket does not need it any more.
  virtual std::optional<Clock::time_point> serve(Clock::time_point now, std::vector<pollfd>& wait_on) = 0;

  // In a forked child: the thread that held the lock, the service's perhaps, is not there to give it back. The child's
  // calls see that the socket is its parent's, and leave the rest of it alone.
  void unlock_in_child() { std::construct_at(&mutex_); }

 protected:
  Socket() = default;

  // All with the lock held.
  virtual void progress() = 0;
  virtual short ready() const = 0;
  virtual void arm(std::vector<pollfd>& wait_on) = 0;
  virtual void take_events(std::span<const pollfd> waited_on) = 0;
  virtual bool closed() const = 0;

  bool nonblocking(int flags) const { return (status_flags_ & O_NONBLOCK) != 0 || (flags & MSG_DONTWAIT) != 0; }
  enum class Patience : bool { kNone, kEndless };
  Patience patience(int flags) const { return nonblocking(flags) ? Patience::kNone : Patience::kEndless; }

  // Makes progress until `done()`. EAGAIN without patience, EINTR after a signal, EBADF when the socket is closed.
  template <class Done>
  Result<void> wait(std::unique_lock<std::mutex>& lock, Patience patience, Done done);
  Result<void> sleep(std::unique_lock<std::mutex>& lock, std::vector<pollfd>& wait_on);
  // Spins for a moment before a thread sleeps, since an answer often comes as quickly. False: time is over.
  static bool spin(std::unique_lock<std::mutex>& lock, std::optional<Clock::time_point>& until);

  std::mutex mutex_;
  Waiters waiters_;
  std::atomic<int> status_flags_{0};  // of fcntl(2)
};

template <class Done>
Result<void> Socket::wait(std::unique_lock<std::mutex>& lock, Patience patience, Done done) {
  std::optional<Clock::time_point> spin_until;
  std::vector<pollfd> wait_on;
  for (;;) {
    progress();
    if (closed()) return fail(EBADF, "closed");
    if (done()) return {};
    if (patience == Patience::kNone) return fail(EAGAIN, "would block");
    if (spin(lock, spin_until)) continue;
    wait_on.clear();
    arm(wait_on);
    progress();
    if (done()) return {};
    if (auto slept = sleep(lock, wait_on); !slept) return slept;
  }
}

}  // namespace ucm::rsocket
