// Every cell of the state machine's table, on the real engine; and the tables as docs/cm-state-machine.md shows them.
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "cm/sidr_state_machine.h"
#include "cm/state_machine.h"
#include "harness.h"

namespace ucm::cm {
namespace {

using wire::Attribute;

// What an action sends and reports. `message` is what the state repeats.
struct Effect {
  std::vector<Attribute> packets;
  std::vector<EventType> events;
  int error = 0;
};

Effect effect_of(Action action, Attribute message) {
  switch (action) {
    case Action::kIgnore:
    case Action::kNothing:
    case Action::kWaitLonger:
    case Action::kWithdrawRequest:
    case Action::kGiveUpOrphan:
      return {};
    case Action::kRefuse:
      return {.packets = {}, .events = {}, .error = EINVAL};
    case Action::kRefuseConnected:
      return {.packets = {}, .events = {}, .error = EISCONN};
    case Action::kImpossible:
      ADD_FAILURE() << "an impossible cell was reached";
      return {};
    case Action::kTakeRep:
      return {.packets = {}, .events = {EventType::kConnectResponse}};
    case Action::kRejectStaleRep:
    case Action::kSendRej:
    case Action::kSendRejTimeout:
      return {.packets = {Attribute::kRej}, .events = {}};
    case Action::kSendReq:
      return {.packets = {Attribute::kReq}, .events = {}};
    case Action::kReportRequest:
      return {.packets = {}, .events = {EventType::kConnectRequest}};
    case Action::kSendMra:
      return {.packets = {Attribute::kMra}, .events = {}};
    case Action::kSendRep:
      return {.packets = {Attribute::kRep}, .events = {}};
    case Action::kSendRtu:
      return {.packets = {Attribute::kRtu}, .events = {}};
    case Action::kResend:
    case Action::kRetry:
      return {.packets = {message}, .events = {}};
    case Action::kSendDreq:
      return {.packets = {Attribute::kDreq}, .events = {}};
    case Action::kSendDrep:
      return {.packets = {Attribute::kDrep}, .events = {}};
    case Action::kTakeDreq:
      return {.packets = {}, .events = {EventType::kDisconnected}};
    case Action::kTakeCrossingDreq:
      return {.packets = {Attribute::kDrep}, .events = {EventType::kDisconnected}};
    case Action::kReportEstablished:
      return {.packets = {}, .events = {EventType::kEstablished}};
    case Action::kReportRejected:
      return {.packets = {}, .events = {EventType::kRejected}};
    case Action::kReportUnreachable:
      return {.packets = {}, .events = {EventType::kUnreachable}};
    case Action::kReportDisconnected:
    case Action::kReportDisconnectTimeout:
      return {.packets = {}, .events = {EventType::kDisconnected}};
    case Action::kReportTimewaitExit:
      return {.packets = {}, .events = {EventType::kTimewaitExit}};
  }
  return {};
}

constexpr State kActiveStates[] = {State::kReqHeld,     State::kReqSent,  State::kMraReqReceived, State::kRepReceived,
                                   State::kEstablished, State::kDreqSent, State::kDreqReceived,   State::kTimewait,
                                   State::kIdle,        State::kOrphaned};
constexpr State kPassiveStates[] = {
    State::kReqQueued, State::kReqReceived,  State::kRepSent,  State::kMraRepReceived, State::kEstablished,
    State::kDreqSent,  State::kDreqReceived, State::kTimewait, State::kIdle,           State::kOrphaned};

class Cell : public CmTest {
 public:
  explicit Cell(const Config& config) : CmTest(config) {}
  void TestBody() override {}

  // Brings a fresh engine to `state`, applies `input`, and compares with the table. False when the input cannot be
  // made for this role.
  bool exercise(State from, bool active, Input input) {
    reach(from, active);
    const bool peer_known = from == State::kOrphaned || engine.qp_parameters(id)->dest_known;
    EXPECT_EQ(state(), from);
    const Transition& cell = transition(from, input);
    const Attribute message = from == State::kDreqSent || from == State::kOrphaned        ? Attribute::kDreq
                              : from == State::kRepSent || from == State::kMraRepReceived ? Attribute::kRep
                                                                                          : Attribute::kReq;
    if (from == State::kReqReceived || from == State::kReqQueued) own_comm_id = own_comm_id_from_mra();
    const std::uint64_t ignored = engine.counters().ignored;
    error_ = 0;
    if (!apply(from, active, peer_known, input)) return false;
    const Effect expected = effect_of(cell.action, message);
    EXPECT_EQ(state(), cell.next);
    EXPECT_EQ(error_, expected.error);
    std::vector<Attribute> seen_packets;
    for (const auto& packet : packets()) {
      if (load_be32(&packet.mad[wire::MadHeader::kSize]) == own_comm_id) {
        seen_packets.push_back(header_of(packet).attribute);
      }
    }
    std::vector<EventType> seen_events;
    for (const auto& e : events()) {
      if (e.connection == id) seen_events.push_back(e.type);
    }
    EXPECT_EQ(seen_packets, expected.packets);
    EXPECT_EQ(seen_events, expected.events);
    // A stale REP is news for the half-open connection that has its QP, too, which ignores it.
    const bool counted = cell.action == Action::kIgnore || input == Input::kRepStale;
    EXPECT_EQ(engine.counters().ignored - ignored, counted ? 1u : 0u);
    return true;
  }

