// Every state that two nodes and the packets between them can get into. What needs fewer losses, duplicates and early
// timers comes first, and of that what needs fewer steps: the first violation found has a trace that is easy to read.
//
// Engines are pure, and a step at one node depends on nothing at the other. So a node's own state is kept once, by
// number, and each of its steps is done once, by the real engine, and remembered; a state of the whole is two of these
// numbers, the packets on their way and what is left of the budgets.
//
// Two states of a node that differ only in where the engine keeps its connections (slots) are one: nobody can tell them
// apart. That is checked: every step is done from each of these arrangements, and has to do the same.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "explore/comm_ids.h"
#include "explore/node.h"
#include "explore/packets.h"
#include "explore/visited.h"

namespace ucm::explore {

struct Scenario {
  std::string name;
  std::array<unsigned, kNodes> connects{1, 0};  // how often each node's application connects to the other
  unsigned window = 2;                          // requests in flight at a time; the others are held back
  bool reuses_qp = false;                       // QP numbers are used again as soon as the connection is destroyed
  bool closes_listener = false;                 // either application closes its listener, whenever it likes
  bool reads_late = false;                      // requests stay unread until the application likes, and then wait
  bool destroys_idle = false;                   // applications destroy at once what is over; else whenever they like
  unsigned cm_retries = 1;                      // max_cm_retries of both
  unsigned losses = 0;
  bool loses_rejections = true;  // REJ is the one message that nothing brings back
  unsigned duplicates = 0;
  // How often a retransmission timer may run out early: while packets are on their way, or while an application owes
  // the answer. Asynchronous: as often as it likes; a packet lost is then one that never arrives, so that losses need
  // no steps and no budget.
  unsigned early_timers = 0;
  bool asynchronous = false;
  std::uint64_t random_key = 1;  // the engines' comm IDs follow from it
  // Tells apart what need not be: arrangements, and which of the free comm IDs a connection got. To test the merging.
  bool unmerged = false;
};

struct Report {
  std::size_t states = 0;
  std::size_t transitions = 0;
  std::size_t visits = 0;  // states, counted again when reached with other budgets left
  unsigned depth = 0;      // steps, of the longest of the ways taken
  std::array<std::size_t, kNodes> node_states{};
  std::size_t arrangements = 0;  // of the nodes' states
  std::size_t engine_steps = 0;  // done by the engine itself
  std::size_t packets = 0;       // distinct
  std::string violation;         // empty: none
  std::string trace;             // of the violation: one line for each step
};

class Explorer {
 public:
  explicit Explorer(const Scenario& scenario);
  // Until every state has been seen, or a violation. `progress` is called every 2^20 states or so.
  Report run(const std::function<void(const Report&)>& progress = {});
  // A connection has been in this state.
  bool reached(cm::State state) const;

  // Keeps the states that single connections get into in run(): the ends and packets of each, in words without names.
  void collect_connections() { collecting_ = true; }
  const std::set<std::string>& connections() const { return connections_; }

 private:
  static constexpr unsigned kInFlightMax = 18;
  using NodeState = std::uint32_t;  // number of a node's state

  struct State {
    std::array<NodeState, kNodes> node{};
    Used used{};
    std::uint8_t in_flight = 0;
    std::array<Packets::Index, kInFlightMax> packets{};  // ascending; a packet may be there several times
    std::uint64_t hash() const;                          // without `used`
  };
  struct Reached {
    State state{};
    Visited::Index index = 0;
  };

  struct Input {
    enum class Kind : std::uint8_t { kDeliver, kCall, kTimer };
    Kind kind{};
    Call call{};
    std::uint16_t subject = 0;  // packet or end
    std::uint8_t fresh_comm_id = 0;
    std::uint64_t code() const {
      return std::uint64_t{static_cast<std::uint8_t>(kind)} << 32 |
             std::uint64_t{static_cast<std::uint8_t>(call)} << 24 | std::uint64_t{fresh_comm_id} << 16 | subject;
    }
  };

