// Sends RoCEv2 datagrams from user space so that their ICRC can be computed before: unconnected UDP sockets with DF
// set, for which Linux sends IPv4 identification 0 and, as RoCEv2 has it, UDP checksum 0.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "net/owned_fd.h"
#include "net/packet_port.h"

namespace ucm::net {

// Borrowed descriptors, both bound to `port`; -1 where the family is not available. Several processes and senders may
// share them: the sockets hold no state of a packet.
struct SendSockets {
  int ipv4 = -1;
  int ipv6 = -1;
  std::uint16_t port = 0;
};

struct OwnedSendSockets {
  OwnedFd ipv4;
  OwnedFd ipv6;
  std::uint16_t port = 0;
  SendSockets borrow() const { return {ipv4.get(), ipv6.get(), port}; }
};

// Makes a pair bound to one free port of 0xC000..0xFFFF. Their receiving side is shut by a filter that drops everything
// and cannot be removed. Needs no privilege. IPv4 must be available, IPv6 need not.
Result<OwnedSendSockets> make_send_sockets();

// The IPv4 identification that this kernel gives to datagrams of such a socket: it must be 0, or every ICRC is wrong.
// Asked over 127.0.0.1 without privilege: the kernel loops the sent frame back with its time stamp. ENOTSUP where it
// does not (no loopback interface up, net.core.tstamp_allow_data off).
Result<std::uint16_t> probe_ipv4_identification();

struct SendCounters {
  std::uint64_t sent = 0;
  std::uint64_t buffer_full = 0;  // times send() stopped early
  std::uint64_t refused = 0;      // datagrams dropped: no route, no such source address, a firewall, too long
  int last_error = 0;             // errno of the last refused one
};

// Not thread-safe: one per thread, over the same sockets if need be.
class UdpSender {
 public:
  explicit UdpSender(const SendSockets& sockets);

  // Sends from the front, in order, each from info.source to info.destination:info.destination_port with its traffic
  // class and hop limit; info.ifindex scopes link-local addresses. Returns how many are dealt with: sent, or refused
  // for good by the kernel and counted. Fewer than given: the socket's buffer is full, offer the rest later.
  std::size_t send(std::span<const Datagram> datagrams);

  std::uint16_t port() const { return sockets_.port; }
  const SendCounters& counters() const { return counters_; }

 private:
  struct Batch;
  std::size_t send_run(int fd, std::span<const Datagram> run);

  SendSockets sockets_;
  SendCounters counters_;
  std::shared_ptr<Batch> batch_;
};

}  // namespace ucm::net
