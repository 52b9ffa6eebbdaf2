#include "daemon/cm_link.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "ipc/control_messages.h"

namespace ucm::daemon {

using ipc::CmLinkLayout;

Result<CmLink> CmLink::create(TokenWrite token_write) {
  CmLink link;
  link.token_write_ = token_write;
  auto memfd = ipc::create_memfd("ucm-cm-link", CmLinkLayout::kSize);
  if (!memfd) return tl::unexpected(memfd.error());
  auto memory = ipc::SharedMemory::map(memfd->get(), CmLinkLayout::kSize);
  if (!memory) return tl::unexpected(memory.error());
  link.memfd_ = std::move(*memfd);
  link.memory_ = std::move(*memory);
  link.doorbell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  link.reply_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  link.event_fd_.reset(eventfd(0, EFD_CLOEXEC));
  if (!link.doorbell_ || !link.reply_fd_ || !link.event_fd_) {
    const int code = errno;
    return fail(code, "eventfd: " + std::generic_category().message(code));
  }
  link.commands_ = ipc::RingConsumer(link.memory_.at(CmLinkLayout::kCommands), ipc::kCommandRingSize);
  link.replies_ = ipc::RingProducer(link.memory_.at(CmLinkLayout::kReplies), ipc::kReplyRingSize);
  link.events_ = ipc::RingProducer(link.memory_.at(CmLinkLayout::kEvents), ipc::kEventRingSize);
  return link;
}

std::array<int, 4> CmLink::descriptors() const {
  return {memfd_.get(), doorbell_.get(), reply_fd_.get(), event_fd_.get()};
}

std::optional<ipc::CmCommand> CmLink::poll_command() {
  ipc::CmCommand command;
  std::size_t size = 0;
  const MutableBytes bytes(reinterpret_cast<std::uint8_t*>(&command), sizeof command);
  if (commands_.try_pop(bytes, size) != ipc::RingConsumer::Pop::kPopped) return std::nullopt;
  if (size != sizeof command) {
    broken_ = true;
    return std::nullopt;
  }
  if (commands_.take_producer_waiting()) eventfd_write(reply_fd_.get(), 1);
  return command;
}

void CmLink::reply(const ipc::CmReply& reply) {
  switch (replies_.try_push(ipc::bytes_of(reply))) {
    case ipc::RingProducer::Push::kPushed:
    case ipc::RingProducer::Push::kBroken:
      return;
    case ipc::RingProducer::Push::kPushedWake:
      eventfd_write(reply_fd_.get(), 1);
      return;
    case ipc::RingProducer::Push::kFull:
      broken_ = true;  // commands without reading the replies
      return;
  }
}

bool CmLink::deliver(const ipc::CmEvent& event) {
  if (waiting_.empty() && push_event(event)) return true;
  waiting_.push_back(event);
  return false;
}

std::size_t CmLink::flush() {
  std::size_t flushed = 0;
  for (; !waiting_.empty() && push_event(waiting_.front()); ++flushed) waiting_.pop_front();
  return flushed;
}

std::size_t CmLink::drop_events_of(std::uint32_t id) {
  return std::erase_if(waiting_, [id](const ipc::CmEvent& event) { return event.id == id || event.listen_id == id; });
}

bool CmLink::push_event(const ipc::CmEvent& event) {
  const auto pushed = events_.try_push(ipc::bytes_of(event));
  if (pushed == ipc::RingProducer::Push::kFull || pushed == ipc::RingProducer::Push::kBroken) return false;
  if (pushed == ipc::RingProducer::Push::kPushedWake) write_token();
  return true;
}

void CmLink::write_token() {
  if (token_write_ == TokenWrite::kCautious) {
    pollfd event{.fd = event_fd_.get(), .events = POLLOUT, .revents = 0};
    if (poll(&event, 1, 0) != 1 || (event.revents & POLLOUT) == 0) {
      broken_ = true;
      return;
    }
  }
  eventfd_write(event_fd_.get(), 1);
}

void CmLink::drain_doorbell() {
  eventfd_t count = 0;
  eventfd_read(doorbell_.get(), &count);
}

}  // namespace ucm::daemon
