#include "client/ring_links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <cerrno>
#include <thread>
#include <utility>

namespace ucm::client {
namespace {

using ipc::CmLinkLayout;
using Pop = ipc::RingConsumer::Pop;
using Push = ipc::RingProducer::Push;

std::int64_t monotonic_ns() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

// Looking at a ring is of use only while the node runs on another core, and the peer on a third (docs/performance.md).
std::int64_t spin_ns() {
  static const std::int64_t length = std::thread::hardware_concurrency() >= 3 ? ipc::kSpinNs : 0;
  return length;
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class T>
MutableBytes writable_bytes_of(T& value) {
  return {reinterpret_cast<std::uint8_t*>(&value), sizeof value};
}

// Descriptors that never block, so a wake-up that comes late or twice does no harm.
void drain(int event_fd) {
  eventfd_t count = 0;
  eventfd_read(event_fd, &count);
}

}  // namespace

// --- CM link
// ----------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<CmLink>> RingCmLink::open(std::shared_ptr<SessionCore> core) {
  const CancellationOff no_cancellation;
  auto answer = core->ask(ipc::ControlCall::kOpenCmLink);
  if (!answer) return tl::unexpected(answer.error());
  if (answer->reply.descriptor_count != 4) return fail(EPROTO, "ucmd's answer lacks a descriptor");
  auto memory = ipc::SharedMemory::map(answer->descriptors[0].get(), CmLinkLayout::kSize);
  if (!memory) return tl::unexpected(memory.error());
  std::unique_ptr<CmLink> link(new RingCmLink(core, answer->reply.link, std::move(*memory), *answer));
  if (const auto added = core->add_listener(link->event_fd()); !added) return tl::unexpected(added.error());
  return link;
}

RingCmLink::RingCmLink(std::shared_ptr<SessionCore> core, std::uint32_t id, ipc::SharedMemory memory, Answer& answer)
    : core_(std::move(core)),
      id_(id),
      memory_(std::move(memory)),
      doorbell_(std::move(answer.descriptors[1])),
      reply_fd_(std::move(answer.descriptors[2])),
      event_fd_(std::move(answer.descriptors[3])),
      commands_(memory_.at(CmLinkLayout::kCommands), ipc::kCommandRingSize),
      replies_(memory_.at(CmLinkLayout::kReplies), ipc::kReplyRingSize),
      events_(memory_.at(CmLinkLayout::kEvents), ipc::kEventRingSize) {
  static_cast<void>(events_.sleep_prepare());
}

RingCmLink::~RingCmLink() {
  const CancellationOff no_cancellation;
  core_->remove_listener(event_fd_.get());
  if (core_->lost()) return;
  ipc::ControlRequest close = ipc::make_request(ipc::ControlCall::kCloseLink, 0);
  close.link = id_;
  static_cast<void>(core_->ask(close));
}

ipc::CmReply RingCmLink::lost_reply() const {
  ipc::CmReply reply;
  reply.error = ENOTCONN;
  return reply;
}

ipc::CmReply RingCmLink::call(const ipc::CmCommand& command) {
  const CancellationOff no_cancellation;
  if (core_->lost()) return lost_reply();
  const std::lock_guard lock(call_mutex_);
  return exchange(command);
}

ipc::CmReply RingCmLink::post(const ipc::CmCommand& command) {
  const CancellationOff no_cancellation;
  if (core_->lost()) return lost_reply();
  const std::lock_guard lock(call_mutex_);
  if (command.call == ipc::CmCall::kCreateId) return create(command);
  ipc::CmCommand posted = command;
  posted.posted = 1;
  ipc::CmReply reply;
  reply.id = command.id;
  return send(posted) ? reply : lost_reply();
}

ipc::CmReply RingCmLink::create(ipc::CmCommand command) {
  ipc::CmReply reply;
  if (numbers_left_ == 0) {
    command.numbers = std::exchange(numbers_wanted_, ipc::kIdNumbersMax);
    reply = exchange(command);
    next_number_ = reply.id + 1;
    numbers_left_ = reply.error == 0 ? reply.numbers : 0;
    return reply;
  }
  --numbers_left_;
  command.posted = 1;
  command.id = reply.id = next_number_++;
  return send(command) ? reply : lost_reply();
}

ipc::CmReply RingCmLink::exchange(ipc::CmCommand command) {
  const std::uint32_t sequence = std::exchange(command.sequence, ++sequence_);
  ipc::CmReply reply;
  if (!send(command)) return lost_reply();
  if (await_reply(reply) == Wait::kLost) {
    core_->abandon();
    return lost_reply();
  }
  reply.sequence = sequence;
  return reply;
}

// False when the node is gone or has broken the rules.
bool RingCmLink::send(const ipc::CmCommand& command) {
  for (;;) {
    switch (commands_.try_push(ipc::bytes_of(command))) {
      case Push::kPushed:
        return true;
      case Push::kPushedWake:
        eventfd_write(doorbell_.get(), 1);
        return true;
      case Push::kFull:
        if (sleep_until_told()) continue;
        break;
      case Push::kBroken:
        break;
    }
    core_->abandon();
    return false;
  }
}

RingCmLink::Wait RingCmLink::await_reply(ipc::CmReply& reply) {
  const std::int64_t spin_end = monotonic_ns() + spin_ns();
  bool node_there = true;
  while (true) {
    std::size_t size = 0;
    switch (replies_.try_pop(writable_bytes_of(reply), size)) {
      case Pop::kPopped:
        return size == sizeof reply && reply.sequence == sequence_ ? Wait::kReply : Wait::kLost;
      case Pop::kBroken:
        return Wait::kLost;
      case Pop::kEmpty:
        break;
    }
    if (!node_there) return Wait::kLost;
    if (monotonic_ns() < spin_end) {
      relax();
    } else {
      node_there = sleep_until_reply();
    }
  }
}

// False when the node is gone; a last look at the ring is due then.
bool RingCmLink::sleep_until_reply() {
  if (!replies_.sleep_prepare()) return true;
  const bool node_there = sleep_until_told();
  static_cast<void>(replies_.sleep_done());
  return node_there;
}

// Of a reply, or of room for commands.
bool RingCmLink::sleep_until_told() {
  std::array<pollfd, 2> events{{{.fd = reply_fd_.get(), .events = POLLIN, .revents = 0},
                                {.fd = core_->socket(), .events = POLLRDHUP, .revents = 0}}};
  if (::poll(events.data(), events.size(), -1) <= 0) return true;
  if (events[0].revents != 0) drain(reply_fd_.get());
  return events[1].revents == 0;
}

bool RingCmLink::poll_event(ipc::CmEvent& event) {
  const CancellationOff no_cancellation;
  if (core_->inherited()) return false;
  const std::lock_guard lock(events_mutex_);
  std::size_t size = 0;
  const Pop popped = events_.try_pop(writable_bytes_of(event), size);
  if (popped == Pop::kEmpty) return false;
  if (popped == Pop::kBroken || size != sizeof event) {
    core_->abandon();
    return false;
  }
  if (events_.take_producer_waiting()) eventfd_write(doorbell_.get(), 1);
  return true;
}

// A ring that is broken has something to tell, too.
bool RingCmLink::arm() {
  if (core_->inherited()) return true;
  const std::lock_guard lock(events_mutex_);
  return events_.sleep_prepare();
}

bool RingCmLink::disarm() {
  if (core_->inherited()) return false;
  const std::lock_guard lock(events_mutex_);
  return events_.sleep_done();
}

// --- Data link
// --------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<DataLink>> RingDataLink::open(std::shared_ptr<SessionCore> core) {
  const CancellationOff no_cancellation;
  auto answer = core->ask(ipc::ControlCall::kOpenDataLink);
  if (!answer) return tl::unexpected(answer.error());
  if (answer->reply.descriptor_count != 2) return fail(EPROTO, "ucmd's answer lacks a descriptor");
  auto memory = ipc::SharedMemory::map(answer->descriptors[0].get(), ipc::kDataLinkSize);
  if (!memory) return tl::unexpected(memory.error());
  std::unique_ptr<DataLink> link(new RingDataLink(core, std::move(*memory), *answer));
  if (const auto added = core->add_listener(link->wake_fd()); !added) return tl::unexpected(added.error());
  return link;
}

