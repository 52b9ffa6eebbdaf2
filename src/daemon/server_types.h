// The parts of a Server that its own files share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/cm_link.h"
#include "daemon/data_link.h"
#include "daemon/observation.h"
#include "daemon/server.h"
#include "ipc/control_socket.h"
#include "ipc/token_writer.h"

namespace ucm::daemon {

// One process (or one tool) at the control socket.
struct Server::Session {
  std::uint32_t id = 0;
  ipc::FileDescriptor socket;
  ipc::PeerCredentials peer;
  std::string program_name;
  ipc::Role role = ipc::Role::kTool;
  bool greeted = false;
  bool low_ports = false;  // it may bind service ports below 1024
  bool doomed = false;
  std::vector<std::uint32_t> links;
  std::optional<DataLink> data;
  std::uint32_t qpn_blocks = 0;
  // One entry per QP number, in the order handed out: the peer that the program wants packets from.
  ipc::FileDescriptor peer_table_memfd;
  ipc::SharedMemory peer_table;
  ipc::TokenWriter devices_changed;  // once the program has asked for it
  std::size_t send_ports = 0;
  std::size_t events_waiting = 0;
  // Refusals are told now and then only.
  TimeNs refusals_told_next = 0;
  std::uint64_t refusals_untold = 0;
  // What is kept of it, and what it may ask again: its last request before the last ucmd died.
  node::Journal::Cell cell = node::Journal::kNone;
  std::vector<node::Journal::Cell> other_cells;
  std::vector<std::pair<wire::MulticastGroup, node::Journal::Cell>> group_cells;
  std::uint32_t last_request = 0;
  std::optional<std::uint32_t> asked_before;
  // While it observes: what, the piece that is to be sent next with its header, and since when the socket takes none.
  std::unique_ptr<Observation> observation;
  std::uint32_t observe_sequence = 0;
  std::vector<std::uint8_t> piece;
  TimeNs blocked_since = kNever;
};

struct Server::LinkEntry {
  std::uint32_t id = 0;
  Session* session = nullptr;
  CmLink link;
  bool active = false;
  std::size_t new_events = 0;  // since the last push; not 0: in links_with_events_
};

}  // namespace ucm::daemon
