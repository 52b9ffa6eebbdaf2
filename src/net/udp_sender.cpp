#include "net/udp_sender.h"

#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/check.h"
#include "net/limits.h"
#include "net/socket_address.h"

namespace ucm::net {
namespace {

constexpr std::size_t kControlBytes = 128;  // address, traffic class and hop limit of either family

bool set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

bool drop_everything_received(int fd) {
  sock_filter drop[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{.len = 1, .filter = drop};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0 &&
         set_option(fd, SOL_SOCKET, SO_LOCK_FILTER, 1);
}

// The options that fix the fields the ICRC covers.
bool fix_headers(int fd, int family) {
  if (family == AF_INET) {
    return set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) && set_option(fd, SOL_SOCKET, SO_NO_CHECK, 1);
  }
  return set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
         set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
         set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_TX, 1);
}

// Not valid with errno set when the family or the port is not available.
OwnedFd make_send_socket(int family, std::uint16_t port) {
  OwnedFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || !fix_headers(fd.get(), family) || !drop_everything_received(fd.get())) return {};
  const wire::IpAddress any = family == AF_INET ? wire::IpAddress::ipv4_any() : wire::IpAddress{};
  SocketAddress address;
  const socklen_t length = to_socket_address(any, port, 0, address);
  if (bind(fd.get(), &address.generic, length) != 0) return {};
  return fd;
}

std::uint16_t random_source_port() {
  std::uint16_t value = 0;
  UCM_CHECK(getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value | wire::kRoceSourcePortMin;
}

template <class T>
void add_control(msghdr& message, int level, int type, const T& value) {
  auto* control = reinterpret_cast<cmsghdr*>(static_cast<std::uint8_t*>(message.msg_control) + message.msg_controllen);
  control->cmsg_level = level;
  control->cmsg_type = type;
  control->cmsg_len = CMSG_LEN(sizeof(T));
  std::memcpy(CMSG_DATA(control), &value, sizeof(T));
  message.msg_controllen += CMSG_SPACE(sizeof(T));
}

void add_header_controls(msghdr& message, const wire::DatagramInfo& info) {
  if (info.source.is_ipv4()) {
    in_pktinfo source{};
    std::memcpy(&source.ipi_spec_dst, &info.source.bytes[12], 4);
    if (info.destination.is_multicast()) source.ipi_ifindex = static_cast<int>(info.ifindex);
    add_control(message, IPPROTO_IP, IP_PKTINFO, source);
    add_control(message, IPPROTO_IP, IP_TOS, int{info.traffic_class});
    add_control(message, IPPROTO_IP, IP_TTL, int{info.hop_limit});
    return;
  }
  in6_pktinfo source{};
  std::memcpy(&source.ipi6_addr, info.source.bytes.data(), 16);
  const bool on_link = info.source.is_link_local() || info.destination.is_link_local();
  if (on_link || info.destination.is_multicast()) source.ipi6_ifindex = info.ifindex;
  add_control(message, IPPROTO_IPV6, IPV6_PKTINFO, source);
  add_control(message, IPPROTO_IPV6, IPV6_TCLASS, int{info.traffic_class});
  add_control(message, IPPROTO_IPV6, IPV6_HOPLIMIT, int{info.hop_limit});
}

bool is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM; }

}  // namespace

Result<OwnedSendSockets> make_send_sockets() {
  for (int attempt = 0; attempt < kSourcePortTries; ++attempt) {
    OwnedSendSockets sockets;
    sockets.port = random_source_port();
    sockets.ipv4 = make_send_socket(AF_INET, sockets.port);
    if (!sockets.ipv4.valid()) {
      if (errno == EADDRINUSE) continue;
      return fail(errno, std::string("cannot make a UDP socket to send from: ") + std::strerror(errno));
    }
    sockets.ipv6 = make_send_socket(AF_INET6, sockets.port);
    if (!sockets.ipv6.valid() && errno == EADDRINUSE) continue;
    return sockets;
  }
  return fail(EADDRINUSE, "no free UDP source port between 49152 and 65535");
}

