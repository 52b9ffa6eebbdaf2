// The state machine of a SIDR exchange as a table, as state_machine.h is for connections. IBTA 12.11; Linux keeps no
// answer, UCM does for as long as the peer may ask again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ucm::cm {

enum class SidrState : std::uint8_t {
  kReqSent,      // active: SIDR_REQ is repeated until its answer comes
  kReqReceived,  // passive: the application has the request
  kRepSent,      // passive: the answer is kept; a repeated request says that it was lost
  kIdle,         // over; the handle is still the application's
  kGone,         // destroyed. Only a next state, not a row of the table
};
inline constexpr std::size_t kSidrStateCount = 4;  // rows

enum class SidrInput : std::uint8_t {
  // Messages that belong to this exchange.
  kReq,         // repeated; the first one makes the exchange
  kRep,         // with a QP and the right Q_Key
  kRepBadQkey,  // with a Q_Key that the own QP cannot use
  kRepRefused,  // with a status other than 0
  // The application.
  kAccept,
  kReject,
  kDestroy,
  // The clock.
  kRetryDue,
  kRetriesExhausted,
  kPeerSatisfied,  // the peer has stopped asking by now
};
inline constexpr std::size_t kSidrInputCount = 10;

enum class SidrAction : std::uint8_t {
  kIgnore,      // a message out of place: counted
  kNothing,     // nothing to do but to enter the next state
  kRefuse,      // a command out of place: EINVAL
  kImpossible,  // cannot happen; the engine checks
  kSendRep,
  kSendRefusal,  // SIDR_REP with status 2
  kResend,       // the answer, once more
  kRetry,        // the request, one try less
  kReportReply,
  kReportBadQkey,
  kReportRefused,
  kReportUnreachable,
};
inline constexpr std::size_t kSidrActionCount = 12;

struct SidrTransition {
  SidrAction action = SidrAction::kIgnore;
  SidrState next = SidrState::kIdle;
};

// `state` is not kGone.
const SidrTransition& transition(SidrState state, SidrInput input);

std::string_view name(SidrState state);
std::string_view name(SidrInput input);
std::string_view name(SidrAction action);

// docs/cm-state-machine.md: the diagram and the whole matrix.
std::string describe_sidr_state_machine();

}  // namespace ucm::cm
