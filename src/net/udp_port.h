// The default packet port: UDP 4791 on plain sockets, without privilege.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "net/packet_port.h"
#include "net/udp_sender.h"

namespace ucm::net {

struct ReceiveCounters {
  std::uint64_t received = 0;
  std::uint64_t truncated = 0;  // longer than any RoCE packet, dropped
};

// The sockets of a port, which another process may go on with.
struct UdpSockets {
  OwnedFd ipv4;
  OwnedFd ipv6;
  OwnedFd send_ipv4;
  OwnedFd send_ipv6;
};

class UdpPort final : public PacketPort {
 public:
  // Binds the UDP port on 0.0.0.0 and, where there is IPv6, on [::]. EADDRINUSE: the message says who holds it.
  static Result<std::unique_ptr<UdpPort>> open(std::uint16_t udp_port = wire::kRoceUdpPort);
  // Goes on with the sockets of another port, as they are: groups joined, packets waiting. EPROTO: one that a port
  // cannot do without is missing.
  static Result<std::unique_ptr<UdpPort>> adopt(UdpSockets sockets);
  ~UdpPort() override;

  // In the order of UdpSockets; -1: there is none.
  std::array<int, 4> descriptors() const;

  std::size_t receive(const Sink& sink, std::size_t datagrams_max) override;
  void send(std::span<const Datagram> datagrams) override;
  std::uint16_t source_port() const override { return sender_.port(); }
  Result<void> join_group(const wire::MulticastGroup& group) override;
  void leave_group(const wire::MulticastGroup& group) override;
  std::vector<int> wait_fds() const override;

  SendSockets send_sockets() const { return send_sockets_.borrow(); }
  const SendCounters& send_counters() const { return sender_.counters(); }
  const ReceiveCounters& receive_counters() const { return counters_; }

 private:
  struct Batch;
  enum class Membership { kJoin, kLeave };
  UdpPort(OwnedFd ipv4, OwnedFd ipv6, OwnedSendSockets send_sockets);
  Result<void> change_membership(const wire::MulticastGroup& group, Membership change);
  std::size_t receive_batch(int fd, const Sink& sink, std::size_t datagrams_max);

  OwnedFd ipv4_;
  OwnedFd ipv6_;
  OwnedSendSockets send_sockets_;
  UdpSender sender_;
  ReceiveCounters counters_;
  std::unique_ptr<Batch> batch_;
  bool ipv6_first_ = false;
};

}  // namespace ucm::net