Result<std::uint16_t> probe_ipv4_identification() {
  constexpr std::size_t kEthernetHeaderBytes = 14;
  constexpr std::size_t kFrameBytes = kEthernetHeaderBytes + sizeof(iphdr) + sizeof(udphdr);
  constexpr int kProbes = 3;  // a counting kernel cannot show 0 three times

  const OwnedFd fd = make_send_socket(AF_INET, 0);
  const int stamp = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
  if (!fd.valid() || !set_option(fd.get(), SOL_SOCKET, SO_TIMESTAMPING, stamp)) {
    return fail(ENOTSUP, std::string("no transmit time stamps: ") + std::strerror(errno));
  }
  // To itself, where the filter drops them.
  sockaddr_in self{};
  socklen_t length = sizeof self;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&self), &length);
  self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::uint16_t identification = 0;
  for (int probe = 0; probe < kProbes && identification == 0; ++probe) {
    if (sendto(fd.get(), nullptr, 0, 0, reinterpret_cast<const sockaddr*>(&self), length) != 0) {
      return fail(ENOTSUP, std::string("cannot send to 127.0.0.1: ") + std::strerror(errno));
    }
    std::array<std::uint8_t, kFrameBytes> frame{};
    // Transmission over loopback is complete when sendto() returns; so is the looped frame.
    const ssize_t size = recv(fd.get(), frame.data(), frame.size(), MSG_ERRQUEUE | MSG_DONTWAIT);
    if (size != static_cast<ssize_t>(kFrameBytes) || frame[kEthernetHeaderBytes] != 0x45) {
      return fail(ENOTSUP, "the kernel does not show sent frames");
    }
    identification = load_be16(&frame[kEthernetHeaderBytes + offsetof(iphdr, id)]);
  }
  return identification;
}

struct UdpSender::Batch {
  std::array<mmsghdr, kBatchSize> messages;
  std::array<iovec, kBatchSize> payloads;
  std::array<SocketAddress, kBatchSize> destinations;
  alignas(cmsghdr) std::array<std::array<std::uint8_t, kControlBytes>, kBatchSize> controls;

  void set(std::size_t index, const Datagram& datagram);
};

void UdpSender::Batch::set(std::size_t index, const Datagram& datagram) {
  const wire::DatagramInfo& info = datagram.info;
  msghdr& message = messages[index].msg_hdr;
  message = {};
  payloads[index] = {const_cast<std::uint8_t*>(datagram.payload.data()), datagram.payload.size()};
  message.msg_iov = &payloads[index];
  message.msg_iovlen = 1;
  message.msg_name = &destinations[index];
  message.msg_namelen = to_socket_address(info.destination, info.destination_port, info.ifindex, destinations[index]);
  message.msg_control = controls[index].data();
  add_header_controls(message, info);
}

UdpSender::UdpSender(const SendSockets& sockets) : sockets_(sockets), batch_(std::make_shared<Batch>()) {}

std::size_t UdpSender::send(std::span<const Datagram> datagrams) {
  std::size_t done = 0;
  while (done < datagrams.size()) {
    const bool ipv4 = datagrams[done].info.destination.is_ipv4();
    std::size_t end = done + 1;
    while (end < datagrams.size() && end - done < kBatchSize && datagrams[end].info.destination.is_ipv4() == ipv4)
      ++end;
    const std::size_t dealt_with = send_run(ipv4 ? sockets_.ipv4 : sockets_.ipv6, datagrams.subspan(done, end - done));
    done += dealt_with;
    if (dealt_with == 0) {
      ++counters_.buffer_full;
      break;
    }
  }
  return done;
}

// One family, at most a batch. Returns 0 only when the socket's buffer is full; otherwise progress was made.
std::size_t UdpSender::send_run(int fd, std::span<const Datagram> run) {
  for (std::size_t i = 0; i < run.size(); ++i) batch_->set(i, run[i]);
  // A second try after an error that was only waiting on the socket (an earlier datagram's ICMP answer).
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int sent =
        fd < 0 ? -1 : sendmmsg(fd, batch_->messages.data(), static_cast<unsigned>(run.size()), MSG_DONTWAIT);
    if (sent > 0) {
      counters_.sent += static_cast<std::size_t>(sent);
      return static_cast<std::size_t>(sent);
    }
    if (fd < 0) errno = EAFNOSUPPORT;
    if (is_transient(errno)) return 0;
    if (errno != ECONNREFUSED && errno != EINTR) break;
  }
  ++counters_.refused;
  counters_.last_error = errno;
  return 1;
}

}  // namespace ucm::net
