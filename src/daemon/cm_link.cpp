#include "daemon/cm_link.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "ipc/control_messages.h"

namespace ucm::daemon {

using ipc::CmLinkLayout;
using ipc::TokenWriter;

namespace {

constexpr std::uint64_t kCommandFootprint = ipc::record_footprint(sizeof(ipc::CmCommand));
constexpr std::uint64_t kReplyFootprint = ipc::record_footprint(sizeof(ipc::CmReply));
constexpr std::uint64_t kEventFootprint = ipc::record_footprint(sizeof(ipc::CmEvent));

}  // namespace

Result<CmLink> CmLink::create(const Identity& identity) {
  CmLink link(identity);
  auto memfd = ipc::create_memfd("ucm-cm-link", CmLinkLayout::kSize);
  if (!memfd) return tl::unexpected(memfd.error());
  link.memfd_ = std::move(*memfd);
  if (auto mapped = link.map_memory(); !mapped) return tl::unexpected(mapped.error());
  link.doorbell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!link.doorbell_) {
    const int code = errno;
    return fail(code, "eventfd: " + std::generic_category().message(code));
  }
  auto reply_tokens = TokenWriter::create(identity.reader, TokenWriter::Reading::kReturns);
  if (!reply_tokens) return tl::unexpected(reply_tokens.error());
  auto event_tokens = TokenWriter::create(identity.reader, TokenWriter::Reading::kBlocks);
  if (!event_tokens) return tl::unexpected(event_tokens.error());
  link.reply_tokens_ = std::move(*reply_tokens);
  link.event_tokens_ = std::move(*event_tokens);
  link.commands_ = ipc::RingConsumer(link.memory_.at(CmLinkLayout::kCommands), ipc::kCommandRingSize);
  link.replies_ = ipc::RingProducer(link.memory_.at(CmLinkLayout::kReplies), ipc::kReplyRingSize);
  link.events_ = ipc::RingProducer(link.memory_.at(CmLinkLayout::kEvents), ipc::kEventRingSize);
  if (identity.journal != nullptr) {
    link.cell_ = identity.journal->put(node::Journal::kNone,
                                       node::LinkRecord{.link = identity.link, .session = identity.session});
  }
  return link;
}

// The journal says where the rings of commands and replies stand; the ring of events tells itself how far it has come,
// for an event is pushed after its commit.
Result<CmLink> CmLink::resume(const Identity& identity, std::array<ipc::FileDescriptor, 4> descriptors,
                              node::Journal::Cell cell, const node::LinkRecord& record,
                              std::span<const std::pair<node::Journal::Cell, node::EventRecord>> events) {
  CmLink link(identity);
  link.cell_ = cell;
  for (const ipc::FileDescriptor& descriptor : descriptors) {
    if (!descriptor) return fail(EPROTO, "a descriptor of an event channel is lost");
  }
  link.memfd_ = std::move(descriptors[0]);
  link.doorbell_ = std::move(descriptors[1]);
  link.reply_tokens_ = TokenWriter(identity.reader, std::move(descriptors[2]));
  link.event_tokens_ = TokenWriter(identity.reader, std::move(descriptors[3]));
  if (auto mapped = link.map_memory(); !mapped) return tl::unexpected(mapped.error());
  link.calls_ = record.calls;
  link.replied_ = record.replies;
  link.last_reply_ = record.last_reply;

  void* const commands = link.memory_.at(CmLinkLayout::kCommands);
  void* const replies = link.memory_.at(CmLinkLayout::kReplies);
  void* const pushed_events = link.memory_.at(CmLinkLayout::kEvents);
  const std::uint64_t replied = record.replies * kReplyFootprint;
  if (ipc::RingProducer::published_tail(replies) < replied) {
    link.replies_ = ipc::RingProducer(replies, ipc::kReplyRingSize, replied - kReplyFootprint);
    static_cast<void>(link.replies_.try_push(ipc::bytes_of(link.last_reply_)));
  } else {
    link.replies_ = ipc::RingProducer(replies, ipc::kReplyRingSize, replied);
  }
  link.commands_ = ipc::RingConsumer(commands, ipc::kCommandRingSize, record.calls * kCommandFootprint);
  link.reply_tokens_.put();

  const std::uint64_t tail = ipc::RingProducer::published_tail(pushed_events);
  link.broken_ = tail % kEventFootprint != 0;
  link.events_pushed_ = tail / kEventFootprint;
  link.events_ = ipc::RingProducer(pushed_events, ipc::kEventRingSize, tail);
  // The last ucmd may have died between an event and its token. One too many does no harm.
  if (ipc::RingConsumer::published_head(pushed_events) != tail) link.event_tokens_.put();
  for (const auto& [event_cell, event] : events) {
    link.waiting_.push_back({event.event, event_cell});
    if (event.number < link.events_pushed_) identity.journal->drop(link.waiting_.back().cell);
    if (event.number < link.events_pushed_) link.waiting_.pop_back();
  }
  for (std::size_t position = 0; position < link.waiting_.size(); ++position) link.keep_event(position);
  return link;
}

