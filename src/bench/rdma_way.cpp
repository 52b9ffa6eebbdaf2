#include "bench/rdma_way.h"

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cerrno>
#include <functional>
#include <optional>

#include "bench/address.h"
#include "bench/verbs_kit.h"

namespace ucm::bench {
namespace {

constexpr int kResolveTimeoutMs = 2'000;
constexpr int kBacklog = 1'024;

using OwnedChannel = std::unique_ptr<rdma_event_channel, Call<rdma_destroy_event_channel>>;

struct Connection {
  rdma_cm_id* id = nullptr;
  TimeNs started = 0;  // the phase that it is in
};

// What client and server have in common: a thread's channel, its connections and their QPs.
class RdmaEnd {
 protected:
  RdmaEnd(const Workload& workload, std::uint32_t thread, Samples& samples)
      : workload_(workload), samples_(samples), thread_(thread), connections_(workload.slots_of(thread)) {}
  ~RdmaEnd() {
    for (Connection& connection : connections_) release(connection);
    prepared_.clear();
    kit_.reset();
    if (probe_ != nullptr) rdma_destroy_id(probe_);
  }

  Result<void> open_channel() {
    channel_.reset(rdma_create_event_channel());
    if (channel_ == nullptr) return failed("rdma_create_event_channel");
    if (fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) return failed("fcntl");
    return {};
  }

  // Resolves the server's address once: that tells the device, which stays open for as long as the ID is there.
  Result<void> open_device() {
    auto address = Address::parse(workload_.address, workload_.service_port + thread_);
    if (!address) return tl::unexpected(address.error());
    address_ = *address;
    if (rdma_create_id(channel_.get(), &probe_, nullptr, RDMA_PS_TCP) != 0) return failed("rdma_create_id");
    if (rdma_resolve_addr(probe_, nullptr, address_.get(), kResolveTimeoutMs) != 0) return failed("rdma_resolve_addr");
    pollfd wait{.fd = channel_->fd, .events = POLLIN, .revents = 0};
    rdma_cm_event* event = nullptr;
    if (poll(&wait, 1, -1) < 0 || rdma_get_cm_event(channel_.get(), &event) != 0) return failed("rdma_get_cm_event");
    const rdma_cm_event_type type = event->event;
    rdma_ack_cm_event(event);
    if (type != RDMA_CM_EVENT_ADDR_RESOLVED) return fail(EHOSTUNREACH, rdma_event_str(type));
    return make_qps();
  }

  Result<void> make_qps() {
    auto kit = QpKit::make(probe_->verbs, static_cast<std::uint32_t>(connections_.size()), workload_.data_bytes);
    if (!kit) return tl::unexpected(kit.error());
    kit_.emplace(std::move(*kit));
    if (workload_.qps) return {};
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      auto qp = kit_->make_qp();
      if (!qp) return tl::unexpected(qp.error());
      prepared_.push_back(std::move(*qp));
    }
    return {};
  }

  // Hands over what there is, events one by one; without any, messages; without those it sleeps. True: `stop_fd` is
  // readable.
  Result<bool> turn(int stop_fd, const std::function<Result<void>(const rdma_cm_event&)>& on_event,
                    const std::function<Result<void>(std::uint32_t slot)>& on_message) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_.get(), &event) == 0) {
      const rdma_cm_event copy = *event;
      rdma_ack_cm_event(event);  // before its ID may be destroyed
      if (auto handled = on_event(copy); !handled) return tl::unexpected(handled.error());
      return false;
    }
    if (errno != EAGAIN) return failed("rdma_get_cm_event");
    std::array<pollfd, 3> wait{pollfd{.fd = channel_->fd, .events = POLLIN, .revents = 0},
                               pollfd{.fd = stop_fd, .events = POLLIN, .revents = 0},
                               pollfd{.fd = kit_->completion_fd(), .events = POLLIN, .revents = 0}};
    if (poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return failed("poll");
    if (wait[2].revents != 0) {
      if (auto taken = kit_->take_receives(on_message); !taken) return tl::unexpected(taken.error());
    }
    return wait[1].revents != 0;
  }

  Connection& of(rdma_cm_id* id) { return *static_cast<Connection*>(id->context); }
  std::uint32_t slot_of(const Connection& connection) const {
    return static_cast<std::uint32_t>(&connection - connections_.data());
  }

  void finish(Phase phase, Connection& connection) {
    const TimeNs now = monotonic_now();
    samples_.record(phase, thread_, slot_of(connection), now - connection.started);
    connection.started = now;
  }

  Result<void> make_qp(Connection& connection) {
    if (!workload_.qps) return {};
    ibv_qp_init_attr attributes = kit_->qp_attributes();
    if (rdma_create_qp(connection.id, kit_->pd(), &attributes) != 0) return failed("rdma_create_qp");
    if (workload_.data_bytes == 0) return {};
    return kit_->post_receive(connection.id->qp, slot_of(connection));
  }

  rdma_conn_param parameters(const Connection& connection) const {
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = 1;
    parameters.retry_count = parameters.rnr_retry_count = 7;
    if (!workload_.qps) parameters.qp_num = prepared_[slot_of(connection)]->qp_num;
    return parameters;
  }

  static void release(Connection& connection) {
    if (connection.id == nullptr) return;
    if (connection.id->qp != nullptr) rdma_destroy_qp(connection.id);
    rdma_destroy_id(connection.id);
    connection.id = nullptr;
  }

  const Workload workload_;
  Samples& samples_;
  const std::uint32_t thread_;
  OwnedChannel channel_;
  Address address_;
  rdma_cm_id* probe_ = nullptr;
  std::optional<QpKit> kit_;
  std::vector<OwnedQp> prepared_;  // by slot; with `qps` none
  std::vector<Connection> connections_;
};