  // What a step of one node does, for good.
  struct Step {
    NodeState next = 0;
    std::vector<Packets::Index> sent;
    std::optional<Timeout> timeout;
    std::string violation{};
    bool does_the_same(const Step& other) const {
      return next == other.next && sent == other.sent && timeout.has_value() == other.timeout.has_value() &&
             violation == other.violation;
    }
  };

  struct NodeInfo {
    Node node;
    CommIdSet comm_ids{};
    std::vector<cm::EngineAccess::Facts> facts{};  // of the ends
    std::vector<std::string> words{};              // of the ends, for people
    std::vector<Node::PossibleCall> calls{};
    bool timer = false;
    std::string violation{};
    // Each of them once; the first is that of `node`, the others are those of `others`.
    std::vector<std::uint64_t> arrangements{};
    std::deque<Node> others{};
    std::vector<Input> inputs{};  // of the steps done
  };
  struct Arrangement {
    unsigned index = 0;
    NodeState state = 0;
    std::size_t other = 0;
  };

  // One step of the whole: a node's step, and what becomes of the packets it sent.
  struct Move {
    unsigned node = 0;
    Input input{};
    bool early = false;
    std::vector<std::uint8_t> copies{};  // of each packet sent
  };
  // False: enough.
  using Visit = std::function<bool(const State& next, const Move& move, const std::string& violation)>;

  NodeState intern(const Node& node, unsigned index);
  const Step& step(unsigned index, NodeState from, const Input& input);
  Step take_step(unsigned index, Node node, const Input& input);
  std::string compare_step(const Arrangement& arrangement, const Input& input);
  std::string compare_arrangements();
  Effects perform(Node& node, const Input& input) const;
  unsigned fresh_comm_id(const State& state, unsigned node, unsigned connection) const;

  bool expand(const Reached& reached);
  void sort_in();
  bool for_each_move(const State& state, const Visit& visit);
  bool move(const State& state, unsigned node, Input input, const Visit& visit);
  bool deal_with_sent(const Step& step, std::size_t index, State& next, Move& move, const Visit& visit);

  // Whether `matches(end)` for an end at the other node that is this connection's other half.
  template <class Matches>
  bool any_peer(const State& state, unsigned node, const cm::EngineAccess::Facts& facts, Matches matches) const;
  bool timer_is_early(const State& state, unsigned node, const cm::EngineAccess::Facts& facts) const;
  bool data_may_arrive(const State& state, unsigned node, std::size_t end) const;
  std::string check_timeout(const State& state, unsigned node, const Timeout& timeout) const;
  std::string check_state(const State& state) const;
  std::string check_pair(const State& state, unsigned node, std::size_t end, std::size_t peer_end) const;
  std::string check_rest(const State& state) const;
  bool strict(const State& state) const;
  const NodeInfo& info(const State& state, unsigned node) const { return nodes_[node][state.node[node]]; }

  std::string trace_to(Visited::Index last, const Move* violating);
  std::string describe(const State& state, const Move& move);
  std::string describe(const State& state) const;
  void collect(const State& state);

  Scenario scenario_;
  std::array<cm::Config, kNodes> configs_;
  CommIds comm_ids_;
  Packets packets_;
  std::array<std::deque<NodeInfo>, kNodes> nodes_;  // references stay good
  std::array<std::unordered_map<std::uint64_t, NodeState>, kNodes> by_hash_;
  std::array<std::unordered_map<std::uint64_t, Step>, kNodes> steps_;
  std::vector<Arrangement> unchecked_;
  State initial_;
  Visited visited_;
  // Found, and not yet looked up: many at once, so that memory answers in time.
  struct Found {
    State state{};
    std::uint64_t hash = 0;
    Visited::Index parent = 0;
  };
  std::vector<Found> found_;
  // By what was used up in total: everything with less comes first.
  std::vector<std::vector<Reached>> waiting_;
  Report report_;
  bool collecting_ = false;
  std::set<std::string> connections_;
};

}  // namespace ucm::explore
