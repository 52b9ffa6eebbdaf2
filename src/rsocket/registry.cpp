#include "rsocket/registry.h"

#include <netinet/in.h>
#include <pthread.h>

#include <cerrno>
#include <mutex>
#include <vector>

#include "rsocket/datagram_socket.h"
#include "rsocket/stream_socket.h"

namespace ucm::rsocket {
namespace {

class Registry {
 public:
  static Registry& instance() {
    // Never destroyed: threads of the program may still use their sockets while it exits.
    static Registry& registry = *new Registry;
    return registry;
  }

  void add(std::shared_ptr<Socket> socket) {
    const auto fd = static_cast<std::size_t>(socket->fd());
    const std::lock_guard lock(mutex_);
    if (sockets_.size() <= fd) sockets_.resize(fd + 1);
    sockets_[fd] = std::move(socket);
  }
  std::shared_ptr<Socket> find(int fd) {
    const std::lock_guard lock(mutex_);
    return is_known(fd) ? sockets_[static_cast<std::size_t>(fd)] : nullptr;
  }
  std::shared_ptr<Socket> remove(int fd) {
    const std::lock_guard lock(mutex_);
    return is_known(fd) ? std::move(sockets_[static_cast<std::size_t>(fd)]) : nullptr;
  }

 private:
  // A child finds the table unlocked and as it is, and its sockets unlocked.
  Registry() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] { instance().begin_in_child(); });
  }
  void begin_in_child() {
    mutex_.unlock();
    for (const std::shared_ptr<Socket>& socket : sockets_) {
      if (socket != nullptr) socket->unlock_in_child();
    }
  }
  bool is_known(int fd) const { return fd >= 0 && static_cast<std::size_t>(fd) < sockets_.size(); }

  std::mutex mutex_;  // not a shared one: a child cannot unlock that
  std::vector<std::shared_ptr<Socket>> sockets_;
};

// As the library is loaded: a child of a fork in the middle of it would wait for its end for ever.
[[gnu::constructor]] void make_registry() { Registry::instance(); }

bool fits(int protocol, int only) { return protocol == 0 || protocol == only; }

}  // namespace

Result<int> open_socket(int domain, int type, int protocol) {
  const bool inet = domain == AF_INET || domain == AF_INET6;
  if (inet && type == SOCK_STREAM && fits(protocol, IPPROTO_TCP)) {
    auto socket = StreamSocket::create(domain);
    if (!socket) return tl::unexpected(socket.error());
    return add_socket(std::move(*socket));
  }
  if (inet && type == SOCK_DGRAM && fits(protocol, IPPROTO_UDP)) {
    auto socket = DatagramSocket::create(domain);
    if (!socket) return tl::unexpected(socket.error());
    return add_socket(std::move(*socket));
  }
  return fail(ENOTSUP, "only streams and datagrams of IPv4 and IPv6");
}

int add_socket(std::shared_ptr<Socket> socket) {
  const int fd = socket->fd();
  Registry::instance().add(std::move(socket));
  return fd;
}

std::shared_ptr<Socket> find_socket(int fd) { return Registry::instance().find(fd); }
std::shared_ptr<Socket> remove_socket(int fd) { return Registry::instance().remove(fd); }

}  // namespace ucm::rsocket
