#include "bench/tcp_ways.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "bench/address.h"
#include "bench/verbs_kit.h"

namespace ucm::bench {
namespace {

constexpr int kBacklog = 1'024;
constexpr int kEventsPerWait = 64;
constexpr std::uint8_t kPortNumber = 1;
constexpr std::uint64_t kListener = ~std::uint64_t{0};  // in epoll's data, where others have their slot
constexpr std::uint64_t kStop = kListener - 1;

// What the two ends tell each other. Both are on this host: its byte order.
struct QpInfo {
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  ibv_gid gid{};
};
constexpr std::uint8_t kClientReady = 1;

// The device that has an address, and how to bring a QP of it to where it can send.
class ExchangeDevice {
 public:
  static Result<ExchangeDevice> open(const in6_addr& gid) {
    int count = 0;
    ibv_device** devices = ibv_get_device_list(&count);
    if (devices == nullptr) return failed("ibv_get_device_list");
    ExchangeDevice found;
    for (int i = 0; i < count && found.context_ == nullptr; ++i) found.try_open(devices[i], gid);
    ibv_free_device_list(devices);
    if (found.context_ == nullptr) return fail(ENODEV, "no RDMA device has the address");
    return found;
  }

  ibv_context* context() const { return context_.get(); }
  QpInfo info(const ibv_qp* qp) const { return {.qpn = qp->qp_num, .psn = qp->qp_num & 0xff'ffff, .gid = gid_}; }

  Result<void> to_init(ibv_qp* qp) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = kPortNumber;
    return modify(qp, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }
  Result<void> to_rts(ibv_qp* qp, const QpInfo& peer) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = mtu_;
    attributes.dest_qp_num = peer.qpn;
    attributes.rq_psn = peer.psn;
    attributes.max_dest_rd_atomic = 1;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = kPortNumber;
    attributes.ah_attr.grh.dgid = peer.gid;
    attributes.ah_attr.grh.sgid_index = gid_index_;
    attributes.ah_attr.grh.hop_limit = 64;
    auto ready = modify(qp, attributes,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (!ready) return ready;
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = info(qp).psn;
    attributes.max_rd_atomic = 1;
    attributes.timeout = 14;
    attributes.retry_cnt = attributes.rnr_retry = 7;
    return modify(
        qp, attributes,
        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  }

 private:
  void try_open(ibv_device* device, const in6_addr& gid) {
    OwnedContext context(ibv_open_device(device));
    ibv_port_attr port{};
    if (context == nullptr || ibv_query_port(context.get(), kPortNumber, &port) != 0) return;
    for (int i = 0; i < port.gid_tbl_len; ++i) {
      if (ibv_query_gid(context.get(), kPortNumber, i, &gid_) != 0) continue;
      if (std::memcmp(&gid_, &gid, sizeof(gid)) != 0) continue;
      gid_index_ = static_cast<std::uint8_t>(i);
      mtu_ = port.active_mtu;
      context_ = std::move(context);
      return;
    }
  }
  static Result<void> modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask) {
    errno = ibv_modify_qp(qp, &attributes, mask);
    if (errno != 0) return failed("ibv_modify_qp");
    return {};
  }

  OwnedContext context_;
  ibv_gid gid_{};
  std::uint8_t gid_index_ = 0;
  ibv_mtu mtu_ = IBV_MTU_1024;
};

struct Connection {
  net::OwnedFd socket;
  OwnedQp qp;
  TimeNs started = 0;
  bool up = false;
};

Result<void> send_all(int fd, const void* bytes, std::size_t length) {
  // A few bytes in an empty buffer: they fit.
  if (send(fd, bytes, length, MSG_NOSIGNAL) != static_cast<ssize_t>(length)) return failed("send");
  return {};
}

template <class T>
Result<T> receive(int fd) {
  T value{};
  if (recv(fd, &value, sizeof(value), MSG_WAITALL) != sizeof(value)) return failed("recv");
  return value;
}

// What client and server have in common: a thread's sockets in one epoll, and their QPs where there are any.
class TcpEnd {
 protected:
  TcpEnd(const Workload& workload, std::uint32_t thread, Samples& samples)
      : samples_(samples),
        thread_(thread),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        connections_(workload.slots_of(thread)) {}

  Result<void> open_device(const in6_addr& gid) {
    auto device = ExchangeDevice::open(gid);
    if (!device) return tl::unexpected(device.error());
    device_.emplace(std::move(*device));
    auto kit = QpKit::make(device_->context(), static_cast<std::uint32_t>(connections_.size()), 0);
    if (!kit) return tl::unexpected(kit.error());
    kit_.emplace(std::move(*kit));
    return {};
  }
  Result<void> make_qp(Connection& connection) {
    if (!kit_) return {};
    auto qp = kit_->make_qp();
    if (!qp) return tl::unexpected(qp.error());
    connection.qp = std::move(*qp);
    return device_->to_init(connection.qp.get());
  }
  Result<void> watch(int fd, std::uint64_t data, std::uint32_t events) {
    epoll_event interest{.events = events, .data = {.u64 = data}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &interest) != 0) return failed("epoll_ctl");
    return {};
  }
  std::span<const epoll_event> wait() {
    const int count = epoll_wait(epoll_.get(), events_.data(), kEventsPerWait, -1);
    return {events_.data(), static_cast<std::size_t>(std::max(count, 0))};
  }
  void finish(Phase phase, std::uint32_t slot) {
    const TimeNs now = monotonic_now();
    samples_.record(phase, thread_, slot, now - connections_[slot].started);
    connections_[slot].started = now;
  }

  Samples& samples_;
  const std::uint32_t thread_;
  net::OwnedFd epoll_;
  std::array<epoll_event, kEventsPerWait> events_{};
  std::optional<ExchangeDevice> device_;
  std::optional<QpKit> kit_;
  std::vector<Connection> connections_;
};

class TcpClient final : public Client, TcpEnd {
 public:
  TcpClient(const Workload& workload, std::uint32_t thread, Samples& samples, const Address& server)
      : TcpEnd(workload, thread, samples), server_(server), in_flight_(workload.in_flight_of_thread()) {}
  using TcpEnd::open_device;

