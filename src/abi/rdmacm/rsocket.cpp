// The C entry points of rsockets. What they mean is in src/rsocket.
#include <rdma/rsocket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdarg>

#include "abi/rdmacm/boundary.h"
#include "rsocket/poll.h"
#include "rsocket/registry.h"
#include "rsocket/socket.h"

using ucm::Result;
using ucm::rdma::guarded;
using ucm::rsocket::AddressOut;
using ucm::rsocket::Socket;

namespace {

// `call(socket)` returns a Result whose value becomes the call's; -1 with errno without.
template <class Value, class Call>
Value on_socket(const char* function, int fd, Call&& call) {
  Value value = static_cast<Value>(-1);
  guarded(
      function,
      [&]() -> decltype(call(std::declval<Socket&>())) {
        const auto socket = ucm::rsocket::find_socket(fd);
        if (socket == nullptr) return ucm::fail(EBADF, "not an rsocket");
        return call(*socket);
      },
      [&](const auto& result) { value = static_cast<Value>(*result); });
  return value;
}

// The same of calls that return nothing but success.
template <class Call>
int done_on_socket(const char* function, int fd, Call&& call) {
  return on_socket<int>(function, fd, [&](Socket& socket) -> Result<int> {
    if (auto done = call(socket); !done) return tl::unexpected(done.error());
    return 0;
  });
}

ssize_t receive(const char* function, int fd, std::span<const iovec> into, int flags, const AddressOut& from = {}) {
  return on_socket<ssize_t>(function, fd, [&](Socket& socket) { return socket.receive(into, flags, from); });
}

ssize_t send(const char* function, int fd, std::span<const iovec> data, int flags, const sockaddr* to = nullptr,
             socklen_t size = 0) {
  return on_socket<ssize_t>(function, fd, [&](Socket& socket) { return socket.send(data, flags, to, size); });
}

int not_there(const char* function) {
  ucm::rdma::report(function, {ENOSYS, "use rpoll()"});
  return -1;
}

iovec part(const void* memory, std::size_t size) { return {const_cast<void*>(memory), size}; }

std::span<const iovec> parts(const iovec* list, int count) {
  return {list, static_cast<std::size_t>(count > 0 ? count : 0)};
}

}  // namespace

