// The node's end of one CM link: command, reply and event ring of an event channel in a program.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "ipc/cm_api.h"
#include "ipc/file_descriptor.h"
#include "ipc/memfd.h"
#include "ipc/ring.h"
#include "ipc/token_writer.h"
#include "node/journal.h"

namespace ucm::daemon {

class CmLink {
 public:
  // `journal`: where its state is kept; nullptr: nowhere. It outlives the link.
  struct Identity {
    std::uint32_t link = 0;
    std::uint32_t session = 0;
    ipc::TokenWriter::Reader reader = ipc::TokenWriter::Reader::kUntrusted;
    node::Journal* journal = nullptr;
  };
  static Result<CmLink> create(const Identity& identity);
  // Goes on with a link of a ucmd that has died: its descriptors, in the order of descriptors(), its record, and what
  // it had still to deliver, in order of number. What it did not get to do after its last commit is done.
  static Result<CmLink> resume(const Identity& identity, std::array<ipc::FileDescriptor, 4> descriptors,
                               node::Journal::Cell cell, const node::LinkRecord& record,
                               std::span<const std::pair<node::Journal::Cell, node::EventRecord>> events);

  // For the program: memory, doorbell, and for the tokens of replies and of events.
  std::array<int, 4> descriptors() const;
  // The memory's descriptor is not needed any more once it has been passed on.
  void close_memory_descriptor() { memfd_.reset(); }
  // The program writes to it. Not to be read: who does could be made to wait.
  int doorbell() const { return doorbell_.get(); }

  // The next command of the program. nullopt: none, or broken(). It is taken in two steps: remember()
  // when it is executed, and once that is committed reply(), or for posted ones take_commands().
  std::optional<ipc::CmCommand> poll_command();
  void remember(const ipc::CmCommand& command, const ipc::CmReply& reply);
  void reply();
  bool has_posted() const { return has_posted_; }
  void take_commands();

  // Into a queue, from which flush() takes it once it is committed.
  void queue(const ipc::CmEvent& event);
  // Moves waiting events into the ring while there is room, with a token where the program has asked for one; returns
  // how many.
  std::size_t flush();
  // Waiting events of `id` that has been destroyed; returns how many.
  std::size_t drop_events_of(std::uint32_t id);
  std::size_t waiting() const { return waiting_.size(); }
  // Nothing is kept of the link any more.
  void forget();

  bool sleep_prepare() { return commands_.sleep_prepare(); }

  // The program has broken the rules: close the link.
  bool broken() const { return broken_ || commands_.broken() || replies_.broken() || events_.broken(); }

 private:
  struct Waiting {
    ipc::CmEvent event{};
    node::Journal::Cell cell = node::Journal::kNone;
  };

  explicit CmLink(const Identity& identity) : identity_(identity) {}
  Result<void> map_memory();
  void keep_event(std::size_t position);
  bool push_event(const ipc::CmEvent& event);

  ipc::FileDescriptor memfd_, doorbell_;
  ipc::TokenWriter reply_tokens_, event_tokens_;
  ipc::SharedMemory memory_;
  ipc::RingConsumer commands_;
  ipc::RingProducer replies_;
  ipc::RingProducer events_;
  Identity identity_;
  node::Journal::Cell cell_ = node::Journal::kNone;
  std::uint64_t calls_ = 0;  // executed
  std::uint64_t replied_ = 0;
  bool has_posted_ = false;  // executed, and not taken from the ring yet
  std::uint64_t events_pushed_ = 0;
  ipc::CmReply last_reply_{};
  std::deque<Waiting> waiting_;
  bool broken_ = false;
};

}  // namespace ucm::daemon