RingDataLink::RingDataLink(std::shared_ptr<SessionCore> core, ipc::SharedMemory memory, Answer& answer)
    : core_(std::move(core)),
      memory_(std::move(memory)),
      wake_fd_(std::move(answer.descriptors[1])),
      packets_(memory_.data(), ipc::kDataRingSize) {}

RingDataLink::~RingDataLink() { core_->remove_listener(wake_fd_.get()); }

std::size_t RingDataLink::poll(const std::function<void(const wire::DatagramInfo&, Bytes)>& sink,
                               std::size_t packets_max) {
  std::size_t count = 0;
  while (count < packets_max && !core_->inherited()) {
    std::size_t size = 0;
    const Pop popped = packets_.try_pop(record_, size);
    if (popped == Pop::kEmpty) break;
    ipc::DataRecord header;
    if (popped == Pop::kBroken || size < sizeof header) {
      core_->abandon();
      break;
    }
    std::memcpy(&header, record_.data(), sizeof header);
    const wire::DatagramInfo info{.source = {header.source},
                                  .destination = {header.destination},
                                  .source_port = header.source_port,
                                  .destination_port = header.destination_port,
                                  .traffic_class = header.traffic_class,
                                  .hop_limit = header.hop_limit,
                                  .ifindex = header.ifindex,
                                  .ipv4_id = header.ipv4_id};
    sink(info, Bytes(record_).subspan(sizeof header, size - sizeof header));
    ++count;
  }
  return count;
}

bool RingDataLink::wait_prepare() {
  drain(wake_fd_.get());
  // Drained too much: the end of the node stays readable.
  if (core_->lost()) eventfd_write(wake_fd_.get(), 1);
  return packets_.sleep_prepare() || packets_.broken();
}

void RingDataLink::wait_done() { static_cast<void>(packets_.sleep_done()); }

}  // namespace ucm::client