class RdmaClient final : public Client, RdmaEnd {
 public:
  static Result<std::unique_ptr<Client>> make(const Workload& workload, std::uint32_t thread, Samples& samples) {
    std::unique_ptr<RdmaClient> client(new RdmaClient(workload, thread, samples));
    if (auto prepared = client->prepare(); !prepared) return tl::unexpected(prepared.error());
    return client;
  }

  Result<void> set_up(std::uint32_t count) override {
    const std::uint32_t target = begun_ + count;
    while (ended_ < target) {
      for (; begun_ < target && begun_ - ended_ < in_flight_; ++begun_) {
        if (auto begun = begin(connections_[begun_]); !begun) return begun;
      }
      if (auto turned = turn_once(); !turned) return turned;
    }
    return {};
  }

  Result<void> take_down() override {
    taking_down_ = true;
    ended_ = 0;
    for (std::uint32_t begun = 0; ended_ < connections_.size();) {
      for (; begun < connections_.size() && begun - ended_ < in_flight_; ++begun) {
        Connection& connection = connections_[begun];
        if (connection.id == nullptr) {
          ++ended_;
          continue;
        }
        connection.started = monotonic_now();
        if (rdma_disconnect(connection.id) != 0) return failed("rdma_disconnect");
      }
      if (ended_ == connections_.size()) break;
      if (auto turned = turn_once(); !turned) return turned;
    }
    return {};
  }

 private:
  RdmaClient(const Workload& workload, std::uint32_t thread, Samples& samples)
      : RdmaEnd(workload, thread, samples), in_flight_(workload.in_flight_of_thread()) {}

  Result<void> prepare() {
    if (auto opened = open_channel(); !opened) return opened;
    return open_device();
  }

  Result<void> turn_once() {
    const auto turned = turn(
        -1, [this](const rdma_cm_event& event) { return on_event(event); },
        [this](std::uint32_t slot) { return on_message(slot); });
    if (!turned) return tl::unexpected(turned.error());
    return {};
  }

  Result<void> begin(Connection& connection) {
    connection.started = monotonic_now();
    if (rdma_create_id(channel_.get(), &connection.id, &connection, RDMA_PS_TCP) != 0) return failed("rdma_create_id");
    if (rdma_resolve_addr(connection.id, nullptr, address_.get(), kResolveTimeoutMs) != 0) {
      return failed("rdma_resolve_addr");
    }
    return {};
  }