 private:
  bool apply(State from, bool active, bool peer_known, Input input) {
    const auto from_peer = [&](auto m) {
      if (!peer_known) m.local_comm_id = 0;
      deliver(m);
    };
    const bool command_given = input >= Input::kAccept && input <= Input::kDestroy;
    if (command_given && !has_handle(from)) return false;
    switch (input) {
      case Input::kReq:
        if (active || !occupies_peer(from)) return false;
        deliver(req());
        return true;
      case Input::kRep:
        if (!active) return false;
        if (!occupies_peer(from)) return rep_after_the_end(from);
        deliver(rep());
        return true;
      case Input::kRepStale:
        return active && !peer_known && from != State::kReqHeld && stale_rep();
      case Input::kRtu:
        if (active) return false;
        deliver(answer<wire::Rtu>());
        return true;
      case Input::kMra:
        if (active && peer_known) return false;
        deliver(mra(active ? wire::MessageKind::kReq : wire::MessageKind::kRep, 20));
        return true;
      case Input::kRej:
      case Input::kRejStale: {
        const auto reason =
            input == Input::kRej ? wire::RejReason::kConsumerDefined : wire::RejReason::kStaleConnection;
        deliver(rej(peer_known ? wire::MessageKind::kOther : wire::MessageKind::kReq, reason));
        return true;
      }
      case Input::kDreq:
        from_peer(dreq_for(from == State::kOrphaned ? kOwnQpn : engine.qp_parameters(id)->local_qpn));
        return true;
      case Input::kDrep:
        from_peer(answer<wire::Drep>());
        return true;
      case Input::kPeerForgot:
        return peer_known && occupies_peer(from) && peer_forgets();
      case Input::kAccept:
        return command(engine.accept(now, id, accept_params()));
      case Input::kReject:
        return command(engine.reject(now, id, {}));
      case Input::kEstablish:
        return command(engine.establish(now, id));
      case Input::kNotify:
        return command(engine.notify_established(now, id));
      case Input::kDisconnect:
        engine.disconnect(now, id);
        return true;
      case Input::kDestroy:
        engine.destroy(now, id);
        return true;
      case Input::kTurn:
        if (from == State::kReqHeld) {
          engine.destroy(now, others.front());
        } else if (from == State::kReqQueued) {
          engine.request_taken(now, others.front());
        } else {
          return false;
        }
        return true;
      case Input::kRetryDue:
        return retransmits(from) && deadline();
      case Input::kRetriesExhausted:
        if (!retransmits(from) && from != State::kReqHeld) return false;
        now += 3600 * kSecond;  // every budget is over
        engine.on_deadline(now);
        return true;
      case Input::kTimewaitOver:
        return from == State::kTimewait && deadline();
    }
    return false;
  }

