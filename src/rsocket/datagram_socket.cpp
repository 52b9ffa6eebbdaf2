#include "rsocket/datagram_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rdma/process.h"
#include "rsocket/service.h"

namespace ucm::rsocket {
namespace {

// A peer reads UDP datagrams into as much as this.  // librdmacm: the same
constexpr std::size_t kUdpSizeMax = kSendLowWater;
constexpr std::size_t kPeersMax = 4096;  // that a socket talks to; more are refused, since a peer can name any
constexpr std::size_t kPartsMax = 64;

sockaddr* generic(sockaddr_storage& address) { return reinterpret_cast<sockaddr*>(&address); }

Result<void> checked(int result, const char* what) {
  if (result == 0) return {};
  return fail(errno, what);
}

std::size_t size_of(std::span<const iovec> data) {
  std::size_t size = 0;
  for (const iovec& part : data) size += part.iov_len;
  return size;
}

}  // namespace

// --- Addresses ------------------------------------------------------------------------------------------------------

std::optional<DatagramSocket::Endpoint> DatagramSocket::Endpoint::of(const sockaddr* address, socklen_t size) {
  if (address == nullptr) return std::nullopt;
  const bool ipv6 = address->sa_family == AF_INET6;
  if ((!ipv6 && address->sa_family != AF_INET) || size < (ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in))) {
    return std::nullopt;
  }
  sockaddr_storage storage{};
  std::memcpy(&storage, address, std::min<std::size_t>(size, sizeof(storage)));
  return of(storage);
}

DatagramSocket::Endpoint DatagramSocket::Endpoint::of(const sockaddr_storage& address) {
  Endpoint endpoint;
  if (address.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
    endpoint.host.is_ipv6 = true;
    std::memcpy(endpoint.host.bytes.data(), &in.sin6_addr, 16);
    endpoint.port = ntohs(in.sin6_port);
    endpoint.scope = in.sin6_scope_id;
  } else {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    std::memcpy(endpoint.host.bytes.data(), &in.sin_addr, 4);
    endpoint.port = ntohs(in.sin_port);
  }
  return endpoint;
}

sockaddr_storage DatagramSocket::Endpoint::storage() const {
  sockaddr_storage storage{};
  if (host.is_ipv6) {
    auto& in = reinterpret_cast<sockaddr_in6&>(storage);
    in.sin6_family = AF_INET6;
    std::memcpy(&in.sin6_addr, host.bytes.data(), 16);
    in.sin6_port = htons(port);
    in.sin6_scope_id = scope;
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(storage);
    in.sin_family = AF_INET;
    std::memcpy(&in.sin_addr, host.bytes.data(), 4);
    in.sin_port = htons(port);
  }
  return storage;
}

socklen_t DatagramSocket::Endpoint::size() const { return host.is_ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }

// --- Life -----------------------------------------------------------------------------------------------------------

DatagramSocket::DatagramSocket(int udp_fd)
    : udp_fd_(udp_fd), generation_(rdma::fork_generation()), settings_(defaults().settings) {}

Result<std::shared_ptr<DatagramSocket>> DatagramSocket::create(int domain) {
  // Without a node there are no devices, and the program should hear of it now.
  if (auto present = rdma::backend_present(); !present) return tl::unexpected(present.error());
  const int fd = ::socket(domain, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail(errno, "no UDP socket");
  return std::shared_ptr<DatagramSocket>(new DatagramSocket(fd));
}

DatagramSocket::~DatagramSocket() {
  if (!closed_) release();
  ::close(udp_fd_);
}

Result<void> DatagramSocket::usable() const {
  if (closed_) return fail(EBADF, "closed");
  if (inherited_by_fork()) return fail(ENOTCONN, "the rsocket belongs to the parent process");
  return {};
}

bool DatagramSocket::inherited_by_fork() const { return generation_ != rdma::fork_generation(); }

Result<void> DatagramSocket::bind(const sockaddr* address, socklen_t size) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  if (auto bound = checked(::bind(udp_fd_, address, size), "bind"); !bound) return bound;
  return start();
}