Result<void> CmLink::map_memory() {
  auto memory = ipc::SharedMemory::map(memfd_.get(), CmLinkLayout::kSize);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  return {};
}

void CmLink::forget() {
  if (identity_.journal == nullptr) return;
  identity_.journal->drop(cell_);
  for (Waiting& event : waiting_) identity_.journal->drop(event.cell);
}

std::array<int, 4> CmLink::descriptors() const {
  return {memfd_.get(), doorbell_.get(), reply_tokens_.get(), event_tokens_.get()};
}

std::optional<ipc::CmCommand> CmLink::poll_command() {
  ipc::CmCommand command;
  std::size_t size = 0;
  const MutableBytes bytes(reinterpret_cast<std::uint8_t*>(&command), sizeof command);
  if (commands_.try_read(bytes, size) != ipc::RingConsumer::Pop::kPopped) return std::nullopt;
  if (size != sizeof command) {
    broken_ = true;
    return std::nullopt;
  }
  return command;
}

void CmLink::remember(const ipc::CmCommand& command, const ipc::CmReply& reply) {
  ++calls_;
  has_posted_ = has_posted_ || command.posted != 0;
  if (command.posted == 0) {
    last_reply_ = reply;
    ++replied_;
  }
  if (identity_.journal == nullptr) return;
  cell_ = identity_.journal->put(cell_, node::LinkRecord{.link = identity_.link,
                                                         .session = identity_.session,
                                                         .calls = calls_,
                                                         .replies = replied_,
                                                         .last_reply = last_reply_});
}

// The program may wait for room.
void CmLink::take_commands() {
  has_posted_ = false;
  commands_.publish();
  if (commands_.take_producer_waiting()) reply_tokens_.put();
}

void CmLink::reply() {
  switch (replies_.try_push(ipc::bytes_of(last_reply_))) {
    case ipc::RingProducer::Push::kPushed:
    case ipc::RingProducer::Push::kBroken:
      break;
    case ipc::RingProducer::Push::kPushedWake:
      reply_tokens_.put();
      break;
    case ipc::RingProducer::Push::kFull:
      broken_ = true;  // commands without reading the replies
      break;
  }
  take_commands();
}

void CmLink::queue(const ipc::CmEvent& event) {
  waiting_.push_back({event});
  keep_event(waiting_.size() - 1);
}

void CmLink::keep_event(std::size_t position) {
  if (identity_.journal == nullptr) return;
  Waiting& waiting = waiting_[position];
  waiting.cell = identity_.journal->put(
      waiting.cell,
      node::EventRecord{
          .number = events_pushed_ + position, .link = identity_.link, .id = waiting.event.id, .event = waiting.event});
}

std::size_t CmLink::flush() {
  std::size_t flushed = 0;
  for (; !waiting_.empty() && push_event(waiting_.front().event); ++flushed) {
    if (identity_.journal != nullptr) identity_.journal->drop(waiting_.front().cell);
    waiting_.pop_front();
  }
  return flushed;
}

std::size_t CmLink::drop_events_of(std::uint32_t id) {
  const std::size_t dropped = std::erase_if(waiting_, [&](Waiting& waiting) {
    const bool is_of_it = waiting.event.id == id || waiting.event.listen_id == id;
    if (is_of_it && identity_.journal != nullptr) identity_.journal->drop(waiting.cell);
    return is_of_it;
  });
  // Those that are left move up.
  if (dropped != 0) {
    for (std::size_t position = 0; position < waiting_.size(); ++position) keep_event(position);
  }
  return dropped;
}

bool CmLink::push_event(const ipc::CmEvent& event) {
  const auto pushed = events_.try_push(ipc::bytes_of(event));
  if (pushed == ipc::RingProducer::Push::kFull || pushed == ipc::RingProducer::Push::kBroken) return false;
  ++events_pushed_;
  if (pushed == ipc::RingProducer::Push::kPushedWake) event_tokens_.put();
  return true;
}

}  // namespace ucm::daemon
