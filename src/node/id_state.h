// The states of an rdma_cm ID and what each call and each happening does to them, as one table.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ucm::node {

enum class IdState : std::uint8_t {
  kIdle,
  kAddrBound,
  kListen,
  kAddrQuery,  // waits for a neighbour
  kAddrResolved,
  kRouteResolved,
  kConnect,  // from connect(), or from the request on; stays when rejected or unreachable
  kDisconnect,
};
inline constexpr std::size_t kIdStateCount = 8;

enum class IdInput : std::uint8_t {
  // Calls; what is not in the table is EINVAL.
  kBind,
  kResolveAddr,
  kResolveRoute,
  kListen,
  kConnect,
  kAccept,
  kReject,
  kEstablish,
  kNotify,
  kDisconnect,
  kJoinMulticast,
  // Happenings; what is not in the table is not told to the program.
  kAddrFound,
  kAddrFailed,
  kConnectionEvent,  // response, established, rejected, unreachable
  kDisconnected,
  kTimewaitExit,
};
inline constexpr std::size_t kIdInputCount = 16;

struct IdTransition {
  IdState from;
  IdInput input;
  IdState to;
};

// Linux: cma.c. The last two rows: CM events reach the program only in CONNECT, TIMEWAIT_EXIT only in DISCONNECT.
inline constexpr std::array kIdTransitions = {
    IdTransition{IdState::kIdle, IdInput::kBind, IdState::kAddrBound},
    IdTransition{IdState::kIdle, IdInput::kResolveAddr, IdState::kAddrQuery},
    IdTransition{IdState::kIdle, IdInput::kListen, IdState::kListen},
    IdTransition{IdState::kAddrBound, IdInput::kResolveAddr, IdState::kAddrQuery},
    IdTransition{IdState::kAddrBound, IdInput::kListen, IdState::kListen},
    IdTransition{IdState::kAddrQuery, IdInput::kAddrFound, IdState::kAddrResolved},
    IdTransition{IdState::kAddrQuery, IdInput::kAddrFailed, IdState::kAddrBound},
    IdTransition{IdState::kAddrResolved, IdInput::kResolveRoute, IdState::kRouteResolved},
    IdTransition{IdState::kRouteResolved, IdInput::kConnect, IdState::kConnect},
    IdTransition{IdState::kConnect, IdInput::kAccept, IdState::kConnect},
    IdTransition{IdState::kConnect, IdInput::kReject, IdState::kConnect},
    IdTransition{IdState::kConnect, IdInput::kEstablish, IdState::kConnect},
    IdTransition{IdState::kConnect, IdInput::kNotify, IdState::kConnect},
    IdTransition{IdState::kConnect, IdInput::kDisconnect, IdState::kConnect},
    IdTransition{IdState::kDisconnect, IdInput::kDisconnect, IdState::kDisconnect},
    IdTransition{IdState::kAddrBound, IdInput::kJoinMulticast, IdState::kAddrBound},
    IdTransition{IdState::kAddrResolved, IdInput::kJoinMulticast, IdState::kAddrResolved},
    IdTransition{IdState::kConnect, IdInput::kConnectionEvent, IdState::kConnect},
    IdTransition{IdState::kConnect, IdInput::kDisconnected, IdState::kDisconnect},
    IdTransition{IdState::kDisconnect, IdInput::kTimewaitExit, IdState::kDisconnect},
};

// nullopt: the input does not belong to the state.
constexpr std::optional<IdState> next_state(IdState from, IdInput input) {
  for (const IdTransition& t : kIdTransitions) {
    if (t.from == from && t.input == input) return t.to;
  }
  return std::nullopt;
}

constexpr std::string_view to_string(IdState state) {
  constexpr std::array<std::string_view, kIdStateCount> kNames{"idle",     "bound",          "listen",  "resolving",
                                                               "resolved", "route resolved", "connect", "disconnect"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace ucm::node