extern "C" {

// --- Sockets --------------------------------------------------------------------------------------------------------

int rsocket(int domain, int type, int protocol) {
  int fd = -1;
  guarded(
      __func__, [&] { return ucm::rsocket::open_socket(domain, type, protocol); },
      [&](const auto& opened) { fd = *opened; });
  return fd;
}

int rbind(int socket, const sockaddr* addr, socklen_t addrlen) {
  return done_on_socket(__func__, socket, [&](Socket& of) { return of.bind(addr, addrlen); });
}

int rlisten(int socket, int backlog) {
  return done_on_socket(__func__, socket, [&](Socket& of) { return of.listen(backlog); });
}

int raccept(int socket, sockaddr* addr, socklen_t* addrlen) {
  return on_socket<int>(__func__, socket, [&](Socket& of) -> Result<int> {
    auto accepted = of.accept({addr, addrlen});
    if (!accepted) return tl::unexpected(accepted.error());
    return ucm::rsocket::add_socket(std::move(*accepted));
  });
}

int rconnect(int socket, const sockaddr* addr, socklen_t addrlen) {
  return done_on_socket(__func__, socket, [&](Socket& of) { return of.connect(addr, addrlen); });
}

int rshutdown(int socket, int how) {
  return done_on_socket(__func__, socket, [&](Socket& of) { return of.shut_down(how); });
}

int rclose(int socket) {
  return guarded(__func__, [&]() -> Result<void> {
    const auto closing = ucm::rsocket::remove_socket(socket);
    if (closing == nullptr) return ucm::fail(EBADF, "not an rsocket");
    closing->close();
    return {};
  });
}

// --- Data -----------------------------------------------------------------------------------------------------------

ssize_t rrecv(int socket, void* buf, size_t len, int flags) {
  const iovec into = part(buf, len);
  return receive(__func__, socket, {&into, 1}, flags);
}

ssize_t rrecvfrom(int socket, void* buf, size_t len, int flags, sockaddr* src_addr, socklen_t* addrlen) {
  const iovec into = part(buf, len);
  return receive(__func__, socket, {&into, 1}, flags, {src_addr, addrlen});
}

ssize_t rrecvmsg(int socket, msghdr* msg, int flags) {
  if (msg->msg_control != nullptr && msg->msg_controllen != 0) {
    errno = ENOTSUP;
    return -1;
  }
  msg->msg_flags = 0;
  return receive(__func__, socket, {msg->msg_iov, msg->msg_iovlen}, flags,
                 {static_cast<sockaddr*>(msg->msg_name), msg->msg_name != nullptr ? &msg->msg_namelen : nullptr});
}

ssize_t rread(int socket, void* buf, size_t count) {
  const iovec into = part(buf, count);
  return receive(__func__, socket, {&into, 1}, 0);
}

ssize_t rreadv(int socket, const iovec* iov, int iovcnt) { return receive(__func__, socket, parts(iov, iovcnt), 0); }

ssize_t rsend(int socket, const void* buf, size_t len, int flags) {
  const iovec data = part(buf, len);
  return send(__func__, socket, {&data, 1}, flags);
}

ssize_t rsendto(int socket, const void* buf, size_t len, int flags, const sockaddr* dest_addr, socklen_t addrlen) {
  const iovec data = part(buf, len);
  return send(__func__, socket, {&data, 1}, flags, dest_addr, addrlen);
}

ssize_t rsendmsg(int socket, const msghdr* msg, int flags) {
  if (msg->msg_control != nullptr && msg->msg_controllen != 0) {
    errno = ENOTSUP;
    return -1;
  }
  return send(__func__, socket, {msg->msg_iov, msg->msg_iovlen}, flags, static_cast<const sockaddr*>(msg->msg_name),
              msg->msg_namelen);
}

ssize_t rwrite(int socket, const void* buf, size_t count) {
  const iovec data = part(buf, count);
  return send(__func__, socket, {&data, 1}, 0);
}

ssize_t rwritev(int socket, const iovec* iov, int iovcnt) { return send(__func__, socket, parts(iov, iovcnt), 0); }

off_t riomap(int socket, void* buf, size_t len, int prot, int /*flags*/, off_t offset) {
  return on_socket<off_t>(__func__, socket, [&](Socket& of) { return of.map_memory(buf, len, prot, offset); });
}

int riounmap(int socket, void* buf, size_t len) {
  return done_on_socket(__func__, socket, [&](Socket& of) { return of.unmap_memory(buf, len); });
}

size_t riowrite(int socket, const void* buf, size_t count, off_t offset, int flags) {
  return on_socket<size_t>(__func__, socket, [&](Socket& of) { return of.write_mapped(buf, count, offset, flags); });
}

// --- Waiting --------------------------------------------------------------------------------------------------------

int rpoll(pollfd* fds, nfds_t nfds, int timeout) {
  int count = -1;
  guarded(
      __func__, [&] { return ucm::rsocket::poll_sockets({fds, nfds}, timeout); },
      [&](const auto& polled) { count = *polled; });
  return count;
}

int rselect(int nfds, fd_set* readfds, fd_set* writefds, fd_set* exceptfds, timeval* timeout) {
  int count = -1;
  guarded(
      __func__, [&] { return ucm::rsocket::select_sockets(nfds, readfds, writefds, exceptfds, timeout); },
      [&](const auto& selected) { count = *selected; });
  return count;
}

// --- Names and options ----------------------------------------------------------------------------------------------

int rgetpeername(int socket, sockaddr* addr, socklen_t* addrlen) {
  return done_on_socket(__func__, socket, [&](Socket& of) { return of.peer_name({addr, addrlen}); });
}

int rgetsockname(int socket, sockaddr* addr, socklen_t* addrlen) {
  return done_on_socket(__func__, socket, [&](Socket& of) { return of.local_name({addr, addrlen}); });
}

int rsetsockopt(int socket, int level, int optname, const void* optval, socklen_t optlen) {
  return done_on_socket(__func__, socket, [&](Socket& of) { return of.set_option(level, optname, optval, optlen); });
}

int rgetsockopt(int socket, int level, int optname, void* optval, socklen_t* optlen) {
  return done_on_socket(__func__, socket, [&](Socket& of) { return of.get_option(level, optname, optval, optlen); });
}

int rfcntl(int socket, int cmd, ...) {
  va_list arguments;
  va_start(arguments, cmd);
  const int argument = va_arg(arguments, int);
  va_end(arguments);
  return on_socket<int>(__func__, socket, [&](Socket& of) { return of.control(cmd, argument); });
}

// --- Newer than rdma-core 44 ----------------------------------------------------------------------------------------

// Refused; programs built for them load.
int repoll_create() { return not_there(__func__); }
int repoll_ctl() { return not_there(__func__); }
int repoll_wait() { return not_there(__func__); }

}  // extern "C"