  bool command(const Result<void>& result) {
    if (!result) error_ = result.error().code;
    return true;
  }
  bool deadline() {
    now = engine.next_deadline();
    engine.on_deadline(now);
    return true;
  }
  wire::Dreq dreq_for(std::uint32_t qpn) const {
    auto m = dreq();
    m.remote_qpn = qpn;
    return m;
  }
  std::uint32_t own_comm_id_from_mra() {
    deliver(req());
    return sent<wire::Mra>().local_comm_id;
  }
  // A REP can meet an ended connection only where no REP has come before, after a rejection; or where the peer uses its
  // comm ID for another connection already.
  bool rep_after_the_end(State from) {
    if (from == State::kOrphaned) {
      const auto [orphan, comm_id] = std::pair(id, own_comm_id);
      request();
      drain();
      std::tie(id, own_comm_id) = std::pair(orphan, comm_id);
      deliver(rep());
      return true;
    }
    connect();
    deliver(rej(wire::MessageKind::kReq,
                from == State::kTimewait ? wire::RejReason::kStaleConnection : wire::RejReason::kConsumerDefined));
    drain();
    deliver(rep());
    return true;
  }
  // Another, half-open connection has the QP of the REP.
  bool stale_rep() {
    const ConnectionId connecting = id;
    const std::uint32_t comm_id = own_comm_id;
    request();
    id = connecting;
    own_comm_id = comm_id;
    auto m = rep();
    m.local_comm_id = kPeerCommId + 1;
    deliver(m);
    return true;
  }
  // The peer asks for a new connection with the QP it has in this one; the request itself is rejected.
  bool peer_forgets() {
    if (listener == ListenerId{}) listen();
    auto m = req();
    m.local_comm_id = kPeerCommId + 1;
    deliver(m);
    const auto rejection = engine.poll_packet();
    EXPECT_TRUE(rejection && header_of(*rejection).attribute == Attribute::kRej);
    return true;
  }

  int error_ = 0;
};

TEST(StateMachine, EveryCellDoesWhatTheTableSaysOrIsImpossible) {  // Field case 6.03
  std::set<std::pair<State, Input>> exercised;
  const auto exercise_all = [&](std::span<const State> states, bool active) {
    for (const State state : states) {
      for (std::size_t i = 0; i < kInputCount; ++i) {
        const auto input = static_cast<Input>(i);
        SCOPED_TRACE(std::string(name(state)) + " x " + std::string(name(input)) + (active ? ", active" : ", passive"));
        Config config{.random_key = {1, 2}};
        // What is under way stays so, and what is held stays held, until the budget of all ends.
        if (state == State::kReqHeld) config.recovery.first_contact = 100 * kSecond;
        Cell cell(config);
        if (cell.exercise(state, active, input)) exercised.insert({state, input});
      }
    }
  };
  exercise_all(kActiveStates, true);
  exercise_all(kPassiveStates, false);
  for (std::size_t s = 0; s < kStateCount; ++s) {
    for (std::size_t i = 0; i < kInputCount; ++i) {
      const auto state = static_cast<State>(s);
      const auto input = static_cast<Input>(i);
      const bool possible = transition(state, input).action != Action::kImpossible;
      EXPECT_EQ(exercised.contains({state, input}), possible) << name(state) << " x " << name(input);
    }
  }
}

// Field case 1.11
TEST(StateMachine, NothingIsUnreachableOnceItIsEstablished) {
  const std::set connecting{State::kReqHeld, State::kReqSent, State::kMraReqReceived, State::kRepSent,
                            State::kMraRepReceived};
  for (std::size_t s = 0; s < kStateCount; ++s) {
    for (std::size_t i = 0; i < kInputCount; ++i) {
      const auto state = static_cast<State>(s);
      const Action action = transition(state, static_cast<Input>(i)).action;
      EXPECT_TRUE(action != Action::kReportUnreachable || connecting.contains(state)) << name(state);
    }
  }
}

std::string document() {
  return "# The CM state machine\n\n"
         "What a connection does in every state with every input: the table of `src/cm/state_machine.cpp`, printed; "
         "after it that of\na SIDR exchange, `src/cm/sidr_state_machine.cpp`. Tests compare this page with the tables "
         "(`UCM_UPDATE_GOLDEN=1` writes it\nanew) and drive the engine through every cell.\n\n" +
         describe_state_machine() + "\n## SIDR exchanges\n\n" + describe_sidr_state_machine();
}

TEST(StateMachine, DocumentShowsTheTable) {
  const std::string path = std::string(UCM_DOCS) + "/cm-state-machine.md";
  if (std::getenv("UCM_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << document();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), document()) << "run with UCM_UPDATE_GOLDEN=1 and look at the difference";
}

TEST(StateMachine, NamesAreDistinct) {
  std::set<std::string_view> states, inputs, actions;
  for (std::size_t i = 0; i <= kStateCount; ++i) states.insert(name(static_cast<State>(i)));
  for (std::size_t i = 0; i < kInputCount; ++i) inputs.insert(name(static_cast<Input>(i)));
  for (std::size_t i = 0; i < kActionCount; ++i) actions.insert(name(static_cast<Action>(i)));
  EXPECT_EQ(states.size(), kStateCount + 1);
  EXPECT_EQ(inputs.size(), kInputCount);
  EXPECT_EQ(actions.size(), kActionCount);
}

}  // namespace
}  // namespace ucm::cm
