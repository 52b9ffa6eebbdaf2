#include "client/observe.h"

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "client/connection.h"

namespace ucm::client {
namespace {

constexpr int kPieceTimeoutMs = 10'000;

}  // namespace

Result<void> observe(int socket, ipc::Subject subject, std::uint32_t argument, const std::function<bool(Bytes)>& take) {
  ipc::ControlRequest request = ipc::make_request(ipc::ControlCall::kObserve, 1);
  request.subject = static_cast<std::uint32_t>(subject);
  request.argument = argument;
  if (const auto answer = ask(socket, request); !answer) return tl::unexpected(answer.error());
  std::vector<std::uint8_t> buffer(ipc::kObserveMessageMax);
  while (true) {
    pollfd readable{.fd = socket, .events = POLLIN, .revents = 0};
    const bool endless = subject == ipc::Subject::kTrace || subject == ipc::Subject::kRecord;
    const int ready = poll(&readable, 1, endless ? -1 : kPieceTimeoutMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return fail(ETIMEDOUT, "ucmd does not go on with its answer");
    const auto received = ipc::receive_message(socket, buffer, ipc::ReceiveMode::kWait);
    if (!received || received->size == 0) return fail(ENOTCONN, "ucmd has ended, or has dropped us as too slow");
    ipc::ControlHeader header;
    if (received->size < sizeof header) return fail(EPROTO, "ucmd's answer makes no sense");
    std::memcpy(&header, buffer.data(), sizeof header);
    if (header.call != ipc::ControlCall::kObserve || header.size != received->size) {
      return fail(EPROTO, "ucmd's answer makes no sense");
    }
    const Bytes piece = Bytes(buffer).subspan(sizeof header, received->size - sizeof header);
    if (piece.empty() || !take(piece)) return {};
  }
}

}  // namespace ucm::client
