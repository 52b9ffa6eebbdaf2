// A stream's life: addresses, connections, the end.
#include "rsocket/stream_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "rsocket/service.h"

namespace ucm::rsocket {
namespace {

constexpr int kResolveTimeout_ms = 15'000;  // a neighbour that does not answer within is not there
constexpr std::uint8_t kRetriesMost = 7;    // for receivers that are not ready: endless
constexpr std::uint16_t kRejectConsumer = 28;

}  // namespace

StreamSocket::StreamSocket(std::shared_ptr<rdma::EventChannel> channel, rdma::Id* id, int domain)
    : channel_(std::move(channel)), id_(id), domain_(domain), settings_(defaults().settings) {}

Result<std::shared_ptr<StreamSocket>> StreamSocket::create(int domain) {
  auto channel = rdma::EventChannel::open();
  if (!channel) return tl::unexpected(channel.error());
  auto id = rdma::Id::create(channel->get(), nullptr, RDMA_PS_TCP);
  if (!id || fcntl((*channel)->fd, F_SETFL, O_NONBLOCK) != 0) {
    (*channel)->close();
    return id ? fail(errno, "an event channel that blocks") : tl::unexpected(id.error());
  }
  return std::shared_ptr<StreamSocket>(new StreamSocket(std::move(*channel), *id, domain));
}

StreamSocket::~StreamSocket() {
  if (state_ != State::kClosed) release();
}

Result<void> StreamSocket::usable() const {
  if (state_ == State::kClosed) return fail(EBADF, "closed");
  if (channel_->inherited_by_fork()) return fail(ENOTCONN, "the rsocket belongs to the parent process");
  return {};
}

Result<void> StreamSocket::bind(const sockaddr* address, socklen_t /*size*/) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  return id_->bind_addr(address);
}

Result<void> StreamSocket::listen(int backlog) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  if (state_ == State::kListening) return {};
  if (state_ != State::kIdle) return fail(EINVAL, "in use for a connection");
  if (auto listening = id_->listen(backlog); !listening) return listening;
  state_ = State::kListening;
  return {};
}

// --- Making a connection --------------------------------------------------------------------------------------------

Result<void> StreamSocket::connect(const sockaddr* address, socklen_t /*size*/) {
  std::unique_lock lock(mutex_);
  if (auto can = usable(); !can) return can;
  if (opening()) return fail(EALREADY, "being connected");
  if (has_stream()) return fail(EISCONN, "connected");
  if (state_ != State::kIdle) return fail(EINVAL, "of no use for a connection");
  if (auto resolving = id_->resolve_addr(nullptr, address, kResolveTimeout_ms); !resolving) return resolving;
  state_ = State::kResolvingAddress;
  if (nonblocking(0)) {
    // The program may not call again before it is connected.
    if (auto attended = Service::instance().attend(shared_from_this()); !attended) return attended;
    return fail(EINPROGRESS, "being connected");
  }
  if (auto done = wait(lock, Patience::kEndless, [this] { return !opening(); }); !done) return done;
  if (state_ == State::kFailed) return fail(take_error(), "cannot connect");
  return {};
}

Result<std::shared_ptr<Socket>> StreamSocket::accept(const AddressOut& peer) {
  std::unique_lock lock(mutex_);
  if (auto can = usable(); !can) return tl::unexpected(can.error());
  if (state_ != State::kListening) return fail(EINVAL, "not listening");
  for (;;) {
    auto come = wait(lock, patience(0), [this] { return !requests_.empty() || state_ != State::kListening; });
    if (!come) return tl::unexpected(come.error());
    if (state_ != State::kListening) return fail(ENETDOWN, "the UCM node is gone");
    const Request request = requests_.front();
    requests_.pop_front();
    auto channel = rdma::EventChannel::open();
    Result<void> moved = channel ? request.id->migrate(channel->get()) : tl::unexpected(channel.error());
    if (moved && fcntl((*channel)->fd, F_SETFL, O_NONBLOCK) != 0) moved = fail(errno, "an event channel that blocks");
    if (!moved) {
      request.id->destroy();
      if (channel) (*channel)->close();
      return tl::unexpected(moved.error());
    }
    const std::shared_ptr<StreamSocket> accepted(new StreamSocket(std::move(*channel), request.id, domain_));
    const auto answered = accepted->answer(request, *this);
    if (answered) {
      static_cast<void>(accepted->peer_name(peer));
      return accepted;
    }
    accepted->close();
    // A request that was withdrawn meanwhile is not this program's trouble.
    if (answered.error().code == ENOMEM || answered.error().code == EMFILE) return tl::unexpected(answered.error());
  }
}

