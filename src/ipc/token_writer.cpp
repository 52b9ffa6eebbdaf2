#include "ipc/token_writer.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

namespace ucm::ipc {
namespace {

tl::unexpected<Error> system_failure(const char* what) {
  const int code = errno;
  return fail(code, std::string("a descriptor for tokens: ") + what + ": " + std::generic_category().message(code));
}

// A name that nobody can take before: the socket needs one only to find itself. Once connected it hears nobody else.
Result<FileDescriptor> connected_to_itself(int flags) {
  constexpr std::string_view kPrefix = "ucm-token-";
  std::array<std::uint8_t, 16> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return system_failure("random");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, kPrefix.data(), kPrefix.size());
  std::memcpy(name.sun_path + 1 + kPrefix.size(), random.data(), random.size());
  constexpr socklen_t kLength = offsetof(sockaddr_un, sun_path) + 1 + kPrefix.size() + random.size();
  const auto* const address = reinterpret_cast<const sockaddr*>(&name);
  FileDescriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0));
  if (!fd || bind(fd.get(), address, kLength) != 0) return system_failure("socket");
  if (connect(fd.get(), address, kLength) != 0) return system_failure("connect");
  return fd;
}

}  // namespace

Result<TokenWriter> TokenWriter::create(Reader reader, Reading reading) {
  const bool returns = reading == Reading::kReturns;
  if (reader == Reader::kTrusted) {
    FileDescriptor fd(eventfd(0, EFD_CLOEXEC | (returns ? EFD_NONBLOCK : 0)));
    if (!fd) return system_failure("eventfd");
    return TokenWriter(reader, std::move(fd));
  }
  auto fd = connected_to_itself(returns ? SOCK_NONBLOCK : 0);
  if (!fd) return tl::unexpected(fd.error());
  return TokenWriter(reader, std::move(*fd));
}

void TokenWriter::put() const {
  if (reader_ == Reader::kTrusted) {
    eventfd_write(get(), 1);
    return;
  }
  const std::uint64_t token = 1;
  static_cast<void>(!send(get(), &token, sizeof token, MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace ucm::ipc
