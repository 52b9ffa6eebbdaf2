// One rdma_cm ID as the node knows it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "base/time.h"
#include "cm/engine.h"
#include "host/host.h"
#include "ipc/cm_api.h"
#include "ipc/trace.h"
#include "node/id_state.h"
#include "node/journal.h"
#include "node/node.h"

namespace ucm::node {

struct Endpoint {
  wire::IpAddress address{};
  std::uint16_t port = 0;
  std::uint32_t scope = 0;  // interface of a link-local address
  std::uint32_t flow_info = 0;
  bool known = false;
};

// nullopt: no address, or one that is not of its family.
std::optional<Endpoint> endpoint_of(const ipc::SocketAddress& address);
ipc::SocketAddress to_socket_address(const Endpoint& endpoint);

// ibv_qp_type
inline constexpr std::uint8_t kQpTypeRc = 2;
inline constexpr std::uint8_t kQpTypeUc = 3;
inline constexpr std::uint8_t kQpTypeUd = 4;
inline constexpr std::uint8_t kQpTypeXrcSend = 9;
inline constexpr std::uint8_t kQpTypeXrcRecv = 10;

struct RdmaId {
  std::uint32_t id = 0;
  SessionId session = 0;
  LinkId link = 0;
  wire::PortSpace port_space{};
  std::uint8_t qp_type = 0;  // ibv_qp_type
  IdState state = IdState::kIdle;

  Endpoint local{};
  Endpoint remote{};
  std::uint32_t ifindex = 0;  // of the device; 0 = none

  // Options.
  std::uint8_t type_of_service = 0;
  std::uint8_t ack_timeout = 0;  // 0 = not set
  bool reuse_address = false;
  std::optional<bool> family_only{};

  // While resolving: what is waited for, and what to go back to.
  host::Route route{};
  TimeNs resolve_deadline = kNever;
  Endpoint bound{};
  std::uint32_t bound_ifindex = 0;

  // The route.
  std::uint8_t path_mtu = 0;
  std::uint8_t packet_lifetime = 0;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;

  // Listening.
  cm::ListenerId listener{};
  std::uint32_t backlog = 0;
  std::set<std::uint32_t> untaken{};  // IDs of requests that the program has not read

  // Connecting: one of the two, by the type of QP.
  cm::ConnectionId connection{};
  cm::SidrId exchange{};
  bool passive = false;
  bool accepted = false;
  bool asking = false;  // connect() has not been answered
  std::uint32_t listen_id = 0;

  std::uint32_t user = ipc::kTraceNoUser;  // whose it is
  std::uint64_t last_record = 0;           // in the flight recorder while it has no connection

  bool removal_told = false;  // its device has gone
  bool answered = false;      // datagrams: the program has been told how it ended

  Journal::Cell cell = Journal::kNone;
  bool noted = false;  // among those that have changed since the last commit

  bool is_datagram() const { return qp_type == kQpTypeUd; }
};

}  // namespace ucm::node
