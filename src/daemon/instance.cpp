#include "daemon/instance.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "daemon/stats.h"
#include "host/host.h"

namespace ucm::daemon {
namespace {

class RealNode final : public NodeAccess {
 public:
  explicit RealNode(node::Node& node) : node_(node) {}

  ipc::CmReply execute(node::SessionId session, node::LinkId link, const ipc::CmCommand& command) override {
    return node_.execute(session, link, command);
  }
  void set_limits(const node::Limits& limits) override { node_.set_limits(limits); }
  void allow_low_ports(node::SessionId session) override { node_.allow_low_ports(session); }
  void remove_link(node::LinkId link) override { node_.remove_link(link); }
  void remove_session(node::SessionId session) override { node_.remove_session(session); }
  Result<void> join_group(const wire::MulticastGroup& group) override { return node_.join_group(group); }
  void leave_group(const wire::MulticastGroup& group) override { node_.leave_group(group); }
  std::vector<node::Node::ListenerStatus> listeners() const override { return node_.listeners(); }
  std::vector<node::Node::ConnectionStatus> connections() const override { return node_.connections(); }
  std::vector<node::Node::Listing> list(node::Node::ListPosition& position, std::size_t entries_max) const override {
    return node_.list(position, entries_max);
  }
  node::FlightRecorder* recorder() const override { return node_.recorder(); }
  Result<void> record_engine(std::function<bool(Bytes record)> sink) override {
    return node_.record_engine(std::move(sink));
  }
  std::vector<node::Node::Count> counters() const override { return node_.counters(); }
  std::vector<node::Node::Count> held() const override { return node_.held(); }
  void commit() override { node_.commit(); }
  std::vector<host::Device> devices() const override { return node_.host().devices(); }

  // A link-local address counts on whatever interface it is: the packet came to this host from this host.
  bool is_local(const wire::IpAddress& address) const override {
    if (address.is_loopback()) return true;
    const auto has_address = [&](const host::Device& device) {
      return std::any_of(device.addresses.begin(), device.addresses.end(),
                         [&](const host::DeviceAddress& own) { return own.address == address; });
    };
    const auto& devices = node_.host().devices();
    return std::any_of(devices.begin(), devices.end(), has_address);
  }

 private:
  node::Node& node_;
};

net::UdpSockets kept_sockets(Keeper& keeper) {
  auto kept = keeper.take(Keeper::What::kPort);
  return {.ipv4 = net::OwnedFd(kept[0].release()),
          .ipv6 = net::OwnedFd(kept[1].release()),
          .send_ipv4 = net::OwnedFd(kept[2].release()),
          .send_ipv6 = net::OwnedFd(kept[3].release())};
}

Result<std::uint64_t> random_word() {
  std::uint64_t word = 0;
  if (getrandom(&word, sizeof word, 0) != static_cast<ssize_t>(sizeof word)) {
    const int code = errno;
    return fail(code, "no random numbers: " + std::generic_category().message(code));
  }
  return word;
}

}  // namespace

Instance::Instance(std::unique_ptr<net::EventLoop> loop) : loop_(std::move(loop)) {}
Instance::~Instance() = default;

Result<std::unique_ptr<Instance>> Instance::open(InstanceOptions options) {
  const auto qpn_start = random_word();
  const auto node_instance = random_word();
  if (!qpn_start || !node_instance) return tl::unexpected((qpn_start ? node_instance : qpn_start).error());
  auto loop = net::EventLoop::create();
  if (!loop) return tl::unexpected(loop.error());
  std::unique_ptr<Instance> instance(new Instance(std::move(*loop)));
  const Log log = options.log;
  instance->server_ = std::make_unique<Server>(*instance->loop_, ServerOptions{.socket_name = options.socket_name,
                                                                               .limits = options.node.limits,
                                                                               .idle_exit_ns = options.idle_exit_ns,
                                                                               .qpn_start = *qpn_start,
                                                                               .node_instance = *node_instance,
                                                                               .log = std::move(options.log),
                                                                               .keeper = options.keeper,
                                                                               .journal = options.journal});
  auto node = node::Node::open(*instance->loop_, options.node, instance->server_->node_callbacks(),
                               options.keeper != nullptr ? kept_sockets(*options.keeper) : net::UdpSockets{});
  if (!node) return tl::unexpected(node.error());
  instance->node_ = std::move(*node);
  if (log) {
    for (const std::string& warning : instance->node_->warnings()) log(LogLevel::kWarning, warning);
  }
  instance->access_ = std::make_unique<RealNode>(*instance->node_);
  instance->server_->attach(*instance->access_);
  if (options.keeper != nullptr) {
    options.keeper->hold(Keeper::What::kPort, 0, instance->node_->socket_descriptors());
    if (auto kept = instance->keep(options); !kept) return tl::unexpected(kept.error());
  }
  if (options.metrics) {
    instance->metrics_ = std::make_unique<MetricsServer>(
        *instance->loop_, [server = instance->server_.get()] { return prometheus_text(server->stats()); });
    if (auto listening = instance->metrics_->listen(*options.metrics); !listening) {
      return tl::unexpected(listening.error());
    }
  }
  return instance;
}

Result<void> Instance::keep(const InstanceOptions& options) {
  node_->keep_in(*options.journal);
  if (!options.restore) return {};
  server_->restore();
  return node_->restore(
      [this](node::SessionId session, node::LinkId link) { return server_->has_link(session, link); });
}

Result<void> Instance::serve(ipc::FileDescriptor listener) { return server_->serve(std::move(listener)); }

Result<void> Instance::adopt(ipc::FileDescriptor socket) { return server_->adopt(std::move(socket)); }

Result<void> Instance::stop_when_readable(int fd) {
  return loop_->add(fd, [this, fd](std::uint32_t) {
    loop_->remove(fd);
    server_->shut_down();
  });
}

Result<void> Instance::when_readable(int fd, std::function<void()> ready) {
  return loop_->add(fd, [ready = std::move(ready)](std::uint32_t) { ready(); });
}

void Instance::every(TimeNs interval, std::function<void()> what) {
  loop_->add_hook([interval, what = std::move(what), next = TimeNs{0}](TimeNs now) mutable {
    if (next <= now) {
      what();
      next = now + interval;
    }
    return next;
  });
}

void Instance::set_limits(const node::Limits& limits) { server_->set_limits(limits); }

void Instance::run() { loop_->run(); }

}  // namespace ucm::daemon