Result<void> DatagramSocket::start() {
  if (started_) return {};
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (auto named = checked(::getsockname(udp_fd_, generic(own), &size), "getsockname"); !named) return named;
  if (Endpoint::of(own).port == 0) {
    if (auto bound = checked(::bind(udp_fd_, generic(own), size), "bind"); !bound) return bound;
  }
  if (auto attended = Service::instance().attend(shared_from_this()); !attended) return attended;
  started_ = true;
  return {};
}

Result<void> DatagramSocket::connect(const sockaddr* address, socklen_t size) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  const auto to = Endpoint::of(address, size);
  if (!to) return fail(EAFNOSUPPORT, "neither IPv4 nor IPv6");
  if (auto ready = start(); !ready) return ready;
  if (auto connected = checked(::connect(udp_fd_, address, size), "connect"); !connected) return connected;
  auto peer = peer_at(*to);
  if (!peer) return tl::unexpected(peer.error());
  connected_to_ = *to;
  return {};
}

Result<void> DatagramSocket::listen(int /*backlog*/) { return fail(EOPNOTSUPP, "datagrams have no connections"); }

Result<std::shared_ptr<Socket>> DatagramSocket::accept(const AddressOut& /*peer*/) {
  return fail(EOPNOTSUPP, "datagrams have no connections");
}

// What goes between QPs cannot be shut; the kernel says whether the rest can.
Result<void> DatagramSocket::shut_down(int how) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  return checked(::shutdown(udp_fd_, how), "shutdown");
}

void DatagramSocket::close() {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  if (usable()) {
    const auto sent = [this] { return std::ranges::all_of(queues_, [](const auto& queue) { return queue->idle(); }); };
    static_cast<void>(wait(lock, Patience::kEndless, sent));
  }
  if (closed_) return;  // by another thread meanwhile
  release();
  waiters_.wake_others();
  if (started_) static_cast<void>(Service::instance().attend(shared_from_this()));
}

void DatagramSocket::release() {
  const bool inherited = inherited_by_fork();
  closed_ = true;
  for (const auto& [address, peer] : peers_) {
    if (peer.handle != nullptr && !inherited) ibv_destroy_ah(peer.handle);
  }
  peers_.clear();
  for (const auto& queue : queues_) {
    if (inherited) queue->abandon();
  }
  queues_.clear();
}

// --- Peers ----------------------------------------------------------------------------------------------------------

Result<DatagramSocket::Peer*> DatagramSocket::peer_at(const Endpoint& address) {
  if (const auto known = peers_.find(address); known != peers_.end()) return &known->second;
  if (peers_.size() == kPeersMax) return fail(ENOBUFS, "too many peers");
  const auto source = source_for(address);
  if (!source) return tl::unexpected(source.error());
  auto queue = queue_at(*source);
  if (!queue) return tl::unexpected(queue.error());
  return &peers_.emplace(address, Peer{.queue = *queue}).first->second;
}

