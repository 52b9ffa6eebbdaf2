#include "net/udp_port.h"

#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "net/limits.h"
#include "net/port_holder.h"
#include "net/socket_address.h"

namespace ucm::net {
namespace {

constexpr std::size_t kControlBytes = 128;

bool set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

bool show_headers(int fd, int family) {
  if (family == AF_INET) {
    return set_option(fd, IPPROTO_IP, IP_PKTINFO, 1) && set_option(fd, IPPROTO_IP, IP_RECVTOS, 1) &&
           set_option(fd, IPPROTO_IP, IP_RECVTTL, 1);
  }
  // Linux rxe sends UDP checksum 0 on IPv6 too.
  return set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) && set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1) &&
         set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) && set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1) &&
         set_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
}

// What the system grants is enough: a smaller buffer loses packets sooner, and the protocols repeat them.
void enlarge_receive_buffer(int fd) {
  if (set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, kReceiveBufferBytes)) return;
  set_option(fd, SOL_SOCKET, SO_RCVBUF, kReceiveBufferBytes);
}

Error bind_error(std::uint16_t udp_port, const char* address, int error) {
  std::string message = "cannot bind UDP port " + std::to_string(udp_port) + " on " + address + ": ";
  if (error != EADDRINUSE) return {error, message + std::strerror(error)};
  return {error, message + "it is held by " + describe_udp_port_holder(udp_port)};
}

Result<OwnedFd> make_receive_socket(int family, std::uint16_t udp_port) {
  OwnedFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || !show_headers(fd.get(), family)) {
    return fail(errno, std::string("cannot make a UDP socket to receive on: ") + std::strerror(errno));
  }
  enlarge_receive_buffer(fd.get());
  const wire::IpAddress any = family == AF_INET ? wire::IpAddress::ipv4_any() : wire::IpAddress{};
  SocketAddress address;
  const socklen_t length = to_socket_address(any, udp_port, 0, address);
  if (bind(fd.get(), &address.generic, length) != 0) {
    return tl::unexpected(bind_error(udp_port, family == AF_INET ? "0.0.0.0" : "[::]", errno));
  }
  return fd;
}

template <class T>
T control_value(const cmsghdr* control) {
  T value{};
  std::memcpy(&value, CMSG_DATA(control), std::min(sizeof(T), control->cmsg_len - CMSG_LEN(0)));
  return value;
}

void apply_control(const cmsghdr* control, wire::DatagramInfo& info) {
  if (control->cmsg_level == IPPROTO_IP) {
    switch (control->cmsg_type) {
      case IP_PKTINFO: {
        const auto packet = control_value<in_pktinfo>(control);
        info.destination = from_in_addr(packet.ipi_addr);
        info.ifindex = static_cast<std::uint32_t>(packet.ipi_ifindex);
        break;
      }
      case IP_TOS:
        info.traffic_class = control_value<std::uint8_t>(control);
        break;
      case IP_TTL:
        info.hop_limit = static_cast<std::uint8_t>(control_value<int>(control));
        break;
    }
  } else if (control->cmsg_level == IPPROTO_IPV6) {
    switch (control->cmsg_type) {
      case IPV6_PKTINFO: {
        const auto packet = control_value<in6_pktinfo>(control);
        info.destination = from_in6_addr(packet.ipi6_addr);
        info.ifindex = packet.ipi6_ifindex;
        break;
      }
      case IPV6_TCLASS:
        info.traffic_class = static_cast<std::uint8_t>(control_value<int>(control));
        break;
      case IPV6_HOPLIMIT:
        info.hop_limit = static_cast<std::uint8_t>(control_value<int>(control));
        break;
    }
  }
}

}  // namespace

struct UdpPort::Batch {
  std::array<mmsghdr, kBatchSize> messages{};
  std::array<iovec, kBatchSize> payloads{};
  std::array<SocketAddress, kBatchSize> sources{};
  alignas(cmsghdr) std::array<std::array<std::uint8_t, kControlBytes>, kBatchSize> controls{};
  std::array<std::array<std::uint8_t, kPayloadSizeMax>, kBatchSize> bytes{};

  Batch();
  // The kernel overwrites the lengths of those that it fills.
  void set_lengths(std::size_t count);
  wire::DatagramInfo info(std::size_t index);
};

UdpPort::Batch::Batch() {
  for (std::size_t i = 0; i < kBatchSize; ++i) {
    payloads[i] = {bytes[i].data(), bytes[i].size()};
    msghdr& message = messages[i].msg_hdr;
    message.msg_name = &sources[i];
    message.msg_iov = &payloads[i];
    message.msg_iovlen = 1;
    message.msg_control = controls[i].data();
  }
  set_lengths(kBatchSize);
}

void UdpPort::Batch::set_lengths(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    messages[i].msg_hdr.msg_namelen = sizeof(sources[i]);
    messages[i].msg_hdr.msg_controllen = controls[i].size();
  }
}

wire::DatagramInfo UdpPort::Batch::info(std::size_t index) {
  wire::DatagramInfo info;
  info.source = from_socket_address(sources[index]);
  info.source_port = port_of(sources[index]);
  msghdr& message = messages[index].msg_hdr;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) apply_control(c, info);
  return info;
}

