#include "bench/gate.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace ucm::bench {
namespace {

constexpr std::size_t kMessageMax = 512;

}  // namespace

Gate::Pair Gate::make() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  return {.leader = Gate(ends[0]), .led = Gate(ends[1])};
}

void Gate::say(Stage stage, const std::string& message) {
  std::array<char, 1 + kMessageMax> word{};
  word[0] = static_cast<char>(stage);
  const std::size_t length = std::min(message.size(), kMessageMax);
  std::copy_n(message.data(), length, word.data() + 1);
  // A peer that is gone is noticed by whoever hears next.
  send(socket_.get(), word.data(), 1 + length, MSG_NOSIGNAL);
}

Result<Stage> Gate::hear(int timeout_ms) {
  pollfd wait{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  while ((ready = poll(&wait, 1, timeout_ms)) < 0 && errno == EINTR) continue;
  if (ready == 0) return fail(ETIMEDOUT, "nothing heard yet");
  std::array<char, 1 + kMessageMax> word{};
  const ssize_t length = recv(socket_.get(), word.data(), word.size(), 0);
  if (length <= 0) return fail(EPIPE, "the process ended unexpectedly");
  const auto stage = static_cast<Stage>(word[0]);
  if (stage == Stage::kFailed)
    return fail(ECANCELED, std::string(word.data() + 1, static_cast<std::size_t>(length) - 1));
  return stage;
}

}  // namespace ucm::bench