// The own address that a peer is reached from, with the socket's port.
Result<DatagramSocket::Endpoint> DatagramSocket::source_for(const Endpoint& destination) const {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (::getsockname(udp_fd_, generic(own), &size) != 0) return fail(errno, "getsockname");
  const Endpoint bound = Endpoint::of(own);
  if (bound.host.bytes != HostAddress{}.bytes) return bound;
  // Close-on-exec also tells a preloaded librspreload.so that this is no socket of the program's.
  const int probe = ::socket(destination.host.is_ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return fail(errno, "no UDP socket");
  sockaddr_storage to = destination.storage();
  size = sizeof(own);
  const bool found =
      ::connect(probe, generic(to), destination.size()) == 0 && ::getsockname(probe, generic(own), &size) == 0;
  const int error = errno;
  ::close(probe);
  if (!found) return fail(error, "no route to the peer");
  Endpoint source = Endpoint::of(own);
  source.port = bound.port;
  return source;
}

Result<DatagramQueue*> DatagramSocket::queue_at(const Endpoint& local) {
  Endpoint address = local;
  address.port = 0;
  for (const auto& queue : queues_) {
    if (Endpoint::of(queue->local()) == address) return queue.get();
  }
  const DatagramHeader header{.host = local.host, .port = local.port, .flow_info = 0};
  auto queue = DatagramQueue::create(address.storage(), header, settings_);
  if (!queue) return tl::unexpected(queue.error());
  queues_.push_back(std::move(*queue));
  waiters_.wake_others();  // there is one more to wait for
  return queues_.back().get();
}

// --- Sending --------------------------------------------------------------------------------------------------------

Result<std::size_t> DatagramSocket::send(std::span<const iovec> data, int flags, const sockaddr* to, socklen_t size) {
  std::unique_lock lock(mutex_);
  if (auto can = usable(); !can) return tl::unexpected(can.error());
  auto address = to != nullptr ? Endpoint::of(to, size) : connected_to_;
  if (!address) return to != nullptr ? fail(EAFNOSUPPORT, "neither IPv4 nor IPv6") : fail(EDESTADDRREQ, "no peer");
  if (auto ready = start(); !ready) return tl::unexpected(ready.error());
  auto found = peer_at(*address);
  if (!found) return tl::unexpected(found.error());
  Peer& peer = **found;
  const std::size_t total = size_of(data);
  if (peer.handle == nullptr || total > peer.queue->size_max()) {
    return send_by_udp(peer, *address, data, UdpHeader::Kind::kData);
  }
  if (auto free = wait(lock, patience(flags), [&] { return peer.queue->may_send(); }); !free) {
    return tl::unexpected(free.error());
  }
  if (auto sent = peer.queue->send(data, peer.handle, peer.qpn); !sent) return tl::unexpected(sent.error());
  return total;
}

Result<std::size_t> DatagramSocket::send_by_udp(const Peer& peer, const Endpoint& to, std::span<const iovec> data,
                                                UdpHeader::Kind kind) {
  const UdpHeader header{.kind = kind, .qpn = peer.queue->qpn(), .host = Endpoint::of(peer.queue->local()).host};
  std::array<std::uint8_t, UdpHeader::kSizeMax> bytes{};
  header.emit(bytes.data());
  if (size_of(data) + header.size() > kUdpSizeMax || data.size() >= kPartsMax) return fail(EMSGSIZE, "too long");
  std::array<iovec, kPartsMax> parts{};
  parts[0] = {bytes.data(), header.size()};
  std::ranges::copy(data, parts.begin() + 1);
  sockaddr_storage address = to.storage();
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = to.size();
  message.msg_iov = parts.data();
  message.msg_iovlen = data.size() + 1;
  // A full socket buffer is one more way for a datagram to get lost.
  if (::sendmsg(udp_fd_, &message, MSG_NOSIGNAL) < 0 && errno != EAGAIN) return fail(errno, "sendmsg");
  return size_of(data);
}

// --- Receiving ------------------------------------------------------------------------------------------------------

Result<std::size_t> DatagramSocket::receive(std::span<const iovec> into, int flags, const AddressOut& from) {
  std::unique_lock lock(mutex_);
  if (auto can = usable(); !can) return tl::unexpected(can.error());
  if (auto come = wait(lock, patience(flags), [this] { return !received_.empty(); }); !come) {
    return tl::unexpected(come.error());
  }
  const Datagram& datagram = received_.front();
  from.store(datagram.from.storage());
  std::size_t done = 0;
  for (const iovec& part : into) {
    const std::size_t now = std::min(part.iov_len, datagram.bytes.size() - done);
    if (now != 0) std::memcpy(part.iov_base, datagram.bytes.data() + done, now);
    done += now;
  }
  if ((flags & MSG_PEEK) == 0) received_.pop_front();
  return done;
}

void DatagramSocket::keep(const Endpoint& from, Bytes bytes) {
  // As if the network had lost it.
  if (received_.size() >= settings_.sizes.receive_queue) return;
  received_.push_back({from, {bytes.begin(), bytes.end()}});
}

void DatagramSocket::on_datagram(const DatagramQueue& queue, Bytes bytes) {
  const auto header = DatagramHeader::parse(bytes);
  if (!header) return;
  // A link-local peer is on the link that it was received from.
  const std::uint32_t scope = header->host.is_ipv6 ? Endpoint::of(queue.local()).scope : 0;
  keep({.host = header->host, .port = header->port, .scope = scope}, bytes.subspan(header->size()));
}

void DatagramSocket::read_udp() {
  constexpr int kAtOnce = 64;
  std::array<std::uint8_t, kUdpSizeMax> buffer;
  for (int i = 0; i < kAtOnce; ++i) {
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    const ssize_t got = ::recvfrom(udp_fd_, buffer.data(), buffer.size(), MSG_DONTWAIT, generic(from), &size);
    if (got < 0) return;
    on_udp(Endpoint::of(from), Bytes(buffer).first(static_cast<std::size_t>(got)));
  }
}

void DatagramSocket::on_udp(const Endpoint& from, Bytes bytes) {
  const auto header = UdpHeader::parse(bytes);
  if (!header || header->host.is_ipv6 != from.host.is_ipv6) return;
  auto found = peer_at(from);
  if (!found) return;
  Peer& peer = **found;
  if (peer.handle == nullptr) {
    auto handle = peer.queue->address_handle(from.storage());
    if (!handle) return;
    peer.handle = *handle;
  }
  peer.qpn = header->qpn;
  if (header->kind == UdpHeader::Kind::kControl) return;
  static_cast<void>(send_by_udp(peer, from, {}, UdpHeader::Kind::kControl));
  keep(from, bytes.subspan(header->size()));
}

// --- Progress -------------------------------------------------------------------------------------------------------

void DatagramSocket::progress() {
  if (!usable()) return;
  bool any = false;
  for (const auto& queue : queues_) any |= queue->poll([&](Bytes bytes) { on_datagram(*queue, bytes); });
  if (any) waiters_.wake_others();
}

short DatagramSocket::ready() const {
  if (closed_) return POLLNVAL;
  const bool may_send = std::ranges::all_of(queues_, [](const auto& queue) { return queue->may_send(); });
  return static_cast<short>((received_.empty() ? 0 : POLLIN) | (may_send ? POLLOUT : 0));
}

void DatagramSocket::arm(std::vector<pollfd>& wait_on) {
  if (!usable()) return;
  for (const auto& queue : queues_) {
    queue->arm();
    wait_on.push_back({queue->event_fd(), POLLIN, 0});
  }
}

void DatagramSocket::take_events(std::span<const pollfd> waited_on) {
  if (!usable()) return;
  bool any = false;
  for (std::size_t i = 0; i < std::min(waited_on.size(), queues_.size()); ++i) {
    if (waited_on[i].revents == 0) continue;
    queues_[i]->take_events();
    any = true;
  }
  // Those who waited for these events must ask for the next.
  if (any) waiters_.wake_others();
}

std::optional<Clock::time_point> DatagramSocket::serve(Clock::time_point /*now*/, std::vector<pollfd>& wait_on) {
  const std::lock_guard lock(mutex_);
  if (!usable()) return std::nullopt;
  const std::size_t before = received_.size();
  const std::size_t peers = peers_.size();
  read_udp();
  if (received_.size() != before || peers_.size() != peers) waiters_.wake_others();
  wait_on.push_back({udp_fd_, POLLIN, 0});
  return Clock::time_point::max();
}

// --- Names and options ----------------------------------------------------------------------------------------------

Result<void> DatagramSocket::peer_name(const AddressOut& out) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  return checked(::getpeername(udp_fd_, out.address, out.size), "getpeername");
}

