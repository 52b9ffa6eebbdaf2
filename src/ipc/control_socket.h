// The socket between a program and its node: SOCK_SEQPACKET, so that a message is a record, with descriptors passed
// beside it. Names are abstract ("@ucm"): the kernel keeps them per network namespace and drops them with their owner.
#pragma once

#include <sys/types.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "ipc/file_descriptor.h"
#include "ipc/limits.h"

namespace ucm::ipc {

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

// "@ucm" for root, "@ucm.1000" for user 1000.
std::string socket_name_of(uid_t uid);

// EADDRINUSE when somebody holds the name. Non-blocking, close-on-exec.
Result<FileDescriptor> listen_on(std::string_view name);
// ECONNREFUSED when nobody listens. Blocking, close-on-exec; waits at most `timeout_ms` for a busy listener.
Result<FileDescriptor> connect_to(std::string_view name, int timeout_ms);
// For a node inside the process.
Result<std::pair<FileDescriptor, FileDescriptor>> connected_pair();

Result<PeerCredentials> peer_credentials(int socket);

// Sends one whole message and never raises SIGPIPE. With kDontWait, EAGAIN when the other side does not read.
enum class SendMode { kWait, kDontWait };
Result<void> send_message(int socket, Bytes message, std::span<const int> descriptors, SendMode mode);

struct Received {
  std::size_t size = 0;  // bytes of the message; 0 = the other side has hung up
  std::size_t descriptor_count = 0;
  bool none_left = false;  // the message carried descriptors, and this process has none left for them
  std::array<FileDescriptor, kDescriptorsMax> descriptors;  // close-on-exec
};
enum class ReceiveMode { kWait, kDontWait, kPeek };
// One message. EMSGSIZE when it is longer than `buffer` or carries more than kDescriptorsMax descriptors (all closed).
// With kDontWait, EAGAIN when there is none. kPeek is the same and leaves the message where it is, for
// discard_message().
Result<Received> receive_message(int socket, MutableBytes buffer, ReceiveMode mode);
void discard_message(int socket);

}  // namespace ucm::ipc
