#include "client/session.h"

#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "client/embedded.h"
#include "client/socket_session.h"

namespace ucm::client {
namespace {

bool embedded_mode() {
  const char* mode = std::getenv("UCM_MODE");
  return mode != nullptr && std::string_view(mode) == "embedded";
}

Result<std::shared_ptr<SocketSession>> open_session() {
  if (embedded_mode()) {
    auto socket = start_embedded_node();
    if (!socket) return tl::unexpected(socket.error());
    auto hello = say_hello(socket->get(), ipc::Role::kProgram);
    if (!hello) return tl::unexpected(hello.error());
    return SocketSession::open(std::move(*socket), std::move(*hello));
  }
  auto connection = connect_node(ipc::Role::kProgram);
  if (!connection) return tl::unexpected(connection.error());
  return SocketSession::open(std::move(connection->socket), std::move(connection->hello));
}

// The session of this process. Never destroyed: threads may use it until the last moment. A child's first use leaves
// the inherited one where it is, for the pointers that the child still has.
struct ProcessSession {
  std::mutex mutex;
  std::shared_ptr<SocketSession> current;
  std::vector<std::shared_ptr<SocketSession>> inherited;
};

ProcessSession& process_session() {
  static auto* session = [] {
    static auto* created = new ProcessSession;
    SessionCore::handle_forks();
    pthread_atfork([] { created->mutex.lock(); }, [] { created->mutex.unlock(); }, [] { created->mutex.unlock(); });
    return created;
  }();
  return *session;
}

// As the library is loaded: a child of a fork in the middle of it would wait for its end for ever.
[[gnu::constructor]] void make_process_session() { process_session(); }

}  // namespace

Result<std::shared_ptr<Session>> Session::get() {
  const CancellationOff no_cancellation;
  ProcessSession& process = process_session();
  const std::lock_guard lock(process.mutex);
  if (process.current && process.current->inherited()) process.inherited.push_back(std::move(process.current));
  if (!process.current) {
    auto session = open_session();
    if (!session) return tl::unexpected(session.error());
    process.current = std::move(*session);
  }
  return std::static_pointer_cast<Session>(process.current);
}

}  // namespace ucm::client
