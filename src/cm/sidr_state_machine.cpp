#include "cm/sidr_state_machine.h"

#include <array>

namespace ucm::cm {
namespace {

using enum SidrAction;
using State = SidrState;

constexpr std::size_t at(SidrState state) { return static_cast<std::size_t>(state); }
constexpr std::size_t at(SidrInput input) { return static_cast<std::size_t>(input); }

// Columns in the order of SidrInput. An own request ID never reaches a passive exchange, a peer's never an active one,
// and an exchange that is over is not found by the peer's any more.
using Row = std::array<SidrTransition, kSidrInputCount>;

constexpr SidrTransition stay(SidrState state, SidrAction action) { return {action, state}; }

constexpr Row kReqSentRow = {{
    stay(State::kReqSent, kImpossible),  // req
    {kReportReply, State::kIdle},
    {kReportBadQkey, State::kIdle},
    {kReportRefused, State::kIdle},
    stay(State::kReqSent, kRefuse),  // accept
    stay(State::kReqSent, kRefuse),  // reject
    {kNothing, State::kGone},
    stay(State::kReqSent, kRetry),
    {kReportUnreachable, State::kIdle},
    stay(State::kReqSent, kImpossible),  // peer_satisfied
}};

constexpr Row kReqReceivedRow = {{
    stay(State::kReqReceived, kIgnore),      // req: the application will answer
    stay(State::kReqReceived, kImpossible),  // rep
    stay(State::kReqReceived, kImpossible),  // rep_bad_qkey
    stay(State::kReqReceived, kImpossible),  // rep_refused
    {kSendRep, State::kRepSent},
    {kSendRefusal, State::kRepSent},
    {kSendRefusal, State::kGone},
    stay(State::kReqReceived, kImpossible),  // retry_due
    stay(State::kReqReceived, kImpossible),  // retries_exhausted
    stay(State::kReqReceived, kImpossible),  // peer_satisfied
}};

// Linux forgets the exchange with its answer, and the application hears of the repeated request as of a new one.
constexpr Row kRepSentRow = {{
    stay(State::kRepSent, kResend),
    stay(State::kRepSent, kImpossible),  // rep
    stay(State::kRepSent, kImpossible),  // rep_bad_qkey
    stay(State::kRepSent, kImpossible),  // rep_refused
    stay(State::kRepSent, kRefuse),      // accept
    stay(State::kRepSent, kRefuse),      // reject
    {kNothing, State::kGone},
    stay(State::kRepSent, kImpossible),  // retry_due
    stay(State::kRepSent, kImpossible),  // retries_exhausted
    {kNothing, State::kIdle},
}};

constexpr Row kIdleRow = {{
    stay(State::kIdle, kImpossible),  // req
    stay(State::kIdle, kIgnore),      // rep
    stay(State::kIdle, kIgnore),      // rep_bad_qkey
    stay(State::kIdle, kIgnore),      // rep_refused
    stay(State::kIdle, kRefuse),      // accept
    stay(State::kIdle, kRefuse),      // reject
    {kNothing, State::kGone},
    stay(State::kIdle, kImpossible),  // retry_due
    stay(State::kIdle, kImpossible),  // retries_exhausted
    stay(State::kIdle, kImpossible),  // peer_satisfied
}};

constexpr std::array<Row, kSidrStateCount> kTable = {kReqSentRow, kReqReceivedRow, kRepSentRow, kIdleRow};

constexpr bool destroy_always_ends_in_gone() {
  for (const Row& row : kTable) {
    for (std::size_t i = 0; i < kSidrInputCount; ++i) {
      if ((row[i].next == State::kGone) != (i == at(SidrInput::kDestroy))) return false;
    }
  }
  return true;
}
static_assert(destroy_always_ends_in_gone());

constexpr std::array<std::string_view, kSidrStateCount + 1> kStateNames = {"sidr_req_sent", "sidr_req_received",
                                                                           "sidr_rep_sent", "sidr_idle", "sidr_gone"};
constexpr std::array<std::string_view, kSidrInputCount> kInputNames = {
    "sidr_req", "sidr_rep", "rep_bad_qkey", "rep_refused",       "accept",
    "reject",   "destroy",  "retry_due",    "retries_exhausted", "peer_satisfied"};
constexpr std::array<std::string_view, kSidrActionCount> kActionNames = {
    "ignore", "nothing", "refuse",       "impossible",      "send_rep",       "send_refusal",
    "resend", "retry",   "report_reply", "report_bad_qkey", "report_refused", "report_unreachable"};

}  // namespace

const SidrTransition& transition(SidrState state, SidrInput input) { return kTable[at(state)][at(input)]; }

std::string_view name(SidrState state) { return kStateNames[at(state)]; }
std::string_view name(SidrInput input) { return kInputNames[at(input)]; }
std::string_view name(SidrAction action) { return kActionNames[static_cast<std::size_t>(action)]; }

}  // namespace ucm::cm
