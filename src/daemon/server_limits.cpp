// What programs and users may hold, and what the log says of those that want more.
#include "daemon/server.h"
#include "daemon/server_types.h"

namespace ucm::daemon {
namespace {

// One program's refusals, in the log.
constexpr TimeNs kTellEveryNs = 10 * kNanosecondsPerSecond;

// Queue pairs come in blocks of numbers.
std::uint32_t unit_of(node::Resource resource) {
  return resource == node::Resource::kQueuePairs ? ipc::kQpnBlockSize : 1;
}

}  // namespace

void Server::set_limits(const node::Limits& limits) {
  quotas_.set_limits(limits);
  node_->set_limits(limits);
}

bool Server::take(Session& session, node::Resource resource) {
  if (quotas_.take(session.id, session.peer.uid, resource, unit_of(resource))) return true;
  tell_refused(session, node::kResourceNames[static_cast<std::size_t>(resource)]);
  return false;
}

void Server::give_back(const Session& session, node::Resource resource, std::uint32_t times) {
  quotas_.give_back(session.id, session.peer.uid, resource, times * unit_of(resource));
}

void Server::tell_refused(Session& session, std::string_view what) {
  ++session.refusals_untold;
  if (loop_.now() < session.refusals_told_next) return;
  log(LogLevel::kWarning,
      "process " + std::to_string(session.peer.pid) + " (" + session.program_name + ") of user " +
          std::to_string(session.peer.uid) + " refused by the limit of " + std::string(what) +
          ", the program's or its user's; refusals since last told: " + std::to_string(session.refusals_untold));
  session.refusals_untold = 0;
  session.refusals_told_next = loop_.now() + kTellEveryNs;
}

}  // namespace ucm::daemon
