// A datagram rsocket: a UDP socket, whose descriptor is the socket's, and a UD QP for each local address that is used.
//
// The first datagrams to a peer go from UDP socket to UDP socket, with the number of the sender's QP in front, until
// the peer has answered with its own. Afterwards they go between QPs, except those that do not fit into a packet there.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "rsocket/datagram_queue.h"
#include "rsocket/protocol/datagrams.h"
#include "rsocket/settings.h"
#include "rsocket/socket.h"

namespace ucm::rsocket {

class DatagramSocket : public Socket {
 public:
  static Result<std::shared_ptr<DatagramSocket>> create(int domain);
  ~DatagramSocket() override;

  int fd() const override { return udp_fd_; }
  Result<void> bind(const sockaddr* address, socklen_t size) override;
  Result<void> listen(int backlog) override;
  Result<std::shared_ptr<Socket>> accept(const AddressOut& peer) override;
  Result<void> connect(const sockaddr* address, socklen_t size) override;
  Result<void> shut_down(int how) override;
  void close() override;
  Result<std::size_t> receive(std::span<const iovec> into, int flags, const AddressOut& from) override;
  Result<std::size_t> send(std::span<const iovec> data, int flags, const sockaddr* to, socklen_t size) override;
  Result<void> peer_name(const AddressOut& out) override;
  Result<void> local_name(const AddressOut& out) override;
  Result<void> set_option(int level, int name, const void* value, socklen_t size) override;
  Result<void> get_option(int level, int name, void* value, socklen_t* size) override;
  std::optional<Clock::time_point> serve(Clock::time_point now, std::vector<pollfd>& wait_on) override;

 protected:
  void progress() override;
  short ready() const override;
  void arm(std::vector<pollfd>& wait_on) override;
  void take_events(std::span<const pollfd> waited_on) override;
  bool closed() const override { return closed_; }

 private:
  // An address with its port.
  struct Endpoint {
    HostAddress host;
    std::uint16_t port = 0;
    std::uint32_t scope = 0;

    static std::optional<Endpoint> of(const sockaddr* address, socklen_t size);
    static Endpoint of(const sockaddr_storage& address);
    sockaddr_storage storage() const;
    socklen_t size() const;
    auto operator<=>(const Endpoint&) const = default;
  };
  struct Peer {
    DatagramQueue* queue = nullptr;
    ibv_ah* handle = nullptr;  // once its QP is known
    std::uint32_t qpn = 0;
  };
  struct Datagram {
    Endpoint from;
    std::vector<std::uint8_t> bytes;
  };

  explicit DatagramSocket(int udp_fd);

  Result<void> usable() const;
  bool inherited_by_fork() const;
  // Bound to a port, and served by the service thread.
  Result<void> start();
  Result<Peer*> peer_at(const Endpoint& address);
  Result<Endpoint> source_for(const Endpoint& destination) const;
  Result<DatagramQueue*> queue_at(const Endpoint& local);
  Result<std::size_t> send_by_udp(const Peer& peer, const Endpoint& to, std::span<const iovec> data,
                                  UdpHeader::Kind kind);

  void read_udp();
  void on_udp(const Endpoint& from, Bytes bytes);
  void on_datagram(const DatagramQueue& queue, Bytes bytes);
  void keep(const Endpoint& from, Bytes bytes);
  void release();

  const int udp_fd_;
  const unsigned generation_;  // of the process, which forks
  Settings settings_;
  bool started_ = false;
  bool closed_ = false;
  std::vector<std::unique_ptr<DatagramQueue>> queues_;
  std::map<Endpoint, Peer> peers_;
  std::optional<Endpoint> connected_to_;
  std::deque<Datagram> received_;
};

}  // namespace ucm::rsocket