Result<void> StreamSocket::answer(const Request& request, const StreamSocket& listener) {
  const std::lock_guard lock(mutex_);
  settings_ = listener.settings_;
  options_ = listener.options_;
  if (auto made = make_queue(); !made) {
    static_cast<void>(id_->reject(kRejectConsumer, nullptr, 0));
    return made;
  }
  const auto data = stream_->connection_data().emit();
  rdma_conn_param param{};
  param.private_data = data.data();
  param.private_data_len = data.size();
  param.flow_control = 1;
  param.retry_count = kRetriesMost;
  param.rnr_retry_count = kRetriesMost;
  stream_->connected(request.peer);
  state_ = State::kAccepting;
  was_connected_ = true;
  return id_->accept(&param);
}

// The device is known; the queue is made for the peer that comes next.
Result<void> StreamSocket::make_queue() {
  ibv_device_attr limits{};
  if (const int error = ibv_query_device(id_->verbs, &limits); error != 0) return fail(error, "no device attributes");
  const auto most = static_cast<std::uint16_t>(std::min<int>(limits.max_qp_wr - kControlReceives, kQueueSizeMax));
  StreamSizes& sizes = settings_.sizes;
  sizes.send_queue = std::min(sizes.send_queue, most);
  sizes.receive_queue = std::min(sizes.receive_queue, most);
  sizes = sizes.rounded();
  auto queue = ReliableQueue::create(*id_, sizes, settings_.inline_size);
  if (!queue) return tl::unexpected(queue.error());
  queue_ = std::move(*queue);
  settings_.inline_size = static_cast<std::uint16_t>(std::min<std::uint32_t>(queue_->inline_size(), kQueueSizeMax));
  stream_.emplace(sizes, queue_->remote_block(), queue_->local_block(), queue_->remote_key());
  return {};
}

Result<void> StreamSocket::request_connection() {
  if (auto made = make_queue(); !made) return made;
  const auto data = stream_->connection_data().emit();
  rdma_conn_param param{};
  param.private_data = data.data();
  param.private_data_len = data.size();
  param.flow_control = 1;
  param.retry_count = kRetriesMost;
  param.rnr_retry_count = kRetriesMost;
  return id_->connect(&param);
}

// --- Events ---------------------------------------------------------------------------------------------------------

void StreamSocket::read_cm_events() {
  bool any = false;
  while (!closed()) {
    const auto next = channel_->next_event();
    if (!next) {
      if (next.error().code != EAGAIN && next.error().code != EINTR) lose_node();
      break;
    }
    const std::unique_ptr<rdma::Event> event(*next);
    on_cm_event(*event);
    any = true;
  }
  if (any) waiters_.wake_others();
}

void StreamSocket::on_cm_event(const rdma_cm_event& event) {
  Result<void> next;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (state_ != State::kResolvingAddress) return;
      state_ = State::kResolvingRoute;
      next = id_->resolve_route(kResolveTimeout_ms);
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (state_ != State::kResolvingRoute) return;
      state_ = State::kConnecting;
      next = request_connection();
      break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      return on_request(event);
    case RDMA_CM_EVENT_ESTABLISHED:
      return on_established(event);
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return;
    default:
      return on_failure(event);
  }
  if (!next) fail_connection(next.error().code);
}

void StreamSocket::on_request(const rdma_cm_event& event) {
  rdma::Id& id = rdma::Id::from(*event.id);
  const auto* bytes = static_cast<const std::uint8_t*>(event.param.conn.private_data);
  const auto peer = ConnectionData::parse({bytes, event.param.conn.private_data_len});
  if (peer && state_ == State::kListening) return requests_.push_back({&id, *peer});
  // Not an rsocket, or one of another version.
  static_cast<void>(id.reject(kRejectConsumer, nullptr, 0));
  id.destroy();
}

