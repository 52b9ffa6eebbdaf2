// A stream's names and options.
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "rsocket/service.h"
#include "rsocket/stream_socket.h"

namespace ucm::rsocket {
namespace {

constexpr int kKeepaliveTimeDefault_s = 7200;

std::chrono::seconds system_keepalive_time() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_keepalive_time");
  int seconds = 0;
  return std::chrono::seconds(file >> seconds && seconds > 0 ? seconds : kKeepaliveTimeDefault_s);
}

}  // namespace

Result<void> StreamSocket::peer_name(const AddressOut& out) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  if (!has_stream()) return fail(ENOTCONN, "not connected");
  out.store(id_->route.addr.dst_storage);
  return {};
}

Result<void> StreamSocket::local_name(const AddressOut& out) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  sockaddr_storage address = id_->route.addr.src_storage;
  if (address.ss_family == 0) address.ss_family = static_cast<sa_family_t>(domain_);
  out.store(address);
  return {};
}

Result<void> StreamSocket::set_option(int level, int name, const void* value, socklen_t size) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  if (value == nullptr || size < sizeof(int)) return fail(EINVAL, "no value for an option");
  int number = 0;
  std::memcpy(&number, value, sizeof(number));
  switch (level) {
    case SOL_SOCKET:
      return set_socket_option(name, number, value);
    case IPPROTO_TCP:
      return set_tcp_option(name, number);
    case IPPROTO_IPV6:
      if (name != IPV6_V6ONLY) return fail(ENOTSUP, "unknown option of IPv6");
      if (auto set = id_->set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof(number)); !set) return set;
      set_bit(kV6Only, number);
      return {};
    case SOL_RDMA:
      if (state_ > State::kListening) return fail(EINVAL, "too late for this option");
      return settings_.set_rdma_option(name, number);
    default:
      return fail(ENOTSUP, "unknown level of options");
  }
}

Result<void> StreamSocket::set_socket_option(int name, int value, const void* raw) {
  switch (name) {
    case SO_REUSEADDR:
      if (auto set = id_->set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value, sizeof(value)); !set) {
        if (state_ == State::kIdle) return set;  // bound already: of no effect, as with TCP
      }
      set_bit(kReuseAddress, value);
      return {};
    case SO_RCVBUF:
    case SO_SNDBUF:
      if (queue_ == nullptr) settings_.set_buffer_size(name, value);
      return {};
    case SO_LINGER:
      // Closing waits for what is under way, whatever time is given.
      set_bit(kNoLinger, static_cast<const linger*>(raw)->l_onoff == 0 ? 1 : 0);
      return {};
    case SO_KEEPALIVE:
      return set_keepalive(value != 0);
    case SO_OOBINLINE:
      set_bit(kOobInline, value);
      return {};
    default:
      return fail(ENOTSUP, "unknown option of sockets");
  }
}

Result<void> StreamSocket::set_keepalive(bool on) {
  keepalive_ = on;
  if (!on) return {};
  if (keepalive_time_.count() == 0) keepalive_time_ = system_keepalive_time();
  keepalive_at_ = Clock::now() + keepalive_time_;
  return Service::instance().attend(shared_from_this());
}

Result<void> StreamSocket::set_tcp_option(int name, int value) {
  switch (name) {
    case TCP_KEEPIDLE:
      if (value <= 0) return fail(EINVAL, "a keep-alive time of nothing");
      keepalive_time_ = std::chrono::seconds(value);
      return keepalive_ ? set_keepalive(true) : Result<void>{};
    case TCP_NODELAY:
      set_bit(kNoDelay, value);
      return {};
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
    case TCP_MAXSEG:
      return {};  // the connection repeats and divides by itself
    default:
      return fail(ENOTSUP, "unknown option of TCP");
  }
}

Result<void> StreamSocket::get_option(int level, int name, void* value, socklen_t* size) {
  const std::lock_guard lock(mutex_);
  if (auto can = usable(); !can) return can;
  if (level == SOL_SOCKET && name == SO_LINGER) {
    const linger lingering{.l_onoff = (options_ & kNoLinger) == 0, .l_linger = 0};
    return store_option(&lingering, sizeof(lingering), value, size);
  }
  std::optional<int> number;
  if (level == SOL_SOCKET) number = socket_option(name);
  if (level == IPPROTO_TCP) number = tcp_option(name);
  if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) number = (options_ & kV6Only) != 0;
  if (level == SOL_RDMA) number = settings_.rdma_option(name);
  if (!number) return fail(ENOTSUP, "unknown option");
  return store_option(&*number, sizeof(*number), value, size);
}

std::optional<int> StreamSocket::socket_option(int name) {
  switch (name) {
    case SO_REUSEADDR:
      return (options_ & kReuseAddress) != 0;
    case SO_KEEPALIVE:
      return keepalive_;
    case SO_OOBINLINE:
      return (options_ & kOobInline) != 0;
    case SO_RCVBUF:
      return static_cast<int>(settings_.sizes.receive_buffer);
    case SO_SNDBUF:
      return static_cast<int>(settings_.sizes.send_buffer);
    case SO_ERROR:
      return take_error();
    case SO_TYPE:
      return SOCK_STREAM;
    case SO_DOMAIN:
      return domain_;
    case SO_ACCEPTCONN:
      return state_ == State::kListening;
    default:
      return std::nullopt;
  }
}

std::optional<int> StreamSocket::tcp_option(int name) const {
  constexpr int kPathMtuUnknown = 2048;
  switch (name) {
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
      return 1;
    case TCP_KEEPIDLE:
      return static_cast<int>(keepalive_time_.count());
    case TCP_NODELAY:
      return (options_ & kNoDelay) != 0;
    case TCP_MAXSEG:
      return id_->route.num_paths != 0 ? 128 << id_->route.path_rec->mtu : kPathMtuUnknown;
    default:
      return std::nullopt;
  }
}

}  // namespace ucm::rsocket