  Result<void> on_event(const rdma_cm_event& event) {
    if (event.event == RDMA_CM_EVENT_TIMEWAIT_EXIT) return {};
    Connection& connection = of(event.id);
    switch (event.event) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (rdma_resolve_route(event.id, kResolveTimeoutMs) != 0) return failed("rdma_resolve_route");
        return {};
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return on_resolved(connection);
      case RDMA_CM_EVENT_CONNECT_RESPONSE:  // without a QP of librdmacm's
        if (rdma_establish(event.id) != 0) return failed("rdma_establish");
        return on_connected(connection);
      case RDMA_CM_EVENT_ESTABLISHED:
        return on_connected(connection);
      case RDMA_CM_EVENT_DISCONNECTED:
        if (!taking_down_) return fail(ECONNRESET, "a connection ended while others were being set up");
        finish(Phase::kDisconnect, connection);
        samples_.count_down();
        release(connection);
        ++ended_;
        return {};
      default:
        samples_.count_failure();
        release(connection);
        ++ended_;
        return {};
    }
  }

  Result<void> on_resolved(Connection& connection) {
    finish(Phase::kResolve, connection);
    if (auto made = make_qp(connection); !made) return made;
    if (workload_.qps) finish(Phase::kCreateQp, connection);
    rdma_conn_param param = parameters(connection);
    if (rdma_connect(connection.id, &param) != 0) return failed("rdma_connect");
    return {};
  }

  Result<void> on_connected(Connection& connection) {
    finish(Phase::kConnect, connection);
    if (workload_.data_bytes > 0) return kit_->post_send(connection.id->qp, slot_of(connection));
    count_up();
    return {};
  }

  Result<void> on_message(std::uint32_t slot) {
    finish(Phase::kData, connections_[slot]);
    count_up();
    return {};
  }

  void count_up() {
    samples_.count_up();
    ++ended_;
  }

  const std::uint32_t in_flight_;
  std::uint32_t begun_ = 0;
  std::uint32_t ended_ = 0;  // those that are up or have failed; later: those that are down
  bool taking_down_ = false;
};

class RdmaServer final : public Server, RdmaEnd {
 public:
  static Result<std::unique_ptr<Server>> make(const Workload& workload, std::uint32_t thread, Samples& samples) {
    std::unique_ptr<RdmaServer> server(new RdmaServer(workload, thread, samples));
    if (auto prepared = server->prepare(); !prepared) return tl::unexpected(prepared.error());
    return server;
  }
  ~RdmaServer() override {
    if (listener_ != nullptr) rdma_destroy_id(listener_);
  }

  Result<void> serve(int stop_fd) override {
    for (;;) {
      const auto stopped = turn(
          stop_fd, [this](const rdma_cm_event& event) { return on_event(event); },
          [this](std::uint32_t slot) { return kit_->post_send(connections_[slot].id->qp, slot); });
      if (!stopped) return tl::unexpected(stopped.error());
      if (*stopped) return {};
    }
  }

 private:
  RdmaServer(const Workload& workload, std::uint32_t thread, Samples& samples) : RdmaEnd(workload, thread, samples) {}

  Result<void> prepare() {
    if (auto opened = open_channel(); !opened) return opened;
    if (auto opened = open_device(); !opened) return opened;
    if (rdma_create_id(channel_.get(), &listener_, nullptr, RDMA_PS_TCP) != 0) return failed("rdma_create_id");
    if (rdma_bind_addr(listener_, address_.get()) != 0) return failed("rdma_bind_addr");
    if (rdma_listen(listener_, kBacklog) != 0) return failed("rdma_listen");
    return {};
  }

  Result<void> on_event(const rdma_cm_event& event) {
    switch (event.event) {
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        return accept(event.id);
      case RDMA_CM_EVENT_ESTABLISHED:
        finish(Phase::kEstablish, of(event.id));
        return {};
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return {};
      case RDMA_CM_EVENT_DISCONNECTED:
        rdma_disconnect(event.id);
        release(of(event.id));
        return {};
      default:
        release(of(event.id));
        return {};
    }
  }

  Result<void> accept(rdma_cm_id* id) {
    if (accepted_ == connections_.size()) {
      rdma_reject(id, nullptr, 0);
      rdma_destroy_id(id);
      return {};
    }
    Connection& connection = connections_[accepted_++];
    connection = {.id = id, .started = monotonic_now()};
    id->context = &connection;
    if (auto made = make_qp(connection); !made) return made;
    rdma_conn_param param = parameters(connection);
    if (rdma_accept(id, &param) != 0) return failed("rdma_accept");
    return {};
  }

  rdma_cm_id* listener_ = nullptr;
  std::uint32_t accepted_ = 0;
};

}  // namespace

Result<std::unique_ptr<Client>> make_rdma_client(const Workload& workload, std::uint32_t thread, Samples& samples) {
  return RdmaClient::make(workload, thread, samples);
}

Result<std::unique_ptr<Server>> make_rdma_server(const Workload& workload, std::uint32_t thread, Samples& samples) {
  return RdmaServer::make(workload, thread, samples);
}

}  // namespace ucm::bench