void StreamSocket::on_established(const rdma_cm_event& event) {
  if (state_ == State::kAccepting) state_ = State::kConnected;
  if (state_ != State::kConnecting) return;
  const auto* bytes = static_cast<const std::uint8_t*>(event.param.conn.private_data);
  const auto peer = ConnectionData::parse({bytes, event.param.conn.private_data_len});
  was_connected_ = true;
  if (!peer) return fail_connection(EPROTO);
  stream_->connected(*peer);
  state_ = State::kConnected;
}

void StreamSocket::on_failure(const rdma_cm_event& event) {
  if (event.event == RDMA_CM_EVENT_DISCONNECTED || event.event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    // What the peer wrote before it left is there by now.
    if (has_stream()) poll_completions();
    return fail_connection(ECONNRESET);
  }
  const bool refused = event.event == RDMA_CM_EVENT_REJECTED;
  fail_connection(refused || event.status == 0 ? ECONNREFUSED : std::abs(event.status));
}

void StreamSocket::fail_connection(int error) {
  if (has_stream()) {
    if (!stream_->connected()) return;  // an end that both sides know of
    stream_->on_end(error);
    error_ = error;
    return;
  }
  if (!opening()) return;
  state_ = State::kFailed;
  error_ = error;
}

// Whatever the socket was made for, nothing can come of it any more.
void StreamSocket::lose_node() {
  fail_connection(ENETDOWN);
  if (has_stream() || state_ == State::kFailed) return;
  state_ = State::kFailed;
  error_ = ENETDOWN;
}

int StreamSocket::take_error() { return std::exchange(error_, 0); }

// --- Progress -------------------------------------------------------------------------------------------------------

void StreamSocket::progress() {
  constexpr std::uint32_t kIdlePollsOfALook = 256;  // reading events is a system call, polling completions is not
  if (!usable()) return;
  if (!has_stream() || state_ == State::kAccepting) read_cm_events();
  if (!has_stream()) return;
  if (poll_completions()) {
    idle_polls_ = 0;
    waiters_.wake_others();
  } else if (++idle_polls_ % kIdlePollsOfALook == 0) {
    read_cm_events();
  }
  post_writes();
}

bool StreamSocket::poll_completions() {
  constexpr int kAtOnce = 32;
  ibv_wc completions[kAtOnce];
  bool any = false;
  for (int count = kAtOnce; count == kAtOnce;) {
    count = queue_->poll(completions);
    std::size_t received = 0;
    for (const ibv_wc& completion : std::span(completions, static_cast<std::size_t>(std::max(count, 0)))) {
      const bool success = completion.status == IBV_WC_SUCCESS;
      if (!ReliableQueue::is_receive(completion)) {
        stream_->on_written(ReliableQueue::kind_of(completion), ReliableQueue::held_of(completion));
        if (!success) fail_connection(completion.status == IBV_WC_RETRY_EXC_ERR ? ETIMEDOUT : ECONNRESET);
      } else if (success) {
        ++received;
        const bool alive = stream_->connected();
        if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0)
          stream_->on_message(ntohl(completion.imm_data), completion.byte_len);
        if (alive && stream_->error() != 0) error_ = stream_->error();
      }
    }
    any |= count > 0;
    if (received != 0 && state_ == State::kAccepting) {
      // The peer is there, whatever has become of its RTU.
      static_cast<void>(id_->notify(IBV_EVENT_COMM_EST));
      state_ = State::kConnected;
    }
    if (received == 0 || !stream_->connected()) continue;
    if (auto posted = queue_->post_receives(received); !posted) fail_connection(posted.error().code);
  }
  return any;
}

void StreamSocket::post_writes() {
  if (state_ != State::kConnected) return;
  while (const auto write = stream_->poll_write()) {
    if (auto posted = queue_->post(*write); !posted) return fail_connection(posted.error().code);
  }
}

