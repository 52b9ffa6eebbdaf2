#include "client/connection.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <vector>

namespace ucm::client {
namespace {

// A node answers in microseconds; this is for one that has been stopped or is no node at all.
constexpr int kAnswerTimeoutMs = 10'000;

// A node that dies, or leaves, before it has greeted is met again: another one may be there in a moment.
constexpr int kHelloTries = 10;
constexpr int kHelloRetryMs = 20;

tl::unexpected<Error> node_gone() { return fail(ENOTCONN, "the connection to ucmd has ended"); }

// False when the time is over. A hang-up counts as readable.
bool wait_readable(int socket, int timeout_ms) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + milliseconds(timeout_ms);
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd event{.fd = socket, .events = POLLIN, .revents = 0};
    if (poll(&event, 1, static_cast<int>(left)) > 0) return true;
  }
}

Result<Answer> receive_answer(int socket) {
  if (!wait_readable(socket, kAnswerTimeoutMs)) {
    return fail(ETIMEDOUT, "ucmd does not answer (is it stopped, or something else listening on its name?)");
  }
  std::array<std::uint8_t, sizeof(ipc::ControlReply) + 1> buffer{};
  auto received = ipc::receive_message(socket, buffer, ipc::ReceiveMode::kWait);
  if (!received && received.error().code != ECONNRESET) return tl::unexpected(received.error());
  if (!received || received->size == 0) return node_gone();
  auto reply = ipc::parse_reply(Bytes(buffer).first(received->size));
  if (!reply) return tl::unexpected(reply.error());
  if (received->none_left) return Answer{.reply = *reply, .descriptors = {}, .none_left = true};
  if (reply->descriptor_count != received->descriptor_count) return fail(EPROTO, "ucmd's answer lacks a descriptor");
  return Answer{.reply = *reply, .descriptors = std::move(received->descriptors)};
}

std::vector<std::string> candidate_names() {
  if (const char* name = std::getenv("UCM_SOCKET"); name != nullptr && *name != '\0') return {name};
  std::vector<std::string> names{ipc::socket_name_of(0)};
  if (geteuid() != 0) names.push_back(ipc::socket_name_of(geteuid()));
  return names;
}

}  // namespace

Result<Answer> ask(int socket, const ipc::ControlRequest& request) {
  const auto sent = ipc::send_message(socket, ipc::bytes_of(request), {}, ipc::SendMode::kWait);
  if (!sent) {
    if (sent.error().code == EPIPE || sent.error().code == ECONNRESET) return node_gone();
    return tl::unexpected(sent.error());
  }
  // A ucmd that has been replaced may have answered the question before once more.
  auto answer = receive_answer(socket);
  while (answer && answer->reply.header.sequence < request.header.sequence) answer = receive_answer(socket);
  if (!answer) return answer;
  if (answer->reply.header.call != request.header.call || answer->reply.header.sequence != request.header.sequence) {
    return fail(EPROTO, "ucmd answers another question");
  }
  if (answer->reply.error != 0) return fail(answer->reply.error, ipc::text_of(answer->reply.message));
  if (answer->none_left) {
    // Nobody here can use the new link.
    if (request.header.call == ipc::ControlCall::kOpenCmLink) {
      ipc::ControlRequest close = ipc::make_request(ipc::ControlCall::kCloseLink, request.header.sequence);
      close.link = answer->reply.link;
      if (const auto closed = ask(socket, close); !closed) return tl::unexpected(closed.error());
    }
    return fail(EMFILE, "no file descriptor left in this process");
  }
  return answer;
}

Result<Answer> say_hello(int socket, ipc::Role role) {
  ipc::ControlRequest request = ipc::make_request(ipc::ControlCall::kHello, 0);
  request.role = role;
  auto answer = ask(socket, request);
  if (answer) return answer;
  if (answer.error().code == EPROTONOSUPPORT) {
    return fail(EPROTONOSUPPORT, "ucmd and this library are of different versions (" + answer.error().message +
                                     "); restart ucmd: ucm stop");
  }
  if (answer.error().code == ENOTCONN) {
    return fail(ENOTCONN, "ucmd closed the connection at once; is it stopping, or serving too many programs?");
  }
  return answer;
}

Result<Connection> connect_node_at(const std::string& socket_name, ipc::Role role) {
  auto socket = ipc::connect_to(socket_name, kAnswerTimeoutMs);
  if (!socket) return tl::unexpected(socket.error());
  const auto peer = ipc::peer_credentials(socket->get());
  if (!peer) return tl::unexpected(peer.error());
  if (peer->uid != 0 && peer->uid != geteuid()) {
    return fail(EACCES, socket_name + " belongs to process " + std::to_string(peer->pid) + " of user " +
                            std::to_string(peer->uid) + "; user " + std::to_string(geteuid()) +
                            " trusts only root's ucmd and an own one");
  }
  auto hello = say_hello(socket->get(), role);
  if (!hello) return fail(hello.error().code, socket_name + ": " + hello.error().message);
  return Connection{std::move(*socket), socket_name, std::move(*hello)};
}

namespace {

Result<Connection> connect_some_node(ipc::Role role) {
  const std::vector<std::string> names = candidate_names();
  std::string tried;
  Error stranger;
  for (const std::string& name : names) {
    auto connection = connect_node_at(name, role);
    if (connection) return connection;
    if (connection.error().code == EACCES) {
      stranger = connection.error();
    } else if (connection.error().code != ECONNREFUSED) {
      return connection;
    }
    tried += (tried.empty() ? "" : " and ") + name;
  }
  if (stranger.code != 0) return tl::unexpected(stranger);
  return fail(ECONNREFUSED,
              "no ucmd is running here (tried " + tried + "); start the program with: ucm run -- PROGRAM");
}

}  // namespace

Result<Connection> connect_node(ipc::Role role) {
  auto connection = connect_some_node(role);
  for (int i = 1; i < kHelloTries && !connection && connection.error().code == ENOTCONN; ++i) {
    poll(nullptr, 0, kHelloRetryMs);
    connection = connect_some_node(role);
  }
  return connection;
}

}  // namespace ucm::client
