#include "abi/verbs/loopback_session.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "client/session.h"
#include "net/udp_port.h"

namespace ucm::testing {
namespace {

std::optional<net::FaultSpec> faults;
std::atomic<bool> node_lost{false};
std::atomic<std::uint32_t> mtu{65536};
std::atomic<bool> running{true};
std::atomic<bool> second_address{true};
std::function<void()> devices_changed;

int lost_event() {
  static const int fd = eventfd(0, EFD_CLOEXEC);
  return fd;
}

class LoopbackLink final : public client::DataLink {
 public:
  explicit LoopbackLink(std::unique_ptr<net::PacketPort> port)
      : port_(std::move(port)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (const int fd : port_->wait_fds()) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
    }
  }

  int wake_fd() const override { return epoll_.get(); }
  std::size_t poll(const std::function<void(const wire::DatagramInfo&, Bytes)>& sink,
                   std::size_t packets_max) override {
    return port_->receive([&](const net::Datagram& datagram) { sink(datagram.info, datagram.payload); }, packets_max);
  }
  bool wait_prepare() override { return !port_->holds_datagrams(); }
  void wait_done() override {}
  bool lost() const override { return node_lost; }

 private:
  std::unique_ptr<net::PacketPort> port_;
  net::OwnedFd epoll_;
};

class LoopbackSession final : public client::Session {
 public:
  Result<std::vector<host::Device>> devices() override {
    if (node_lost) return fail(ENOTCONN, "the node is gone");
    host::Device device;
    device.ifindex = 1;
    device.interface_name = "lo";
    device.mtu = mtu;
    device.guid = 0x0200'00ff'fe00'0001;
    device.loopback = true;
    device.running = running;
    wire::IpAddress one;
    one.bytes[15] = 1;
    device.addresses = {{wire::IpAddress::ipv4(0x7f000001), 8}};
    if (second_address) device.addresses.push_back({one, 128});
    return std::vector{device};
  }
  Result<void> watch_devices(std::function<void()> changed) override {
    devices_changed = std::move(changed);
    return {};
  }
  Result<std::unique_ptr<client::CmLink>> open_cm_link() override { return fail(EOPNOTSUPP, "no CM here"); }
  Result<std::unique_ptr<client::DataLink>> open_data_link() override {
    auto port = net::UdpPort::open();
    if (!port) return tl::unexpected(port.error());
    std::unique_ptr<net::PacketPort> outer = std::move(*port);
    if (faults) outer = std::make_unique<net::FaultPort>(std::move(outer), *faults);
    port_ = outer.get();
    return std::make_unique<LoopbackLink>(std::move(outer));
  }
  Result<client::SendSockets> send_sockets() override {
    auto made = net::make_send_sockets();
    if (!made) return tl::unexpected(made.error());
    own_sockets_ = std::move(*made);
    return client::SendSockets{own_sockets_.ipv4.get(), own_sockets_.ipv6.get(), own_sockets_.port};
  }
  Result<std::uint32_t> allocate_qpn() override { return next_qpn_++; }
  void free_qpn(std::uint32_t /*qpn*/) override {}
  void set_peer_qpn(std::uint32_t /*qpn*/, std::uint32_t /*peer_qpn*/) override {}
  Result<void> join_group(const wire::MulticastGroup& group) override { return port_->join_group(group); }
  void leave_group(const wire::MulticastGroup& group) override { port_->leave_group(group); }
  int lost_fd() const override { return lost_event(); }
  bool lost() const override { return node_lost; }

 private:
  net::PacketPort* port_ = nullptr;  // the data link's
  net::OwnedSendSockets own_sockets_;
  std::atomic<std::uint32_t> next_qpn_{0x100};
};

}  // namespace

void set_link(LinkState state) {
  running = state.running;
  second_address = state.second_address;
  devices_changed();
}

void set_mtu(std::uint32_t bytes) { mtu = bytes; }

void set_faults(const net::FaultSpec& spec) { faults = spec; }

void lose_node() {
  node_lost = true;
  const std::uint64_t one = 1;
  (void)!write(lost_event(), &one, sizeof one);
}

}  // namespace ucm::testing

// In place of the session that talks to a node.
ucm::Result<std::shared_ptr<ucm::client::Session>> ucm::client::Session::get() {
  static const auto session = std::make_shared<ucm::testing::LoopbackSession>();
  return session;
}
