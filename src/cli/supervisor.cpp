#include "cli/supervisor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace ucm::cli {
namespace {

constexpr int kFirstPassed = 3;

std::string take_variable(const char* name) {
  const char* const value = std::getenv(name);
  std::string text = value != nullptr ? value : "";
  unsetenv(name);
  return text;
}

std::optional<std::int64_t> number_of(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

// Meant for this process, or for nobody in particular.
bool is_ours(const std::string& pid, bool needed) { return pid.empty() ? !needed : number_of(pid) == getpid(); }

int option_of(int socket, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  return getsockopt(socket, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

}  // namespace

Supervisor Supervisor::from_environment() {
  Supervisor supervisor;
  supervisor.notify_socket_ = take_variable("NOTIFY_SOCKET");
  const auto watchdog_us = number_of(take_variable("WATCHDOG_USEC"));
  if (is_ours(take_variable("WATCHDOG_PID"), false) && watchdog_us && *watchdog_us < INT64_MAX / 1000) {
    // Half of it, as sd_watchdog_enabled(3) advises.
    supervisor.watchdog_interval_ = *watchdog_us * kNanosecondsPerMicrosecond / 2;
  }
  const auto passed = number_of(take_variable("LISTEN_FDS"));
  take_variable("LISTEN_FDNAMES");
  if (is_ours(take_variable("LISTEN_PID"), true) && passed) {
    supervisor.passed_ = static_cast<int>(std::min<std::int64_t>(*passed, INT32_MAX));
  }
  return supervisor;
}

Result<ipc::FileDescriptor> Supervisor::take_listener() {
  if (passed_ == 0) return ipc::FileDescriptor();
  if (passed_ != 1) return fail(EINVAL, "LISTEN_FDS: one socket is expected, not " + std::to_string(passed_));
  ipc::FileDescriptor socket(kFirstPassed);
  passed_ = 0;
  if (option_of(socket.get(), SO_DOMAIN) != AF_UNIX || option_of(socket.get(), SO_TYPE) != SOCK_SEQPACKET ||
      option_of(socket.get(), SO_ACCEPTCONN) != 1) {
    return fail(EINVAL, "LISTEN_FDS: descriptor 3 is no listening UNIX socket of type SOCK_SEQPACKET");
  }
  if (fcntl(socket.get(), F_SETFD, FD_CLOEXEC) != 0 || fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0) {
    return fail(errno, "LISTEN_FDS: the socket cannot be set up");
  }
  return socket;
}

void Supervisor::tell(const std::string& state) const {
  if (notify_socket_.empty() || notify_socket_.size() >= sizeof(sockaddr_un::sun_path)) return;
  const ipc::FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, notify_socket_.data(), notify_socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + notify_socket_.size());
  // A supervisor that does not read misses a word.
  const auto sent = sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                           reinterpret_cast<const sockaddr*>(&address), length);
  static_cast<void>(sent);
}

std::string listener_name(int socket) {
  sockaddr_un address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "?";
  std::string name(address.sun_path, length - std::min<socklen_t>(length, offsetof(sockaddr_un, sun_path)));
  if (!name.empty() && name.front() == '\0') name.front() = '@';
  return name.c_str();
}

}  // namespace ucm::cli
