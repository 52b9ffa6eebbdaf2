// How far an ID has come, as the program's side knows it. The node holds the authoritative state and refuses what does
// not fit; the phase decides what the node cannot: which QP attributes are known, and what to tell the program when
// the node is gone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ipc/cm_api.h"

namespace ucm::rdma {

enum class Phase : std::uint8_t {
  kIdle,
  kBound,
  kResolvingAddress,
  kAddressResolved,
  kResolvingRoute,
  kRouteResolved,
  kListening,
  kConnecting,  // REQ sent
  kResponded,   // REP received by an ID without a QP; rdma_establish comes next
  kRequested,   // made by a CONNECT_REQUEST, not accepted yet
  kAccepting,   // REP sent
  kEstablished,
  kDisconnecting,  // rdma_disconnect called
  kClosed,         // rejected, unreachable, disconnected, failed: only destruction is left
};
inline constexpr std::size_t kPhaseCount = 14;

// What rdma_init_qp_attr can tell.
enum class KnownAttributes : std::uint8_t {
  kNothing,
  kUnconnected,  // every state is answered with the INIT attributes, without access
  kInitOnly,
  kAll,
};

struct PhaseRules {
  const char* name;
  ipc::CmEventType when_node_lost;
  KnownAttributes attributes;
};

inline constexpr std::array<PhaseRules, kPhaseCount> kPhaseRules = {{
    {"idle", ipc::CmEventType::kDeviceRemoval, KnownAttributes::kUnconnected},
    {"bound", ipc::CmEventType::kDeviceRemoval, KnownAttributes::kUnconnected},
    {"resolving address", ipc::CmEventType::kAddrError, KnownAttributes::kUnconnected},
    {"address resolved", ipc::CmEventType::kDeviceRemoval, KnownAttributes::kUnconnected},
    {"resolving route", ipc::CmEventType::kRouteError, KnownAttributes::kUnconnected},
    {"route resolved", ipc::CmEventType::kDeviceRemoval, KnownAttributes::kUnconnected},
    {"listening", ipc::CmEventType::kDeviceRemoval, KnownAttributes::kNothing},
    {"connecting", ipc::CmEventType::kUnreachable, KnownAttributes::kInitOnly},
    {"responded", ipc::CmEventType::kUnreachable, KnownAttributes::kAll},
    {"requested", ipc::CmEventType::kDeviceRemoval, KnownAttributes::kAll},
    {"accepting", ipc::CmEventType::kUnreachable, KnownAttributes::kAll},
    {"established", ipc::CmEventType::kDisconnected, KnownAttributes::kAll},
    {"disconnecting", ipc::CmEventType::kDisconnected, KnownAttributes::kNothing},
    {"closed", ipc::CmEventType::kDeviceRemoval, KnownAttributes::kNothing},
}};

constexpr const PhaseRules& rules_of(Phase phase) { return kPhaseRules[static_cast<std::size_t>(phase)]; }

}  // namespace ucm::rdma
