// What the server says in the log of failures that programs are told.
#include <array>
#include <cstdio>

#include "daemon/address_text.h"
#include "daemon/server.h"
#include "daemon/server_types.h"

namespace ucm::daemon {
namespace {

// A program that fails all the time must not fill a disk.
constexpr std::uint32_t kFailuresPerSecond = 50;

std::string comm_id_text(std::uint32_t comm_id) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%08x", comm_id);
  return text.data();
}

std::string failure_text(const node::Failure& failure) {
  std::string text = std::string(failure.what) + " " + std::to_string(failure.status) + ": " + std::string(failure.why);
  if (failure.id == 0) return text;
  text = "ID " + std::to_string(failure.id) + " in state " + std::string(failure.state) + ", " +
         text_of(failure.local) + " to " + text_of(failure.remote) + ": " + text;
  if (failure.local_comm_id == 0) return text;
  return text + " (comm ID " + comm_id_text(failure.local_comm_id) + ", of the peer " +
         comm_id_text(failure.remote_comm_id) + ")";
}

}  // namespace

void Server::log_failure(const node::Failure& failure) {
  FailureBudget& budget = failure_budgets_[failure.call ? 1 : 0];
  const LogLevel level = failure.call ? LogLevel::kDebug : LogLevel::kInfo;
  const TimeNs now = loop_.now();
  if (now - budget.since >= kNanosecondsPerSecond) {
    if (budget.left_out != 0) log(level, "and " + std::to_string(budget.left_out) + " failures more, not logged");
    budget = {.since = now};
  }
  if (budget.logged == kFailuresPerSecond) {
    ++budget.left_out;
    return;
  }
  ++budget.logged;
  const auto session = sessions_.find(failure.session);
  const std::string whose = session == sessions_.end() ? ""
                                                       : session->second->program_name + " (process " +
                                                             std::to_string(session->second->peer.pid) + "), ";
  log(level, whose + failure_text(failure));
}

}  // namespace ucm::daemon
