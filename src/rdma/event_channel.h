// An rdma_event_channel: one link to the node, the events that wait on it, and the IDs whose events come here.
//
// The descriptor is readable while events wait, with few system calls: there is one token, which is in it, or on its
// way into it, or with a thread that has read it, or will be written by the link with the next event (CmLink::arm()).
// Events are taken from memory without a look at the descriptor as long as others remain; the last one needs the token.
//
// Threads: everything may be called from any thread. The lock of a channel is held only while its queue and its table
// of IDs are touched, never while a QP is modified, a verbs call runs or a thread waits for an event.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/result.h"
#include "client/session.h"
#include "ipc/cm_api.h"
#include "kernel/kernel_link.h"

namespace ucm::rdma {

class Id;

// An event in the program's hands. Its end, by rdma_ack_cm_event or because the library itself swallowed it, counts as
// acknowledged for the ID it was reported on.
class Event : public rdma_cm_event {
 public:
  // Counts as delivered to `reported_on`.
  explicit Event(std::shared_ptr<Id> reported_on);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  static Event& from(rdma_cm_event& event) { return static_cast<Event&>(event); }
  Id& reported_on() { return *reported_on_; }

  // Connection parameters and private data as the event's `param`.
  void set_connection(const ipc::CmConnParam& connection);
  // The same of a datagram service.
  void set_datagram(const ipc::CmConnParam& answer, const ibv_ah_attr& peer);

 private:
  // Returns the size.
  std::uint8_t keep_private_data(const ipc::CmConnParam& connection);

  std::shared_ptr<Id> reported_on_;
  std::array<std::uint8_t, sizeof(ipc::CmConnParam::private_data)> private_data_;
};

class EventChannel : public rdma_event_channel, public std::enable_shared_from_this<EventChannel> {
 public:
  // The channel owns itself until close(); ENODEV without a node or, where the kernel makes the connections, without
  // its rdma_cm.
  static Result<std::shared_ptr<EventChannel>> open();
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  static EventChannel& from(rdma_event_channel& channel) { return static_cast<EventChannel&>(channel); }

  // rdma_destroy_event_channel. The link and its descriptor go when the last ID and the last waiting thread have left;
  // a thread that waits stays asleep, as it would on a closed kernel channel.
  void close();

  // Waits for the next event (a read of fd: cancellation point, EINTR, EAGAIN when fd is non-blocking) and does what
  // the event asks of the library. The caller owns the result. ENOTCONN when the node is gone and every ID has been
  // told.
  Result<Event*> next_event();

  // One command on this channel's link, as CmLink's. The reply's error is ENOTCONN in a forked child.
  ipc::CmReply call(const ipc::CmCommand& command);
  ipc::CmReply post(const ipc::CmCommand& command);

  // The destination that an ID of this channel has resolved last: likely to be resolved again, and with success.
  bool has_resolved(const ipc::SocketAddress& destination);
  void set_resolved(const ipc::SocketAddress& destination);
  void forget_resolved();

  // The link when it leads to the kernel, or nullptr.
  kernel::KernelLink* kernel() const { return kernel_; }

  // The channel was opened by the process that forked this one. Nothing done here may disturb it, nor wait for a lock
  // that a thread of that process may have held: a child leaves it as it is.
  bool inherited_by_fork() const;

  void add(std::shared_ptr<Id> id);
  // An event that this process makes itself, behind those that wait already.
  void raise(std::shared_ptr<Id> id, const ipc::CmEvent& event);
  // No event of `id` is delivered any more. To be called after the node has destroyed it.
  void remove(Id& id);
  // Moves `id`, with the events that wait for it, to `destination`.
  Result<void> migrate(Id& id, EventChannel& destination);

 private:
  struct Pending {
    ipc::CmEvent event;
    std::shared_ptr<Id> target;
  };

  // `kernel` is the link itself when it leads there.
  EventChannel(std::unique_ptr<client::CmLink> link, kernel::KernelLink* kernel);

  // Events of the ID come here from now on.
  Result<void> take_over(std::uint32_t handle, EventChannel& from);
  // Consumes the token; the error is that of read(), or EAGAIN.
  Result<void> wait_for_token();

  // Whether the calling thread has consumed the token, and owes it until the channel is settled.
  enum class Token : std::uint8_t { kNone, kTaken };
  enum class Taken : std::uint8_t { kEvent, kNothing, kNodeGone };
  // Pops the next live event; `event` and `cause` are set for kEvent. Without the token the last one is left to whoever
  // has it. kNothing: the token is settled, wait for it.
  Taken take(Token token, std::unique_ptr<Event>& event, ipc::CmEvent& cause);

  // With mutex_ held:
  bool fetch();      // moves one event from the link to pending_; false when there is none
  bool fetch_all();  // true when there was one
  void tell_node_lost();
  void put_token();
  // The token is with the calling thread: back it goes while events wait, or the next event brings it.
  void settle();
  // Events have been added to the end of pending_ by this process.
  void announce();
  // Events have been taken from pending_, not by a reader: without any, the descriptor shall not be readable.
  void retract();

  std::shared_ptr<EventChannel> self_;
  std::unique_ptr<client::CmLink> link_;
  kernel::KernelLink* const kernel_;
  const unsigned generation_;

  std::mutex mutex_;
  bool closed_ = false;
  bool told_node_lost_ = false;
  ipc::SocketAddress resolved_;  // without its port; family 0: none
  std::deque<Pending> pending_;
  std::unordered_map<std::uint32_t, std::shared_ptr<Id>> ids_;
};

}  // namespace ucm::rdma