  Result<void> set_up(std::uint32_t count) override {
    const std::uint32_t target = begun_ + count;
    while (ended_ < target) {
      for (; begun_ < target && begun_ - ended_ < in_flight_; ++begun_) {
        if (auto begun = begin(begun_); !begun) return begun;
      }
      for (const epoll_event& event : wait()) {
        if (auto done = proceed(static_cast<std::uint32_t>(event.data.u64)); !done) return done;
      }
    }
    return {};
  }

  Result<void> take_down() override {
    for (std::uint32_t slot = 0; slot < connections_.size(); ++slot) {
      Connection& connection = connections_[slot];
      connection.started = monotonic_now();
      connection.qp.reset();
      connection.socket = {};
      finish(Phase::kDisconnect, slot);
      samples_.count_down();
    }
    return {};
  }

 private:
  Result<void> begin(std::uint32_t slot) {
    Connection& connection = connections_[slot];
    connection.started = monotonic_now();
    if (kit_) {
      if (auto made = make_qp(connection); !made) return made;
      finish(Phase::kCreateQp, slot);
    }
    connection.socket = net::OwnedFd(socket(server_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!connection.socket.valid()) return failed("socket");
    const int on = 1;
    setsockopt(connection.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (::connect(connection.socket.get(), server_.get(), server_.size()) != 0 && errno != EINPROGRESS) {
      return failed("connect");
    }
    return watch(connection.socket.get(), slot, EPOLLIN | EPOLLOUT | EPOLLET);
  }

  // Connected: tells of its QP, if it has one. Told of the server's: is up.
  Result<void> proceed(std::uint32_t slot) {
    Connection& connection = connections_[slot];
    if (connection.up) return {};
    const int fd = connection.socket.get();
    if (!kit_) return is_up(slot);
    if (!told_[slot]) {
      told_[slot] = true;
      const QpInfo own = device_->info(connection.qp.get());
      if (auto sent = send_all(fd, &own, sizeof(own)); !sent) return sent;
    }
    char byte = 0;
    if (recv(fd, &byte, 1, MSG_PEEK) != 1) return {};
    const auto peer = receive<QpInfo>(fd);
    if (!peer) return tl::unexpected(peer.error());
    if (auto ready = device_->to_rts(connection.qp.get(), *peer); !ready) return ready;
    if (auto sent = send_all(fd, &kClientReady, sizeof(kClientReady)); !sent) return sent;
    return is_up(slot);
  }

  Result<void> is_up(std::uint32_t slot) {
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(connections_[slot].socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      samples_.count_failure();
    } else {
      finish(Phase::kConnect, slot);
      samples_.count_up();
    }
    connections_[slot].up = true;
    ++ended_;
    return {};
  }

  Address server_;
  const std::uint32_t in_flight_;
  std::vector<bool> told_ = std::vector<bool>(connections_.size());
  std::uint32_t begun_ = 0;
  std::uint32_t ended_ = 0;
};

class TcpServer final : public Server, TcpEnd {
 public:
  TcpServer(const Workload& workload, std::uint32_t thread, Samples& samples) : TcpEnd(workload, thread, samples) {}
  using TcpEnd::open_device;

  Result<void> listen_on(Address address) {
    listener_ = net::OwnedFd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!listener_.valid()) return failed("socket");
    const int on = 1;
    setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener_.get(), address.get(), address.size()) != 0) return failed("bind");
    if (listen(listener_.get(), kBacklog) != 0) return failed("listen");
    return watch(listener_.get(), kListener, EPOLLIN);
  }