UdpPort::UdpPort(OwnedFd ipv4, OwnedFd ipv6, OwnedSendSockets send_sockets)
    : ipv4_(std::move(ipv4)),
      ipv6_(std::move(ipv6)),
      send_sockets_(std::move(send_sockets)),
      sender_(send_sockets_.borrow()),
      batch_(std::make_unique<Batch>()) {}

UdpPort::~UdpPort() = default;

Result<std::unique_ptr<UdpPort>> UdpPort::open(std::uint16_t udp_port) {
  auto ipv4 = make_receive_socket(AF_INET, udp_port);
  if (!ipv4) return tl::unexpected(ipv4.error());
  auto ipv6 = make_receive_socket(AF_INET6, udp_port);
  // A host without IPv6 works with IPv4 alone.
  if (!ipv6 && ipv6.error().code == EADDRINUSE) return tl::unexpected(ipv6.error());
  auto send_sockets = make_send_sockets();
  if (!send_sockets) return tl::unexpected(send_sockets.error());
  return std::unique_ptr<UdpPort>(
      new UdpPort(std::move(*ipv4), ipv6 ? std::move(*ipv6) : OwnedFd(), std::move(*send_sockets)));
}

Result<std::unique_ptr<UdpPort>> UdpPort::adopt(UdpSockets sockets) {
  SocketAddress address;
  socklen_t length = sizeof address;
  if (!sockets.ipv4.valid() || getsockname(sockets.send_ipv4.get(), &address.generic, &length) != 0) {
    return fail(EPROTO, "a socket of UDP port " + std::to_string(wire::kRoceUdpPort) + " is lost");
  }
  OwnedSendSockets send_sockets{
      .ipv4 = std::move(sockets.send_ipv4), .ipv6 = std::move(sockets.send_ipv6), .port = port_of(address)};
  return std::unique_ptr<UdpPort>(
      new UdpPort(std::move(sockets.ipv4), std::move(sockets.ipv6), std::move(send_sockets)));
}

std::array<int, 4> UdpPort::descriptors() const {
  return {ipv4_.get(), ipv6_.get(), send_sockets_.ipv4.get(), send_sockets_.ipv6.get()};
}

Result<void> UdpPort::change_membership(const wire::MulticastGroup& group, Membership change) {
  const bool join = change == Membership::kJoin;
  int changed = -1;
  if (group.address.is_ipv4()) {
    ip_mreqn request{};
    request.imr_multiaddr.s_addr = htonl(group.address.ipv4_value());
    request.imr_ifindex = static_cast<int>(group.ifindex);
    changed =
        setsockopt(ipv4_.get(), IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request, sizeof request);
  } else {
    ipv6_mreq request{};
    std::memcpy(&request.ipv6mr_multiaddr, group.address.bytes.data(), group.address.bytes.size());
    request.ipv6mr_interface = group.ifindex;
    changed =
        setsockopt(ipv6_.get(), IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &request, sizeof request);
  }
  if (changed == 0) return {};
  const int error = errno;
  const std::string name = to_string(group.address) + " on interface " + std::to_string(group.ifindex);
  if (error == ENOBUFS && group.address.is_ipv4()) {
    return fail(error, "cannot join " + name + ": this host's limit is net.ipv4.igmp_max_memberships");
  }
  return fail(error, "cannot join or leave " + name + ": " + std::strerror(error));
}

Result<void> UdpPort::join_group(const wire::MulticastGroup& group) {
  return change_membership(group, Membership::kJoin);
}

// It fails only where the interface has gone, and the membership with it.
void UdpPort::leave_group(const wire::MulticastGroup& group) {
  static_cast<void>(change_membership(group, Membership::kLeave));
}

std::vector<int> UdpPort::wait_fds() const {
  std::vector<int> fds{ipv4_.get()};
  if (ipv6_.valid()) fds.push_back(ipv6_.get());
  return fds;
}

std::size_t UdpPort::receive(const Sink& sink, std::size_t datagrams_max) {
  std::size_t received = 0;
  // Turn by turn, so that a flood of one family does not keep the other waiting.
  std::array<int, 2> fds{ipv4_.get(), ipv6_.get()};
  if (ipv6_first_) std::swap(fds[0], fds[1]);
  ipv6_first_ = !ipv6_first_;
  for (const int fd : fds) {
    if (fd < 0) continue;
    while (received < datagrams_max) {
      const std::size_t asked = std::min(kBatchSize, datagrams_max - received);
      const std::size_t got = receive_batch(fd, sink, asked);
      received += got;
      if (got < asked) break;
    }
  }
  return received;
}

std::size_t UdpPort::receive_batch(int fd, const Sink& sink, std::size_t datagrams_max) {
  const int count = recvmmsg(fd, batch_->messages.data(), static_cast<unsigned>(datagrams_max), MSG_DONTWAIT, nullptr);
  if (count <= 0) return 0;
  for (int i = 0; i < count; ++i) {
    const mmsghdr& message = batch_->messages[i];
    ++counters_.received;
    if ((message.msg_hdr.msg_flags & MSG_TRUNC) != 0) {
      ++counters_.truncated;
      continue;
    }
    sink({batch_->info(i), Bytes(batch_->bytes[i].data(), message.msg_len)});
  }
  batch_->set_lengths(static_cast<std::size_t>(count));
  return static_cast<std::size_t>(count);
}

void UdpPort::send(std::span<const Datagram> datagrams) { sender_.send(datagrams); }

}  // namespace ucm::net
