// Which state transitions a QP may make, and which attributes each must and may set. IBTA 11.2.5.2.
#pragma once

#include <array>
#include <cstdint>

#include "roce/engine.h"

namespace ucm::roce {

struct TransitionMasks {
  std::uint32_t required = 0;
  std::uint32_t optional = 0;
};

struct Transition {
  QpState from;
  QpState to;
  TransitionMasks rc;
  TransitionMasks uc;
  TransitionMasks ud;

  // An XRC queue pair has what of RC its direction needs.
  constexpr TransitionMasks of(QpType type) const {
    constexpr std::uint32_t kForReceiving = kQpMaxDestRdAtomic | kQpMinRnrTimer;
    constexpr std::uint32_t kForSending = kQpRetryCount | kQpRnrRetry | kQpMaxRdAtomic;
    switch (type) {
      case QpType::kUc:
        return uc;
      case QpType::kUd:
        return ud;
      case QpType::kXrcSend:
        return {.required = rc.required & ~kForReceiving, .optional = rc.optional & ~kForReceiving};
      case QpType::kXrcRecv:
        return {.required = rc.required & ~kForSending, .optional = rc.optional & ~kForSending};
      default:
        return rc;
    }
  }
};

// Every state may also go to RESET and to ERR, with no attributes. P_Key index and port are not held by this device.
// The path MTU of a UD QP is the port's, which its owner tells.
inline constexpr std::array kTransitions = {
    Transition{
        QpState::kReset, QpState::kInit, {.required = kQpAccess}, {.required = kQpAccess}, {.required = kQpQkey}},
    Transition{QpState::kInit, QpState::kInit, {.optional = kQpAccess}, {.optional = kQpAccess}, {.optional = kQpQkey}},
    Transition{QpState::kInit,
               QpState::kRtr,
               {.required = kQpAddress | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
                .optional = kQpAccess},
               {.required = kQpAddress | kQpPathMtu | kQpDestQpn | kQpRqPsn, .optional = kQpAccess},
               {.optional = kQpQkey | kQpPathMtu}},
    Transition{QpState::kRtr,
               QpState::kRts,
               {.required = kQpTimeout | kQpRetryCount | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic,
                .optional = kQpAccess | kQpMinRnrTimer},
               {.required = kQpSqPsn, .optional = kQpAccess},
               {.required = kQpSqPsn, .optional = kQpQkey}},
    Transition{QpState::kRts,
               QpState::kRts,
               {.optional = kQpAccess | kQpMinRnrTimer},
               {.optional = kQpAccess},
               {.optional = kQpQkey}},
    Transition{QpState::kRts, QpState::kSqd, {}, {}, {}},
    Transition{QpState::kSqd,
               QpState::kSqd,
               {.optional = kQpAccess | kQpMinRnrTimer | kQpTimeout | kQpRetryCount | kQpRnrRetry},
               {.optional = kQpAccess},
               {.optional = kQpQkey}},
    Transition{QpState::kSqd,
               QpState::kRts,
               {.optional = kQpAccess | kQpMinRnrTimer},
               {.optional = kQpAccess},
               {.optional = kQpQkey}},
    Transition{QpState::kSqe, QpState::kRts, {}, {.optional = kQpAccess}, {.optional = kQpQkey}},
};

// Whether a QP of `type` may go from `from` to `to` setting exactly the attributes in `mask` (kQpState itself aside).
constexpr bool transition_is_legal(QpType type, QpState from, QpState to, std::uint32_t mask) {
  mask &= ~std::uint32_t{kQpState};
  if (to == QpState::kReset || to == QpState::kErr) return mask == 0;
  for (const Transition& transition : kTransitions) {
    if (transition.from != from || transition.to != to) continue;
    const TransitionMasks masks = transition.of(type);
    return (mask & masks.required) == masks.required && (mask & ~(masks.required | masks.optional)) == 0;
  }
  return false;
}

}  // namespace ucm::roce