short StreamSocket::ready() const {
  switch (state_) {
    case State::kListening:
      return requests_.empty() ? 0 : POLLIN;
    case State::kFailed:
      return POLLIN | POLLOUT | POLLERR;
    case State::kAccepting:
      return stream_->receive_returns() ? POLLIN : 0;
    case State::kConnected:
      break;
    case State::kClosed:
      return POLLNVAL;
    default:
      return 0;
  }
  int events = 0;
  if (stream_->receive_returns()) events |= POLLIN;
  if (stream_->may_send() || !stream_->sending()) events |= POLLOUT;
  // While there is something to read, that is the news.
  if (!stream_->connected() && !stream_->readable()) events |= stream_->error() != 0 ? POLLERR | POLLHUP : POLLHUP;
  return static_cast<short>(events);
}

void StreamSocket::arm(std::vector<pollfd>& wait_on) {
  if (!usable() || state_ == State::kFailed) return;
  wait_on.push_back({channel_->fd, POLLIN, 0});
  if (!has_stream()) return;
  queue_->arm();
  wait_on.push_back({queue_->event_fd(), POLLIN, 0});
}

void StreamSocket::take_events(std::span<const pollfd> waited_on) {
  if (!usable() || waited_on.empty()) return;
  if (waited_on[0].revents != 0) read_cm_events();
  if (waited_on.size() < 2 || waited_on[1].revents == 0 || !has_stream()) return;
  queue_->take_events();
  // Those who waited for this event must ask for the next.
  waiters_.wake_others();
}

std::optional<Clock::time_point> StreamSocket::serve(Clock::time_point now, std::vector<pollfd>& wait_on) {
  const std::lock_guard lock(mutex_);
  if (!usable()) return std::nullopt;
  progress();
  if (opening()) {
    wait_on.push_back({channel_->fd, POLLIN, 0});
    return Clock::time_point::max();
  }
  if (!keepalive_ || state_ != State::kConnected || !stream_->connected()) return std::nullopt;
  if (now >= keepalive_at_) {
    stream_->send_keepalive();
    post_writes();
    keepalive_at_ = now + keepalive_time_;
  }
  return keepalive_at_;
}

// --- The end --------------------------------------------------------------------------------------------------------

Result<void> StreamSocket::shut_down(int how) {
  std::unique_lock lock(mutex_);
  if (auto can = usable(); !can) return can;
  return shut_down_locked(lock, how);
}

Result<void> StreamSocket::shut_down_locked(std::unique_lock<std::mutex>& lock, int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return fail(EINVAL, "unknown direction");
  if (state_ == State::kAccepting) {
    auto ready =
        wait(lock, Patience::kEndless, [this] { return state_ != State::kAccepting || !stream_->connected(); });
    if (!ready) return ready;
  }
  if (state_ != State::kConnected) return fail(ENOTCONN, "not connected");
  // In this order: with both, the peer hears of the end of all at once.
  if (how != SHUT_WR) stream_->shut_down_receiving();
  if (how != SHUT_RD) stream_->shut_down_sending();
  post_writes();
  // The peer has everything when this returns.
  auto done = wait(lock, Patience::kEndless, [this] { return stream_->idle() || !stream_->connected(); });
  if (!done) return done;
  if (!stream_->connected()) disconnect();
  waiters_.wake_others();
  return {};
}

void StreamSocket::disconnect() {
  // A connection that is gone already needs no more.
  if (std::exchange(was_connected_, false)) static_cast<void>(id_->disconnect());
}

void StreamSocket::close() {
  std::unique_lock lock(mutex_);
  if (closed()) return;
  if (usable() && has_stream() && stream_->connected()) static_cast<void>(shut_down_locked(lock, SHUT_RDWR));
  if (closed()) return;  // by another thread meanwhile
  release();
  waiters_.wake_others();
  if (keepalive_) static_cast<void>(Service::instance().attend(shared_from_this()));
}

void StreamSocket::release() {
  if (channel_->inherited_by_fork()) {
    if (queue_ != nullptr) queue_->abandon();
  } else {
    disconnect();
    for (const Mapping& mapping : mappings_) ibv_dereg_mr(mapping.region);
  }
  for (const Request& request : requests_) request.id->destroy();
  requests_.clear();
  state_ = State::kClosed;
  queue_.reset();
  id_->destroy();
  channel_->close();
}

}  // namespace ucm::rsocket