  Result<void> serve(int stop_fd) override {
    if (auto watched = watch(stop_fd, kStop, EPOLLIN); !watched) return watched;
    for (;;) {
      for (const epoll_event& event : wait()) {
        if (event.data.u64 == kStop) return {};
        const auto done =
            event.data.u64 == kListener ? accept_all() : proceed(static_cast<std::uint32_t>(event.data.u64));
        if (!done) return done;
      }
    }
  }

 private:
  Result<void> accept_all() {
    int fd = -1;
    while ((fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
      net::OwnedFd socket(fd);
      if (accepted_ == connections_.size()) continue;
      const std::uint32_t slot = accepted_++;
      connections_[slot].socket = std::move(socket);
      connections_[slot].started = monotonic_now();
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      if (auto watched = watch(fd, slot, EPOLLIN); !watched) return watched;
    }
    if (errno != EAGAIN) return failed("accept4");
    return {};
  }

  // Told of the client's QP: makes its own and answers. Told that the client is ready: is up. A hang-up: takes it down.
  Result<void> proceed(std::uint32_t slot) {
    Connection& connection = connections_[slot];
    const int fd = connection.socket.get();
    char byte = 0;
    if (recv(fd, &byte, 1, MSG_PEEK) != 1) {
      connection.qp.reset();
      connection.socket = {};
      return {};
    }
    if (connection.qp != nullptr) {
      const auto ready = receive<std::uint8_t>(fd);
      if (!ready) return tl::unexpected(ready.error());
      finish(Phase::kEstablish, slot);
      return {};
    }
    const auto peer = receive<QpInfo>(fd);
    if (!peer) return tl::unexpected(peer.error());
    if (auto made = make_qp(connection); !made) return made;
    if (auto ready = device_->to_rts(connection.qp.get(), *peer); !ready) return ready;
    const QpInfo own = device_->info(connection.qp.get());
    return send_all(fd, &own, sizeof(own));
  }

  net::OwnedFd listener_;
  std::uint32_t accepted_ = 0;
};

enum class Exchange { kNo, kYes };

Result<std::unique_ptr<Client>> make_client(const Workload& workload, std::uint32_t thread, Samples& samples,
                                            Exchange exchange) {
  auto server = Address::parse(workload.address, workload.service_port + thread);
  if (!server) return tl::unexpected(server.error());
  auto client = std::make_unique<TcpClient>(workload, thread, samples, *server);
  if (exchange == Exchange::kYes) {
    if (auto opened = client->open_device(server->gid()); !opened) return tl::unexpected(opened.error());
  }
  return client;
}

Result<std::unique_ptr<Server>> make_server(const Workload& workload, std::uint32_t thread, Samples& samples,
                                            Exchange exchange) {
  auto address = Address::parse(workload.address, workload.service_port + thread);
  if (!address) return tl::unexpected(address.error());
  auto server = std::make_unique<TcpServer>(workload, thread, samples);
  if (exchange == Exchange::kYes) {
    if (auto opened = server->open_device(address->gid()); !opened) return tl::unexpected(opened.error());
  }
  if (auto listening = server->listen_on(*address); !listening) return tl::unexpected(listening.error());
  return server;
}

}  // namespace

Result<std::unique_ptr<Client>> make_tcp_client(const Workload& workload, std::uint32_t thread, Samples& samples) {
  return make_client(workload, thread, samples, Exchange::kNo);
}
Result<std::unique_ptr<Server>> make_tcp_server(const Workload& workload, std::uint32_t thread, Samples& samples) {
  return make_server(workload, thread, samples, Exchange::kNo);
}
Result<std::unique_ptr<Client>> make_exchange_client(const Workload& workload, std::uint32_t thread, Samples& samples) {
  return make_client(workload, thread, samples, Exchange::kYes);
}
Result<std::unique_ptr<Server>> make_exchange_server(const Workload& workload, std::uint32_t thread, Samples& samples) {
  return make_server(workload, thread, samples, Exchange::kYes);
}

}  // namespace ucm::bench
