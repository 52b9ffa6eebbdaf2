#include "cm/state_machine.h"

namespace ucm::cm {
namespace {

struct Rule {
  State state;
  Input input;
  Action action;
  State next;
};

// Everything that is not the default of its input (see default_action). A message is impossible where its sender's
// role, or its comm IDs, keep it from reaching a connection in that state.
constexpr Rule kRules[] = {
    {State::kReqHeld, Input::kReq, Action::kImpossible, State::kReqHeld},
    {State::kReqHeld, Input::kRtu, Action::kImpossible, State::kReqHeld},
    {State::kReqHeld, Input::kPeerForgot, Action::kImpossible, State::kReqHeld},
    {State::kReqHeld, Input::kDestroy, Action::kNothing, State::kGone},
    {State::kReqHeld, Input::kTurn, Action::kSendReq, State::kReqSent},
    {State::kReqHeld, Input::kRetriesExhausted, Action::kReportUnreachable, State::kIdle},

    {State::kReqSent, Input::kReq, Action::kImpossible, State::kReqSent},
    {State::kReqSent, Input::kRep, Action::kTakeRep, State::kRepReceived},
    {State::kReqSent, Input::kRepStale, Action::kRejectStaleRep, State::kReqSent},
    {State::kReqSent, Input::kRtu, Action::kImpossible, State::kReqSent},
    {State::kReqSent, Input::kMra, Action::kWaitLonger, State::kMraReqReceived},
    {State::kReqSent, Input::kRej, Action::kReportRejected, State::kIdle},
    {State::kReqSent, Input::kRejStale, Action::kReportRejected, State::kTimewait},
    {State::kReqSent, Input::kPeerForgot, Action::kImpossible, State::kReqSent},
    {State::kReqSent, Input::kDestroy, Action::kSendRejTimeout, State::kGone},
    {State::kReqSent, Input::kRetryDue, Action::kRetry, State::kReqSent},
    {State::kReqSent, Input::kRetriesExhausted, Action::kReportUnreachable, State::kIdle},

    {State::kMraReqReceived, Input::kReq, Action::kImpossible, State::kMraReqReceived},
    {State::kMraReqReceived, Input::kRep, Action::kTakeRep, State::kRepReceived},
    {State::kMraReqReceived, Input::kRepStale, Action::kRejectStaleRep, State::kMraReqReceived},
    {State::kMraReqReceived, Input::kRtu, Action::kImpossible, State::kMraReqReceived},
    {State::kMraReqReceived, Input::kRej, Action::kReportRejected, State::kIdle},
    {State::kMraReqReceived, Input::kRejStale, Action::kReportRejected, State::kTimewait},
    {State::kMraReqReceived, Input::kPeerForgot, Action::kImpossible, State::kMraReqReceived},
    {State::kMraReqReceived, Input::kDestroy, Action::kSendRejTimeout, State::kGone},
    {State::kMraReqReceived, Input::kRetryDue, Action::kRetry, State::kMraReqReceived},
    {State::kMraReqReceived, Input::kRetriesExhausted, Action::kReportUnreachable, State::kIdle},

    {State::kRepReceived, Input::kReq, Action::kImpossible, State::kRepReceived},
    {State::kRepReceived, Input::kRep, Action::kSendMra, State::kRepReceived},
    {State::kRepReceived, Input::kRtu, Action::kImpossible, State::kRepReceived},
    {State::kRepReceived, Input::kMra, Action::kImpossible, State::kRepReceived},
    {State::kRepReceived, Input::kRej, Action::kReportRejected, State::kTimewait},
    {State::kRepReceived, Input::kRejStale, Action::kReportRejected, State::kTimewait},
    // The peer knew by data that this side was ready, and is done already. Linux ignores it, and counts on a connection
    // that is gone where the peer does not ask again.
    {State::kRepReceived, Input::kDreq, Action::kTakeDreq, State::kDreqReceived},
    {State::kRepReceived, Input::kReject, Action::kSendRej, State::kIdle},
    {State::kRepReceived, Input::kEstablish, Action::kSendRtu, State::kEstablished},
    {State::kRepReceived, Input::kDestroy, Action::kSendRej, State::kGone},

    // Nobody has heard of this request, and nobody will when its sender withdraws it.
    {State::kReqQueued, Input::kReq, Action::kSendMra, State::kReqQueued},
    {State::kReqQueued, Input::kRep, Action::kImpossible, State::kReqQueued},
    {State::kReqQueued, Input::kRej, Action::kWithdrawRequest, State::kGone},
    {State::kReqQueued, Input::kRejStale, Action::kWithdrawRequest, State::kGone},
    {State::kReqQueued, Input::kDestroy, Action::kSendRej, State::kGone},
    {State::kReqQueued, Input::kTurn, Action::kReportRequest, State::kReqReceived},

    // The application hears of nothing between the request and accept(), which then fails.  // Linux: same
    {State::kReqReceived, Input::kReq, Action::kSendMra, State::kReqReceived},
    {State::kReqReceived, Input::kRep, Action::kImpossible, State::kReqReceived},
    {State::kReqReceived, Input::kRej, Action::kWithdrawRequest, State::kIdle},
    {State::kReqReceived, Input::kRejStale, Action::kWithdrawRequest, State::kTimewait},
    {State::kReqReceived, Input::kAccept, Action::kSendRep, State::kRepSent},
    {State::kReqReceived, Input::kReject, Action::kSendRej, State::kIdle},
    {State::kReqReceived, Input::kDestroy, Action::kSendRej, State::kGone},

    // A repeated REQ says that the REP was lost. Linux waits for its own timer; a Linux peer takes the REP gladly.
    {State::kRepSent, Input::kReq, Action::kResend, State::kRepSent},
    {State::kRepSent, Input::kRep, Action::kImpossible, State::kRepSent},
    {State::kRepSent, Input::kRtu, Action::kReportEstablished, State::kEstablished},
    {State::kRepSent, Input::kMra, Action::kWaitLonger, State::kMraRepReceived},
    {State::kRepSent, Input::kRej, Action::kReportRejected, State::kIdle},
    {State::kRepSent, Input::kRejStale, Action::kReportRejected, State::kTimewait},
    {State::kRepSent, Input::kDreq, Action::kTakeDreq, State::kDreqReceived},
    {State::kRepSent, Input::kReject, Action::kSendRej, State::kTimewait},
    {State::kRepSent, Input::kNotify, Action::kReportEstablished, State::kEstablished},
    {State::kRepSent, Input::kDestroy, Action::kSendRej, State::kGone},
    {State::kRepSent, Input::kRetryDue, Action::kRetry, State::kRepSent},
    {State::kRepSent, Input::kRetriesExhausted, Action::kReportUnreachable, State::kIdle},

    {State::kMraRepReceived, Input::kRep, Action::kImpossible, State::kMraRepReceived},
    {State::kMraRepReceived, Input::kRtu, Action::kReportEstablished, State::kEstablished},
    {State::kMraRepReceived, Input::kRej, Action::kReportRejected, State::kIdle},
    {State::kMraRepReceived, Input::kRejStale, Action::kReportRejected, State::kTimewait},
    {State::kMraRepReceived, Input::kDreq, Action::kTakeDreq, State::kDreqReceived},
    {State::kMraRepReceived, Input::kReject, Action::kSendRej, State::kTimewait},
    {State::kMraRepReceived, Input::kNotify, Action::kReportEstablished, State::kEstablished},
    {State::kMraRepReceived, Input::kDestroy, Action::kSendRej, State::kGone},
    {State::kMraRepReceived, Input::kRetryDue, Action::kRetry, State::kMraRepReceived},
    {State::kMraRepReceived, Input::kRetriesExhausted, Action::kReportUnreachable, State::kIdle},

    {State::kEstablished, Input::kRep, Action::kSendRtu, State::kEstablished},
    {State::kEstablished, Input::kRej, Action::kReportRejected, State::kTimewait},
    {State::kEstablished, Input::kRejStale, Action::kReportRejected, State::kTimewait},
    {State::kEstablished, Input::kDreq, Action::kTakeDreq, State::kDreqReceived},
    {State::kEstablished, Input::kPeerForgot, Action::kSendDreq, State::kDreqSent},
    {State::kEstablished, Input::kNotify, Action::kRefuseConnected, State::kEstablished},
    {State::kEstablished, Input::kDisconnect, Action::kSendDreq, State::kDreqSent},
    // Linux sends this DREQ once, and its peer stays connected when it is lost.
    {State::kEstablished, Input::kDestroy, Action::kSendDreq, State::kOrphaned},

    // Linux goes to DREQ_RCVD on the crossing DREQ and drops the peer's repetitions until the application, which has
    // asked for the end already, asks again. UCM answers; Linux takes the DREP in DREQ_SENT and in DREQ_RCVD alike.
    // A REP says that neither RTU nor DREQ has come. Linux waits for its own timer.
    {State::kDreqSent, Input::kRep, Action::kResend, State::kDreqSent},
    {State::kDreqSent, Input::kRej, Action::kReportRejected, State::kTimewait},
    {State::kDreqSent, Input::kRejStale, Action::kReportRejected, State::kTimewait},
    {State::kDreqSent, Input::kDreq, Action::kTakeCrossingDreq, State::kTimewait},
    {State::kDreqSent, Input::kDrep, Action::kReportDisconnected, State::kTimewait},
    {State::kDreqSent, Input::kDestroy, Action::kNothing, State::kOrphaned},  // Linux: gone
    {State::kDreqSent, Input::kRetryDue, Action::kRetry, State::kDreqSent},
    {State::kDreqSent, Input::kRetriesExhausted, Action::kReportDisconnectTimeout, State::kTimewait},

    {State::kDreqReceived, Input::kDrep, Action::kNothing, State::kTimewait},
    {State::kDreqReceived, Input::kDisconnect, Action::kSendDrep, State::kTimewait},
    {State::kDreqReceived, Input::kDestroy, Action::kSendDrep, State::kGone},

    {State::kTimewait, Input::kReq, Action::kImpossible, State::kTimewait},
    {State::kTimewait, Input::kDreq, Action::kSendDrep, State::kTimewait},
    {State::kTimewait, Input::kPeerForgot, Action::kImpossible, State::kTimewait},
    {State::kTimewait, Input::kDestroy, Action::kNothing, State::kGone},
    {State::kTimewait, Input::kTimewaitOver, Action::kReportTimewaitExit, State::kIdle},

    // Linux drops a DREQ here, and the peer waits for its timeout; after destroy it would be answered.
    {State::kIdle, Input::kReq, Action::kImpossible, State::kIdle},
    {State::kIdle, Input::kDreq, Action::kSendDrep, State::kIdle},
    {State::kIdle, Input::kPeerForgot, Action::kImpossible, State::kIdle},
    {State::kIdle, Input::kDestroy, Action::kNothing, State::kGone},

    // Timewait is for the application's QP, and nobody waits for its end here.
    {State::kOrphaned, Input::kReq, Action::kImpossible, State::kOrphaned},
    {State::kOrphaned, Input::kRej, Action::kNothing, State::kGone},
    {State::kOrphaned, Input::kRejStale, Action::kNothing, State::kGone},
    {State::kOrphaned, Input::kDreq, Action::kSendDrep, State::kGone},
    {State::kOrphaned, Input::kDrep, Action::kNothing, State::kGone},
    {State::kOrphaned, Input::kPeerForgot, Action::kImpossible, State::kOrphaned},
    {State::kOrphaned, Input::kAccept, Action::kImpossible, State::kOrphaned},
    {State::kOrphaned, Input::kReject, Action::kImpossible, State::kOrphaned},
    {State::kOrphaned, Input::kEstablish, Action::kImpossible, State::kOrphaned},
    {State::kOrphaned, Input::kNotify, Action::kImpossible, State::kOrphaned},
    {State::kOrphaned, Input::kDisconnect, Action::kImpossible, State::kOrphaned},
    {State::kOrphaned, Input::kRetryDue, Action::kRetry, State::kOrphaned},
    {State::kOrphaned, Input::kRetriesExhausted, Action::kGiveUpOrphan, State::kGone},
};

constexpr Action default_action(Input input) {
  switch (input) {
    case Input::kReq:
    case Input::kRep:
    case Input::kRtu:
    case Input::kMra:
    case Input::kRej:
    case Input::kRejStale:
    case Input::kDreq:
    case Input::kDrep:
    case Input::kPeerForgot:
      return Action::kIgnore;
    case Input::kAccept:
    case Input::kReject:
    case Input::kEstablish:
    case Input::kNotify:
      return Action::kRefuse;
    case Input::kDisconnect:
      return Action::kNothing;
    case Input::kRepStale:
    case Input::kDestroy:
    case Input::kTurn:
    case Input::kRetryDue:
    case Input::kRetriesExhausted:
    case Input::kTimewaitOver:
      return Action::kImpossible;
  }
  return Action::kImpossible;
}

constexpr std::size_t at(State state) { return static_cast<std::size_t>(state); }
constexpr std::size_t at(Input input) { return static_cast<std::size_t>(input); }

using Table = std::array<std::array<Transition, kInputCount>, kStateCount>;

consteval Table build_table() {
  Table table{};
  for (std::size_t s = 0; s < kStateCount; ++s) {
    for (std::size_t i = 0; i < kInputCount; ++i) {
      table[s][i] = {default_action(static_cast<Input>(i)), static_cast<State>(s)};
    }
  }
  std::array<std::array<bool, kInputCount>, kStateCount> ruled{};
  for (const Rule& rule : kRules) {
    if (ruled[at(rule.state)][at(rule.input)]) throw "two rules for one cell";
    ruled[at(rule.state)][at(rule.input)] = true;
    table[at(rule.state)][at(rule.input)] = {rule.action, rule.next};
  }
  return table;
}

constexpr Table kTable = build_table();

// A handle that the application has stays valid until it destroys it.
consteval bool only_destroy_takes_the_handle() {
  for (std::size_t s = 0; s < kStateCount; ++s) {
    const bool handle_known = has_handle(static_cast<State>(s)) && s != at(State::kReqQueued);
    for (std::size_t i = 0; handle_known && i < kInputCount; ++i) {
      if (has_handle(kTable[s][i].next) == (i == at(Input::kDestroy))) return false;
    }
  }
  return true;
}
static_assert(only_destroy_takes_the_handle());

constexpr std::array<std::string_view, kStateCount + 1> kStateNames = {
    "req_held",     "req_sent",         "mra_req_received",
    "rep_received", "req_queued",       "req_received",
    "rep_sent",     "mra_rep_received", "established",
    "dreq_sent",    "dreq_received",    "timewait",
    "idle",         "orphaned",         "gone"};
constexpr std::array<std::string_view, kInputCount> kInputNames = {"req",
                                                                   "rep",
                                                                   "rep_stale",
                                                                   "rtu",
                                                                   "mra",
                                                                   "rej",
                                                                   "rej_stale",
                                                                   "dreq",
                                                                   "drep",
                                                                   "peer_forgot",
                                                                   "accept",
                                                                   "reject",
                                                                   "establish",
                                                                   "notify",
                                                                   "disconnect",
                                                                   "destroy",
                                                                   "turn",
                                                                   "retry_due",
                                                                   "retries_exhausted",
                                                                   "timewait_over"};
constexpr std::array<std::string_view, kActionCount> kActionNames = {"ignore",
                                                                     "nothing",
                                                                     "refuse",
                                                                     "refuse_connected",
                                                                     "impossible",
                                                                     "take_rep",
                                                                     "reject_stale_rep",
                                                                     "wait_longer",
                                                                     "withdraw_request",
                                                                     "send_req",
                                                                     "send_mra",
                                                                     "send_rep",
                                                                     "send_rtu",
                                                                     "resend",
                                                                     "retry",
                                                                     "send_rej",
                                                                     "send_rej_timeout",
                                                                     "send_dreq",
                                                                     "send_drep",
                                                                     "take_dreq",
                                                                     "take_crossing_dreq",
                                                                     "report_request",
                                                                     "report_established",
                                                                     "report_rejected",
                                                                     "report_unreachable",
                                                                     "report_disconnected",
                                                                     "report_disconnect_timeout",
                                                                     "report_timewait_exit",
                                                                     "give_up_orphan"};

}  // namespace

const Transition& transition(State state, Input input) { return kTable[at(state)][at(input)]; }

std::string_view name(State state) { return kStateNames[at(state)]; }
std::string_view name(Input input) { return kInputNames[at(input)]; }
std::string_view name(Action action) { return kActionNames[static_cast<std::size_t>(action)]; }

}  // namespace ucm::cm
