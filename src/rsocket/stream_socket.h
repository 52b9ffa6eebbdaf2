// A stream rsocket: an rdma_cm ID with an event channel of its own, whose descriptor is the socket's, and once there is
// a peer, an RC QP with the Stream engine. The lock of Socket guards everything.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "rdma/event_channel.h"
#include "rdma/id.h"
#include "rsocket/protocol/stream.h"
#include "rsocket/reliable_queue.h"
#include "rsocket/settings.h"
#include "rsocket/socket.h"

namespace ucm::rsocket {

class StreamSocket : public Socket {
 public:
  static Result<std::shared_ptr<StreamSocket>> create(int domain);
  ~StreamSocket() override;

  int fd() const override { return channel_->fd; }
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
  Result<off_t> map_memory(void* memory, std::size_t size, int protection, off_t offset) override;
  Result<void> unmap_memory(void* memory, std::size_t size) override;
  Result<std::size_t> write_mapped(const void* data, std::size_t size, off_t offset, int flags) override;
  std::optional<Clock::time_point> serve(Clock::time_point now, std::vector<pollfd>& wait_on) override;

 protected:
  void progress() override;
  short ready() const override;
  void arm(std::vector<pollfd>& wait_on) override;
  void take_events(std::span<const pollfd> waited_on) override;
  bool closed() const override { return state_ == State::kClosed; }

 private:
  enum class State : std::uint8_t {
    kIdle,
    kListening,
    kResolvingAddress,
    kResolvingRoute,
    kConnecting,
    kAccepting,  // REP sent; the peer may not be ready to receive yet
    kConnected,  // what can still be done is the engine's to know
    kFailed,     // to connect
    kClosed,
  };
  struct Request {  // of a peer, not accepted yet
    rdma::Id* id;
    ConnectionData peer;
  };
  struct Mapping {  // of the program's memory
    ibv_mr* region;
    std::optional<std::uint16_t> index;  // of the entry that the peer knows
  };
  enum OptionBit : unsigned { kReuseAddress = 1, kOobInline = 2, kNoDelay = 4, kV6Only = 8, kNoLinger = 16 };

  StreamSocket(std::shared_ptr<rdma::EventChannel> channel, rdma::Id* id, int domain);

  bool opening() const { return state_ >= State::kResolvingAddress && state_ <= State::kConnecting; }
  bool has_stream() const { return state_ == State::kAccepting || state_ == State::kConnected; }
  Result<void> usable() const;
  Result<void> await_stream(std::unique_lock<std::mutex>& lock, int flags);
  int take_error();

  // Connection events.
  void read_cm_events();
  void on_cm_event(const rdma_cm_event& event);
  void on_request(const rdma_cm_event& event);
  void on_established(const rdma_cm_event& event);
  void on_failure(const rdma_cm_event& event);
  void fail_connection(int error);
  void lose_node();
  Result<void> make_queue();
  Result<void> request_connection();
  Result<void> answer(const Request& request, const StreamSocket& listener);

  // Data.
  bool poll_completions();
  void post_writes();
  Result<void> shut_down_locked(std::unique_lock<std::mutex>& lock, int how);
  void disconnect();
  void release();

  template <class Ready, class Move>
  Result<std::size_t> send_all(std::unique_lock<std::mutex>& lock, std::size_t size, int flags, Ready ready, Move move);

  // Options by level.
  Result<void> set_socket_option(int name, int value, const void* raw);
  Result<void> set_tcp_option(int name, int value);
  Result<void> set_keepalive(bool on);
  void set_bit(OptionBit bit, int value) { options_ = value != 0 ? options_ | bit : options_ & ~unsigned{bit}; }
  std::optional<int> socket_option(int name);
  std::optional<int> tcp_option(int name) const;

  const std::shared_ptr<rdma::EventChannel> channel_;
  rdma::Id* id_;
  const int domain_;
  State state_ = State::kIdle;
  bool was_connected_ = false;
  int error_ = 0;  // for SO_ERROR
  Settings settings_;
  unsigned options_ = 0;
  std::deque<Request> requests_;

  std::unique_ptr<ReliableQueue> queue_;
  std::optional<Stream> stream_;
  std::vector<Mapping> mappings_;
  std::uint32_t idle_polls_ = 0;

  bool keepalive_ = false;
  std::chrono::seconds keepalive_time_{0};
  Clock::time_point keepalive_at_;
};

}  // namespace ucm::rsocket
