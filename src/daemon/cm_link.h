// The node's end of one CM link: command, reply and event ring of an event channel in a program.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/result.h"
#include "ipc/cm_api.h"
#include "ipc/file_descriptor.h"
#include "ipc/memfd.h"
#include "ipc/ring.h"

namespace ucm::daemon {

class CmLink {
 public:
  // How a token is written. The descriptor blocks, as an event channel's must; a program of another user
  // could fill its counter and make a careless write wait for ever.
  enum class TokenWrite { kTrusting, kCautious };

  static Result<CmLink> create(TokenWrite token_write);

  // For the program: memory, doorbell, reply eventfd, event eventfd.
  std::array<int, 4> descriptors() const;
  // The memory's descriptor is not needed any more once it has been passed on.
  void close_memory_descriptor() { memfd_.reset(); }
  int doorbell() const { return doorbell_.get(); }

  // The next command of the program. nullopt: none, or broken().
  std::optional<ipc::CmCommand> poll_command();
  void reply(const ipc::CmReply& reply);

  // Into the ring, with a token where the program has asked for one; or, when the ring is full, into a queue. Returns
  // false when it had to wait.
  bool deliver(const ipc::CmEvent& event);
  // Moves waiting events into the ring while there is room; returns how many.
  std::size_t flush();
  // Waiting events of `id` that has been destroyed; returns how many.
  std::size_t drop_events_of(std::uint32_t id);
  std::size_t waiting() const { return waiting_.size(); }

  void drain_doorbell();
  bool sleep_prepare() { return commands_.sleep_prepare(); }

  // The program has broken the rules: close the link.
  bool broken() const { return broken_ || commands_.broken() || replies_.broken() || events_.broken(); }

 private:
  CmLink() = default;
  bool push_event(const ipc::CmEvent& event);
  void write_token();

  ipc::FileDescriptor memfd_, doorbell_, reply_fd_, event_fd_;
  ipc::SharedMemory memory_;
  ipc::RingConsumer commands_;
  ipc::RingProducer replies_;
  ipc::RingProducer events_;
  std::deque<ipc::CmEvent> waiting_;
  TokenWrite token_write_ = TokenWrite::kCautious;
  bool broken_ = false;
};

}  // namespace ucm::daemon