Result<void> DatagramSocket::local_name(const AddressOut& out) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  return checked(::getsockname(udp_fd_, out.address, out.size), "getsockname");
}

Result<void> DatagramSocket::set_option(int level, int name, const void* value, socklen_t size) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  if (level == SOL_RDMA) {
    if (value == nullptr || size < sizeof(int)) return fail(EINVAL, "no value for an option");
    int number = 0;
    std::memcpy(&number, value, sizeof(number));
    if (!queues_.empty()) return fail(EINVAL, "too late for this option");
    return settings_.set_rdma_option(name, number);
  }
  if (auto set = checked(::setsockopt(udp_fd_, level, name, value, size), "setsockopt"); !set) return set;
  if (level != SOL_SOCKET || (name != SO_RCVBUF && name != SO_SNDBUF) || !queues_.empty()) return {};
  settings_.set_buffer_size(name, *static_cast<const int*>(value));
  return {};
}

Result<void> DatagramSocket::get_option(int level, int name, void* value, socklen_t* size) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  if (level != SOL_RDMA) return checked(::getsockopt(udp_fd_, level, name, value, size), "getsockopt");
  const auto number = settings_.rdma_option(name);
  if (!number) return fail(ENOTSUP, "unknown option");
  return store_option(&*number, sizeof(*number), value, size);
}

}  // namespace ucm::rsocket
