#include "rdma/event_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "rdma/id.h"
#include "rdma/process.h"

namespace ucm::rdma {
namespace {

ipc::SocketAddress without_port(ipc::SocketAddress address) {
  address.port = 0;
  return address;
}

// Without waiting, whatever the mode of the descriptor: a socket of ucmd's, or an eventfd.
bool take_token_now(int fd) {
  std::uint64_t token = 0;
  if (recv(fd, &token, sizeof(token), MSG_DONTWAIT) > 0) return true;
  if (errno != ENOTSOCK) return false;
  const iovec buffer{&token, sizeof(token)};
  return preadv2(fd, &buffer, 1, -1, RWF_NOWAIT) > 0;
}

}  // namespace

Event::Event(std::shared_ptr<Id> reported_on) : rdma_cm_event{}, reported_on_(std::move(reported_on)) {
  reported_on_->count_delivered();
}

Event::~Event() {
  if (!reported_on_->inherited_by_fork()) reported_on_->count_acknowledged();
}

std::uint8_t Event::keep_private_data(const ipc::CmConnParam& connection) {
  const std::size_t size = std::min<std::size_t>(connection.private_data_size, private_data_.size());
  std::copy_n(connection.private_data.begin(), size, private_data_.begin());
  return static_cast<std::uint8_t>(size);
}

void Event::set_datagram(const ipc::CmConnParam& answer, const ibv_ah_attr& peer) {
  rdma_ud_param& ud = param.ud;
  ud.private_data_len = keep_private_data(answer);
  ud.private_data = ud.private_data_len != 0 ? private_data_.data() : nullptr;
  ud.ah_attr = peer;
  ud.qp_num = answer.qp_num;
  ud.qkey = answer.qkey;
}

void Event::set_connection(const ipc::CmConnParam& connection) {
  rdma_conn_param& conn = param.conn;
  conn.private_data_len = keep_private_data(connection);
  conn.private_data = conn.private_data_len != 0 ? private_data_.data() : nullptr;
  conn.responder_resources = connection.responder_resources;
  conn.initiator_depth = connection.initiator_depth;
  conn.flow_control = connection.flow_control;
  conn.retry_count = connection.retry_count;
  conn.rnr_retry_count = connection.rnr_retry_count;
  conn.srq = connection.srq;
  conn.qp_num = connection.qp_num;
}

EventChannel::EventChannel(std::unique_ptr<client::CmLink> link, kernel::KernelLink* kernel)
    : rdma_event_channel{link->poll_fd()}, link_(std::move(link)), kernel_(kernel), generation_(fork_generation()) {}

EventChannel::~EventChannel() {
  // The rings and sockets of an inherited link are the parent's: closing them here would end its connections.
  if (inherited_by_fork()) static_cast<void>(link_.release());
}

bool EventChannel::inherited_by_fork() const { return generation_ != fork_generation(); }

Result<std::shared_ptr<EventChannel>> EventChannel::open() {
  std::shared_ptr<EventChannel> channel;
  if (backend() == Backend::kKernel) {
    auto link = kernel::KernelLink::open();
    if (!link) return tl::unexpected(link.error());
    kernel::KernelLink* const kernel = link->get();
    channel.reset(new EventChannel(std::move(*link), kernel));
  } else {
    auto session = process_session();
    if (!session) return tl::unexpected(session.error());
    auto link = (*session)->open_cm_link();
    if (!link) return tl::unexpected(link.error());
    channel.reset(new EventChannel(std::move(*link), nullptr));
  }
  channel->self_ = channel;
  return channel;
}

void EventChannel::close() {
  if (inherited_by_fork()) return;
  const std::shared_ptr<EventChannel> self = std::move(self_);
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

ipc::CmReply EventChannel::call(const ipc::CmCommand& command) {
  if (inherited_by_fork()) return {.error = ENOTCONN};
  return link_->call(command);
}

ipc::CmReply EventChannel::post(const ipc::CmCommand& command) {
  if (inherited_by_fork()) return {.error = ENOTCONN};
  return link_->post(command);
}

bool EventChannel::has_resolved(const ipc::SocketAddress& destination) {
  const std::lock_guard lock(mutex_);
  return resolved_.family != 0 && resolved_ == without_port(destination);
}

void EventChannel::set_resolved(const ipc::SocketAddress& destination) {
  const std::lock_guard lock(mutex_);
  resolved_ = without_port(destination);
}

void EventChannel::forget_resolved() {
  const std::lock_guard lock(mutex_);
  resolved_ = {};
}

void EventChannel::add(std::shared_ptr<Id> id) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t handle = id->handle();
  ids_.insert_or_assign(handle, std::move(id));
}

void EventChannel::raise(std::shared_ptr<Id> id, const ipc::CmEvent& event) {
  const std::lock_guard lock(mutex_);
  fetch_all();
  pending_.push_back({event, std::move(id)});
  announce();
}

void EventChannel::remove(Id& id) {
  // Keeps the ID alive until the lock is released.
  std::shared_ptr<Id> keep;
  const std::lock_guard lock(mutex_);
  const bool fetched = fetch_all();
  const std::size_t erased = std::erase_if(pending_, [&](const Pending& p) { return p.target.get() == &id; });
  if (fetched || erased != 0) retract();
  if (auto entry = ids_.find(id.handle()); entry != ids_.end() && entry->second.get() == &id) {
    keep = std::move(entry->second);
    ids_.erase(entry);
  }
}

Result<void> EventChannel::migrate(Id& id, EventChannel& destination) {
  const std::scoped_lock lock(mutex_, destination.mutex_);
  // With both locks held nobody can read an event that the destination gets before those that waited here have moved.
  if (auto moved = destination.take_over(id.handle(), *this); !moved) return moved;
  fetch_all();
  const auto is_of_id = [&](const Pending& pending) { return pending.target.get() == &id; };
  std::copy_if(pending_.begin(), pending_.end(), std::back_inserter(destination.pending_), is_of_id);
  if (std::erase_if(pending_, is_of_id) != 0) {
    retract();
    destination.announce();
  }
  if (auto entry = ids_.find(id.handle()); entry != ids_.end()) {
    destination.ids_.insert_or_assign(id.handle(), std::move(entry->second));
    ids_.erase(entry);
  }
  return {};
}

Result<void> EventChannel::take_over(std::uint32_t handle, EventChannel& from) {
  if (kernel_ != nullptr) return kernel_->adopt(handle, *from.kernel_);
  ipc::CmCommand command;
  command.call = ipc::CmCall::kMigrateId;
  command.id = handle;
  const ipc::CmReply reply = call(command);
  if (reply.error != 0) return fail(reply.error, "the node refused to move the ID to another channel");
  return {};
}

Result<Event*> EventChannel::next_event() {
  // The program may destroy the channel while this thread waits on it.
  const std::shared_ptr<EventChannel> self = shared_from_this();
  if (inherited_by_fork()) return fail(ENOTCONN, "the event channel belongs to the parent process");
  Token token = Token::kNone;
  for (;;) {
    std::unique_ptr<Event> event;
    ipc::CmEvent cause;
    switch (take(std::exchange(token, Token::kNone), event, cause)) {
      case Taken::kNothing:
        if (auto waited = wait_for_token(); !waited) return tl::unexpected(waited.error());
        token = Token::kTaken;
        continue;
      case Taken::kNodeGone:
        return fail(ENOTCONN, "the UCM node is gone");
      case Taken::kEvent:
        break;
    }
    Id& target = event->reported_on();
    if (target.process_event(cause, *event)) return event.release();
  }
}

Result<void> EventChannel::wait_for_token() {
  const int error = link_->take_token();
  return error == 0 ? Result<void>{} : fail(error, "no event");
}

void EventChannel::put_token() {
  const std::uint64_t one = 1;
  static_cast<void>(!write(link_->event_fd(), &one, sizeof(one)));
}

// Without a node the channel remains readable: whoever polls or waits on it shall see that.
void EventChannel::settle() {
  if (!pending_.empty() || link_->lost() || !link_->arm()) put_token();
}

void EventChannel::announce() {
  if (link_->disarm()) put_token();
}

void EventChannel::retract() {
  if (!pending_.empty() || inherited_by_fork()) return;
  // A token that is not there yet, or a kernel that cannot do this, leaves a token without an event: next_event() looks
  // again then.
  if (take_token_now(link_->event_fd())) settle();
}

EventChannel::Taken EventChannel::take(Token token, std::unique_ptr<Event>& event, ipc::CmEvent& cause) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Taken::kNothing;
  while (pending_.size() < 2 && fetch()) continue;
  const bool taken = token == Token::kTaken;
  if (!taken && pending_.size() < 2) return Taken::kNothing;
  if (pending_.empty() && link_->lost()) {
    if (told_node_lost_) {
      settle();
      return Taken::kNodeGone;
    }
    tell_node_lost();
  }
  const bool found = !pending_.empty();
  if (found) {
    event = std::make_unique<Event>(std::move(pending_.front().target));
    cause = pending_.front().event;
    pending_.pop_front();
  }
  if (taken) settle();
  return found ? Taken::kEvent : Taken::kNothing;
}

bool EventChannel::fetch() {
  ipc::CmEvent event;
  if (inherited_by_fork() || !link_->poll_event(event)) return false;
  const bool for_listener = event.type == ipc::CmEventType::kConnectRequest;
  const auto entry = ids_.find(for_listener ? event.listen_id : event.id);
  // An event for an ID that has been destroyed meanwhile.
  if (entry == ids_.end()) return true;
  pending_.push_back({event, entry->second});
  return true;
}

bool EventChannel::fetch_all() {
  bool any = false;
  while (fetch()) any = true;
  return any;
}

void EventChannel::tell_node_lost() {
  told_node_lost_ = true;
  for (const auto& [handle, id] : ids_) {
    const auto type = id->event_when_node_lost();
    if (!type) continue;
    ipc::CmEvent event;
    event.type = *type;
    event.status = -ENETDOWN;
    event.id = handle;
    pending_.push_back({event, id});
  }
}

}  // namespace ucm::rdma
