#include "node/node.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "host/netlink_host.h"
#include "net/udp_port.h"
#include "node/core.h"

namespace ucm::node {
namespace {

Result<RandomKey> random_key() {
  RandomKey key;
  if (getrandom(key.data(), sizeof(key), 0) == sizeof(key)) return key;
  return fail(errno, std::string("no random numbers: ") + std::strerror(errno));
}

std::vector<std::string> find_warnings() {
  const auto identification = net::probe_ipv4_identification();
  if (!identification || *identification == 0) return {};
  return {"this kernel does not send IPv4 identification 0: Linux peers will drop our packets for their ICRC"};
}

}  // namespace

struct Node::Impl {
  net::EventLoop& loop;
  std::unique_ptr<net::UdpPort> udp;       // null when the fault port has it
  std::unique_ptr<net::FaultPort> faults;  // null without faults
  std::unique_ptr<host::NetlinkHost> host;
  std::unique_ptr<FlightRecorder> recorder;  // null when nothing is recorded
  std::unique_ptr<Core> core;
  std::vector<std::string> warnings;
  std::array<int, 4> sockets{};
  // The loop keeps its hooks for ever: they ask whether the node is still there.
  std::shared_ptr<Impl*> alive = std::make_shared<Impl*>(this);

  explicit Impl(net::EventLoop& event_loop) : loop(event_loop) {}
  ~Impl();
  net::PacketPort& port() { return faults ? static_cast<net::PacketPort&>(*faults) : *udp; }
  Result<void> watch();
};

Node::Impl::~Impl() {
  *alive = nullptr;
  for (const int fd : port().wait_fds()) loop.remove(fd);
  loop.remove(host->wait_fd());
}

Result<void> Node::Impl::watch() {
  for (const int fd : port().wait_fds()) {
    if (auto added = loop.add(fd, [this](std::uint32_t) { core->receive(loop.now()); }); !added) return added;
  }
  if (auto added = loop.add(host->wait_fd(), [this](std::uint32_t) { host->on_readable(); }); !added) return added;
  loop.add_hook([node = alive](TimeNs now) { return *node != nullptr ? (*node)->core->turn(now) : kNever; });
  loop.add_before_sleep([node = alive] { return *node == nullptr || !(*node)->core->has_work(); }, [] {});
  return {};
}

Result<std::unique_ptr<Node>> Node::open(net::EventLoop& loop, const Options& options, Callbacks callbacks,
                                         net::UdpSockets sockets) {
  const auto key = random_key();
  if (!key) return tl::unexpected(key.error());
  auto udp = sockets.ipv4.valid() ? net::UdpPort::adopt(std::move(sockets)) : net::UdpPort::open();
  if (!udp) return tl::unexpected(udp.error());
  auto host = host::NetlinkHost::open();
  if (!host) return tl::unexpected(host.error());

  auto impl = std::make_unique<Impl>(loop);
  impl->sockets = (*udp)->descriptors();
  impl->udp = std::move(*udp);
  if (options.faults) impl->faults = std::make_unique<net::FaultPort>(std::move(impl->udp), *options.faults);
  impl->host = std::move(*host);
  impl->core = std::make_unique<Core>(impl->port(), *impl->host, std::move(callbacks), *key);
  impl->core->set_limits(options.limits);
  if (options.flight_records != 0) {
    impl->recorder = std::make_unique<FlightRecorder>(options.flight_records);
    impl->core->record(*impl->recorder);
  }
  impl->warnings = find_warnings();
  if (auto watched = impl->watch(); !watched) return tl::unexpected(watched.error());
  return std::unique_ptr<Node>(new Node(std::move(impl)));
}

Node::Node(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Node::~Node() = default;

ipc::CmReply Node::execute(SessionId session, LinkId link, const ipc::CmCommand& command) {
  return impl_->core->execute(impl_->loop.now(), session, link, command);
}

void Node::set_limits(const Limits& limits) { impl_->core->set_limits(limits); }
void Node::allow_low_ports(SessionId session) { impl_->core->allow_low_ports(session); }
void Node::remove_link(LinkId link) { impl_->core->remove_link(impl_->loop.now(), link); }
void Node::remove_session(SessionId session) { impl_->core->remove_session(impl_->loop.now(), session); }
Result<void> Node::join_group(const wire::MulticastGroup& group) { return impl_->port().join_group(group); }
void Node::leave_group(const wire::MulticastGroup& group) { impl_->port().leave_group(group); }

std::vector<Node::ListenerStatus> Node::listeners() const { return impl_->core->listeners(); }
std::vector<Node::ConnectionStatus> Node::connections() const { return impl_->core->connections(); }
std::vector<Node::Count> Node::counters() const { return impl_->core->counters(); }
std::vector<Node::Count> Node::held() const { return impl_->core->held(); }
std::vector<Node::Listing> Node::list(ListPosition& position, std::size_t entries_max) const {
  return impl_->core->list(position, entries_max);
}
std::array<int, 4> Node::socket_descriptors() const { return impl_->sockets; }
void Node::keep_in(Journal& journal) { impl_->core->keep_in(journal); }
Result<void> Node::restore(const std::function<bool(SessionId, LinkId)>& has_link) {
  return impl_->core->restore(impl_->loop.now(), has_link);
}
void Node::commit() { impl_->core->commit(); }
FlightRecorder* Node::recorder() { return impl_->recorder.get(); }
Result<void> Node::record_engine(std::function<bool(Bytes record)> sink) {
  return impl_->core->record_engine(impl_->loop.now(), std::move(sink));
}
const host::Host& Node::host() const { return *impl_->host; }
const std::vector<std::string>& Node::warnings() const { return impl_->warnings; }

}  // namespace ucm::node
