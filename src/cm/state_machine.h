// The connection's state machine as a table: state x input -> action, next state. One table serves both roles; what
// only one side can receive (REQ and RTU the passive, REP the active) is sorted out before the table is asked.
//
// It is the state machine of IBTA 12.9.5 to 12.9.8 as Linux plays it; where UCM does better, the rule says so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ucm::cm {

enum class State : std::uint8_t {
  // Active side.
  kReqHeld,         // enough REQs to this peer are under way: this one is sent when its turn comes
  kReqSent,         // REQ is repeated until something comes back
  kMraReqReceived,  // the peer asked for patience
  kRepReceived,     // the application has the REP; a repeated one is answered with MRA  // Linux: MRA_REP_SENT
  // Passive side.
  kReqQueued,       // the application has enough to read: it hears of this REQ when its turn comes
  kReqReceived,     // the application has the REQ; a repeated one is answered with MRA  // Linux: MRA_REQ_SENT
  kRepSent,         // REP is repeated until RTU
  kMraRepReceived,  // the peer asked for patience
  // Both.
  kEstablished,
  kDreqSent,
  kDreqReceived,  // the application has to answer with disconnect() or destroy()
  kTimewait,      // packets of the connection may still be on their way
  kIdle,          // over; the handle is still the application's
  kOrphaned,      // destroyed, and DREQ is repeated until the peer answers: no handle and no event any more
  kGone,          // destroyed. Only a next state, not a row of the table
};
inline constexpr std::size_t kStateCount = 14;  // rows

enum class Input : std::uint8_t {
  // Messages that belong to this connection.
  kReq,  // repeated; the first one makes the connection
  kRep,
  kRepStale,  // REP with a QP that another live connection already has as its peer
  kRtu,
  kMra,
  kRej,
  kRejStale,  // reason 10
  kDreq,
  kDrep,
  // The peer uses this connection's remote QP for another one: it knows nothing of this one any more.
  kPeerForgot,
  // The application.
  kAccept,
  kReject,
  kEstablish,
  kNotify,
  kDisconnect,
  kDestroy,
  // What a REQ was held or queued for.
  kTurn,
  // The clock.
  kRetryDue,
  kRetriesExhausted,
  kTimewaitOver,
};
inline constexpr std::size_t kInputCount = 20;

enum class Action : std::uint8_t {
  kIgnore,           // a message out of place: counted
  kNothing,          // a command that has nothing to do here
  kRefuse,           // a command out of place: EINVAL
  kRefuseConnected,  // EISCONN
  kImpossible,       // cannot happen; the engine checks
  kTakeRep,          // learn the peer from REP, report kConnectResponse
  kRejectStaleRep,   // REJ 10
  kWaitLonger,       // the peer's MRA sets the interval
  kWithdrawRequest,  // the peer gives up before accept(): the application learns it from accept(), if at all
  kSendReq,
  kSendMra,
  kSendRep,
  kSendRtu,
  kResend,  // the message sent last, without counting it as a retry
  kRetry,   // the message sent last, one try less
  kSendRej,
  kSendRejTimeout,  // REJ 4: the request is withdrawn
  kSendDreq,
  kSendDrep,
  kTakeDreq,          // report kDisconnected; the application answers
  kTakeCrossingDreq,  // report kDisconnected and answer: the application has asked for it already
  kReportRequest,
  kReportEstablished,
  kReportRejected,
  kReportUnreachable,
  kReportDisconnected,
  kReportDisconnectTimeout,
  kReportTimewaitExit,
  kGiveUpOrphan,  // nobody answers, and nobody is there to be told: counted
};
inline constexpr std::size_t kActionCount = 29;

struct Transition {
  Action action = Action::kIgnore;
  State next = State::kIdle;
};

// `state` is not kGone.
const Transition& transition(State state, Input input);

// Lower-case names with underscores, as status, traces and documentation show them.
std::string_view name(State state);
std::string_view name(Input input);
std::string_view name(Action action);

// A message is sent again and again in this state.
constexpr bool retransmits(State state) {
  return state == State::kReqSent || state == State::kMraReqReceived || state == State::kRepSent ||
         state == State::kMraRepReceived || state == State::kDreqSent || state == State::kOrphaned;
}
// The application has a handle, or will get one.
constexpr bool has_handle(State state) { return state < State::kOrphaned; }
// The peer's comm ID and QP are taken by the connection. An orphan is in the way of nothing new.
constexpr bool occupies_peer(State state) { return state < State::kTimewait; }

// docs/cm-state-machine.md: the diagram and the whole matrix.
std::string describe_state_machine();

}  // namespace ucm::cm
