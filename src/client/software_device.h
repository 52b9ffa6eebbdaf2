// The software RDMA device of this process: one roce::Engine, the thread that serves it, and the ways its packets take.
//
// Threads: application threads call execute() and inspect(); what the engine wants to send leaves on the calling thread
// before execute() returns. A helper thread takes packets in and keeps the timers; it sleeps when there is nothing to
// do. One lock guards the engine. Order of locks: this one before any lock that an event sink takes.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "client/session.h"
#include "net/udp_sender.h"
#include "roce/engine.h"

namespace ucm::client {

class SoftwareDevice {
 public:
  // What the layer above hears. The first two run with the device's lock held, on any thread, and must not call the
  // device.
  struct Sinks {
    void (*event)(const roce::Event& event);
    // The node is gone; every QP is in the error state.
    void (*lost)();
    // Session::watch_devices().
    void (*devices_changed)();
  };

  // The device of this process; the first call makes it (with `sinks`), as does the first call in a forked child.
  // Never destroyed. Errors are those of Session.
  static Result<SoftwareDevice*> get(const Sinks& sinks);

  SoftwareDevice(const SoftwareDevice&) = delete;
  SoftwareDevice& operator=(const SoftwareDevice&) = delete;

  // Runs `command(engine, now)` under the lock, then sends packets, passes events on and wakes the helper thread if
  // the engine has to be served earlier than it knows.
  template <class Command>
  auto execute(Command&& command) {
    const std::lock_guard lock(mutex_);
    const TimeNs now = clock_now();
    const Settling settling(*this, now);
    return command(engine_, now);
  }

  // Runs `query(engine)` under the lock: for calls that neither send nor raise events.
  template <class Query>
  auto inspect(Query&& query) {
    const std::lock_guard lock(mutex_);
    return query(engine_);
  }

  // Takes in packets that have arrived, on the calling thread: what makes a program that polls its completion queues
  // fast. When nothing has come for a while and the thread does nothing but poll, it sleeps for a moment or until
  // packets come, so as not to keep the node and its peers from the processor. Does nothing while another thread holds
  // the lock.
  void serve();

  // The program is about to wait for an event: the helper takes packets in again.
  void stop_serving();

  // Changes whenever completions may have been added; equal values mean that an empty CQ is still empty.
  std::uint64_t progress() const { return progress_.load(std::memory_order_acquire); }

  // False in a child forked after the device was made: its objects belong to the parent.
  bool of_this_process() const { return current.load(std::memory_order_relaxed) == this; }
  // The node is gone: nothing can be sent or received any more.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

  Session& session() { return *session_; }

 private:
  // Settles the engine after a command, whatever way the command returns.
  class Settling {
   public:
    Settling(SoftwareDevice& device, TimeNs now) : device_(device), now_(now) {}
    ~Settling() { device_.settle(now_); }
    Settling(const Settling&) = delete;
    Settling& operator=(const Settling&) = delete;

   private:
    SoftwareDevice& device_;
    TimeNs now_;
  };

  static constexpr std::size_t kBatchPackets = 32;     // per sendmmsg: most of the gain for 130 KB of buffers
  static constexpr std::size_t kPacketsPerTurn = 256;  // sent or taken in before others may have the lock
  static constexpr TimeNs kSpin = 20 * kNanosecondsPerMicrosecond;  // longer keeps a core from others
  // While application threads take packets in themselves (at least so many calls between two of its looks), the helper
  // leaves the link to them and only looks this often whether they still do.
  static constexpr std::uint32_t kCallsOfAServer = 64;
  static constexpr TimeNs kStandBack = 500 * kNanosecondsPerMicrosecond;
  // A thread that calls serve() again this soon does nothing else.
  static constexpr TimeNs kTightLoop = 3 * kNanosecondsPerMicrosecond;
  static constexpr TimeNs kDoze = 100 * kNanosecondsPerMicrosecond;
  static constexpr TimeNs kSocketRetry = 50 * kNanosecondsPerMicrosecond;  // after a full socket buffer
  static constexpr TimeNs kAwake = -1;

  SoftwareDevice(const Sinks& sinks, std::shared_ptr<Session> session, std::unique_ptr<DataLink> link,
                 const SendSockets& sockets, const RandomKey& key, int kick_fd);
  static Result<std::unique_ptr<SoftwareDevice>> create(const Sinks& sinks);
  [[gnu::constructor]] static void forget_in_children();
  static TimeNs clock_now();
  Result<void> start_helper();
  void run_helper();
  // One of the helper's turns: false when there was nothing to do.
  bool take_turn();
  void sleep();
  void doze();

  // All of these with the lock held.
  void settle(TimeNs now);
  void send_packets(TimeNs now);
  void fill_batch(TimeNs now);
  bool flush_batch();
  bool take_packets(TimeNs now);
  void fail_all(TimeNs now);
  TimeNs next_wake(TimeNs now) const;
  void kick();

  static std::atomic<SoftwareDevice*> current;

  const Sinks sinks_;
  const std::shared_ptr<Session> session_;
  const std::unique_ptr<DataLink> link_;
  const int kick_fd_;  // wakes the helper
  std::atomic<std::uint64_t> progress_{1};
  std::atomic<bool> lost_{false};

  std::mutex mutex_;
  roce::Engine engine_;
  net::UdpSender sender_;
  bool unsent_ = false;            // there may be more to send than one turn may
  std::uint32_t serve_calls_ = 0;  // since the helper last looked
  TimeNs taken_at_ = 0;            // when packets last came in
  TimeNs served_at_ = 0;           // when serve() was last called
  bool standing_back_ = false;     // the helper sleeps and the link does not know
  bool dozing_ = false;            // a thread in doze(): the link knows of it
  TimeNs planned_wake_ = kNever;   // the earliest time that the helper has meant to wake at
  TimeNs wakes_at_ = kAwake;       // when the helper wakes by itself; kAwake while it runs
  // Packets on their way to the socket: [batch_begin_, batch_end_) of datagrams_, whose bytes are in buffers_.
  std::size_t batch_begin_ = 0;
  std::size_t batch_end_ = 0;
  std::array<net::Datagram, kBatchPackets> datagrams_;
  std::array<std::array<std::uint8_t, roce::kPacketSizeMax>, kBatchPackets> buffers_;
};

}  // namespace ucm::client
