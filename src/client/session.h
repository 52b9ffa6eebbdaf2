// A process's attachment to its node. One session per process: the control socket, the rings, the QP numbers and the
// sending sockets that ucmd (or the node embedded in this process) hands out. Everything here is thread-safe.
//
// Errors a person meets are in Error::message: which socket, which daemon, what to do.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "host/device.h"
#include "ipc/cm_api.h"
#include "wire/address.h"
#include "wire/datagram.h"

namespace ucm::client {

// One per event channel: a command ring, its replies, and an event ring.
class CmLink {
 public:
  virtual ~CmLink() = default;

  // A descriptor (close-on-exec, blocking) with a token in it or none: eight bytes for read() and write(), as with an
  // eventfd. A token says: look for events. It belongs to the link.
  virtual int event_fd() const = 0;
  // What a program waits on: readable while there is a token, or when take_token() can get one. It may make this
  // non-blocking.
  virtual int poll_fd() const { return event_fd(); }
  // Waits for a token and takes it. Returns 0 or an errno value: EINTR, EAGAIN when poll_fd() is non-blocking. No lock
  // is held: the thread may be cancelled here.
  virtual int take_token() {
    std::uint64_t token = 0;
    if (::read(event_fd(), &token, sizeof(token)) == sizeof(token)) return 0;
    return errno != 0 ? errno : EIO;
  }

  // Sends one command and waits for its reply; never touches event_fd. ENOTCONN in the reply when the node is gone.
  virtual ipc::CmReply call(const ipc::CmCommand& command) = 0;

  // The same for a command that the node is expected to grant; where it can, it does not wait. Then the reply says
  // success (with `id`), and what fails after all is told by an event: CmCommand::posted.
  virtual ipc::CmReply post(const ipc::CmCommand& command) { return call(command); }

  // Takes the next event that the node has pushed; false when there is none. Does not consume a token.
  virtual bool poll_event(ipc::CmEvent& event) = 0;

  // Asks for a token with the next event, and with that one only. False, and nothing is asked for, when an event waits
  // already. A new link is armed.
  virtual bool arm() = 0;
  // Takes that back. False when the token is in event_fd already, or on its way there.
  virtual bool disarm() = 0;

  // The node is gone: calls fail, no event comes any more. When it happens, one extra token is written to event_fd.
  virtual bool lost() const = 0;
};

// Received packets for the QP numbers of this process.
class DataLink {
 public:
  virtual ~DataLink() = default;
  // Becomes readable when packets wait or the node is gone; level-triggered until wait_prepare() or poll().
  virtual int wake_fd() const = 0;
  // Calls `sink` for each waiting packet (payload = BTH up to and including ICRC), at most `packets_max`; returns how
  // many. The spans are valid only during the call. One thread at a time.
  virtual std::size_t poll(const std::function<void(const wire::DatagramInfo&, Bytes)>& sink,
                           std::size_t packets_max) = 0;
  // Announces that the caller is going to sleep on wake_fd(). Returns false, and nothing is announced, when packets
  // wait already. After waking call wait_done().
  virtual bool wait_prepare() = 0;
  virtual void wait_done() = 0;
  virtual bool lost() const = 0;
};

// Unconnected UDP sockets bound to one source port >= 0xC000, DF set, IPv4 ID 0. Close-on-exec. -1 when the family is
// not available. Owned by the session.
struct SendSockets {
  int ipv4 = -1;
  int ipv6 = -1;
  std::uint16_t port = 0;
};

class Session {
 public:
  virtual ~Session() = default;

  // This process's session; connects on first use and again in a forked child. UCM_SOCKET and UCM_MODE=embedded are
  // honoured. The pointer stays valid until exit; after the node is lost every call on it fails with ENOTCONN.
  static Result<std::shared_ptr<Session>> get();

  // The devices of the node as they are now.
  virtual Result<std::vector<host::Device>> devices() = 0;
  // `changed` is called, on a thread of the session's own, whenever devices() may have a new answer. Once per session.
  virtual Result<void> watch_devices(std::function<void()> changed) = 0;
  virtual Result<std::unique_ptr<CmLink>> open_cm_link() = 0;
  virtual Result<std::unique_ptr<DataLink>> open_data_link() = 0;
  virtual Result<SendSockets> send_sockets() = 0;

  // A QP number unique on this node; blocks are asked for as needed. ENOMEM when the node has none left.
  virtual Result<std::uint32_t> allocate_qpn() = 0;
  // Reuse is delayed (the node hands numbers out in a cycle).
  virtual void free_qpn(std::uint32_t qpn) = 0;
  // Tells the node which peer QP a local RC QP accepts packets from; 0 = any (UD). Locally sourced packets for `qpn`
  // are then delivered only when the process that sent them owns `peer_qpn`. No system call.
  virtual void set_peer_qpn(std::uint32_t qpn, std::uint32_t peer_qpn) = 0;

  // Packets of the group come on the data link until leave_group() was called as often. EINVAL: no multicast address;
  // ENOBUFS: the host's limit; ENODEV: no such interface.
  virtual Result<void> join_group(const wire::MulticastGroup& group) = 0;
  virtual void leave_group(const wire::MulticastGroup& group) = 0;

  // Readable (hang-up) when the node is gone.
  virtual int lost_fd() const = 0;
  virtual bool lost() const = 0;
};

}  // namespace ucm::client
