#include "ipc/control_socket.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <system_error>

#include "base/check.h"

namespace ucm::ipc {
namespace {

// Programs that start at once wait here until ucmd accepts them; the kernel caps it at net.core.somaxconn.
constexpr int kAcceptQueue = 1024;

tl::unexpected<Error> system_failure(const std::string& what) {
  const int code = errno;
  return fail(code, what + ": " + std::generic_category().message(code));
}

struct SocketName {
  sockaddr_un address{};
  socklen_t length = 0;
};

Result<SocketName> abstract_address(std::string_view name) {
  std::string_view bare = name;
  if (!bare.empty() && bare.front() == '@') bare.remove_prefix(1);
  SocketName result;
  if (bare.empty() || bare.size() >= sizeof result.address.sun_path) {
    return fail(EINVAL, "socket name \"" + std::string(name) + "\" is empty or too long (\"@NAME\", up to 107 bytes)");
  }
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, bare.data(), bare.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bare.size());
  return result;
}

// The descriptors of a received message; those that do not fit are closed at once.
bool take_descriptors(msghdr& message, Received& received) {
  bool all_fit = (message.msg_flags & MSG_CTRUNC) == 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      FileDescriptor owned(fd);
      if (received.descriptor_count == kDescriptorsMax) {
        all_fit = false;
      } else {
        received.descriptors[received.descriptor_count++] = std::move(owned);
      }
    }
  }
  return all_fit;
}

}  // namespace

std::string socket_name_of(uid_t uid) { return uid == 0 ? "@ucm" : "@ucm." + std::to_string(uid); }

Result<FileDescriptor> listen_on(std::string_view name) {
  const Result<SocketName> address = abstract_address(name);
  if (!address) return tl::unexpected(address.error());
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_failure("socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address->address), address->length) != 0) {
    return system_failure("bind to " + std::string(name));
  }
  if (listen(fd.get(), kAcceptQueue) != 0) return system_failure("listen on " + std::string(name));
  return fd;
}

Result<FileDescriptor> connect_to(std::string_view name, int timeout_ms) {
  const Result<SocketName> address = abstract_address(name);
  if (!address) return tl::unexpected(address.error());
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return system_failure("socket");
  // A full accept queue makes connect() wait as long as the send timeout says.
  const timeval timeout{.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->address), address->length) != 0) {
    if (errno != EINTR) return system_failure("connect to " + std::string(name));
  }
  return fd;
}

Result<std::pair<FileDescriptor, FileDescriptor>> connected_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return system_failure("socketpair");
  return std::pair(FileDescriptor(ends[0]), FileDescriptor(ends[1]));
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return system_failure("SO_PEERCRED");
  return PeerCredentials{.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
}

Result<void> send_message(int socket, Bytes message, std::span<const int> descriptors, SendMode mode) {
  UCM_CHECK(descriptors.size() <= kDescriptorsMax);
  iovec part{const_cast<std::uint8_t*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size_bytes());
  }
  const int flags = MSG_NOSIGNAL | (mode == SendMode::kDontWait ? MSG_DONTWAIT : 0);
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &header, flags);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return system_failure("control socket: send");
  return {};
}

Result<Received> receive_message(int socket, MutableBytes buffer, ReceiveMode mode) {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const int flags =
      MSG_CMSG_CLOEXEC | (mode != ReceiveMode::kWait ? MSG_DONTWAIT : 0) | (mode == ReceiveMode::kPeek ? MSG_PEEK : 0);
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &header, flags);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return system_failure("control socket: receive");
  Received received;
  received.size = static_cast<std::size_t>(got);
  const bool all_fit = take_descriptors(header, received);
  // The kernel leaves out what the process has no descriptors for, without saying why.
  received.none_left = (header.msg_flags & MSG_CTRUNC) != 0 && received.descriptor_count < kDescriptorsMax;
  if ((!all_fit && !received.none_left) || (header.msg_flags & MSG_TRUNC) != 0)
    return fail(EMSGSIZE, "control socket: message too long");
  return received;
}

// A message is a record: reading any part of it takes the whole.
void discard_message(int socket) {
  char part = 0;
  static_cast<void>(!recv(socket, &part, sizeof part, MSG_DONTWAIT));
}

}  // namespace ucm::ipc
