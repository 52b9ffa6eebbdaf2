#include "explore/explorer.h"

#include <algorithm>

#include "base/check.h"

namespace ucm::explore {
namespace {

// Before every repetition: just more than the interval that budgets are made of, so that a message is sent as often as
// max_cm_retries says.
constexpr TimeNs kWait = 4'098 * kNanosecondsPerMillisecond;

std::array<cm::Config, kNodes> configs_of(const Scenario& scenario) {
  std::array<cm::Config, kNodes> configs;
  for (unsigned node = 0; node < kNodes; ++node) {
    configs[node].random_key = {node + 1, scenario.random_key};
    configs[node].max_cm_retries = static_cast<std::uint8_t>(scenario.cm_retries);
    configs[node].mra_service_timeout = configs[node].cm_response_timeout;
    configs[node].recovery.first_contact = kWait;
    configs[node].recovery.longest_backoff = kWait;
    configs[node].recovery.jitter_percent = 0;
  }
  return configs;
}

wire::IpAddress address_of(unsigned node) { return wire::IpAddress::ipv4(0x0a4d0001 + node); }

// The application believes in the connection, and waits for nothing.
bool counts_on_peer(Phase phase) { return phase == Phase::kEstablished || phase == Phase::kResponded; }

bool names_an_end(Call call) { return call != Call::kConnect && call != Call::kCloseListener; }

char letter(unsigned node) { return static_cast<char>('A' + node); }

}  // namespace

std::uint64_t Explorer::State::hash() const {
  std::uint64_t hash = 0x243f6a8885a308d3;
  const auto add = [&](std::uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  };
  add(std::uint64_t{node[0]} << 32 | node[1]);
  for (unsigned i = 0; i < in_flight; ++i) add(packets[i] + 1u);
  hash *= 0xd6e8feb86659fd93;
  return hash ^ hash >> 32;
}

Explorer::Explorer(const Scenario& scenario)
    : scenario_(scenario), configs_(configs_of(scenario)), comm_ids_(configs_), packets_(comm_ids_) {
  for (unsigned node = 0; node < kNodes; ++node) {
    initial_.node[node] = intern(Node({.index = node,
                                       .config = configs_[node],
                                       .address = address_of(node),
                                       .peer_address = address_of(1 - node),
                                       .window = scenario.window,
                                       .connects = scenario.connects[node],
                                       .destroys_idle = scenario.destroys_idle,
                                       .closes_listener = scenario.closes_listener,
                                       .reads_late = scenario.reads_late,
                                       .reuses_qp = scenario.reuses_qp}),
                                 node);
  }
}

// --------------------------------------------------------------------------------------------------------------------
// One node.

Explorer::NodeState Explorer::intern(const Node& node, unsigned index) {
  const std::uint64_t arrangement = node.arrangement();
  const std::uint64_t hash = scenario_.unmerged ? node.hash() ^ arrangement : node.hash();
  const auto [found, added] = by_hash_[index].try_emplace(hash, static_cast<NodeState>(nodes_[index].size()));
  const NodeState state = found->second;
  if (!added) {
    NodeInfo& known = nodes_[index][state];
    if (std::find(known.arrangements.begin(), known.arrangements.end(), arrangement) == known.arrangements.end()) {
      unchecked_.push_back({index, state, known.others.size()});
      known.arrangements.push_back(arrangement);
      known.others.push_back(node);
      ++report_.arrangements;
    }
    return state;
  }
  NodeInfo info{
      .node = node, .calls = node.possible_calls(), .violation = node.probe_refusals(), .arrangements = {arrangement}};
  for (std::size_t end = 0; end < node.ends().size(); ++end) {
    const auto facts = node.facts(end);
    info.facts.push_back(facts);
    info.comm_ids = info.comm_ids | comm_ids_.set_of(facts.local_comm_id) | comm_ids_.set_of(facts.remote_comm_id);
    info.timer = info.timer || facts.timer;
    info.words.push_back(letter(index) + (":" + std::string(name(node.ends()[end].phase))) + "/" +
                         std::string(cm::name(facts.state)) + " ");
  }
  nodes_[index].push_back(std::move(info));
  ++report_.arrangements;
  return state;
}

Effects Explorer::perform(Node& node, const Input& input) const {
  switch (input.kind) {
    case Input::Kind::kDeliver: {
      const PacketInfo& packet = packets_[input.subject];
      return node.deliver(packet.path, packet.mad, input.fresh_comm_id);
    }
    case Input::Kind::kCall:
      return node.call(input.call, input.subject, input.fresh_comm_id);
    case Input::Kind::kTimer:
      break;
  }
  return node.expire_timer(input.subject);
}

Explorer::Step Explorer::take_step(unsigned index, Node node, const Input& input) {
  const Effects effects = perform(node, input);
  Step step{.sent = {}, .timeout = effects.timeout, .violation = effects.violation};
  for (const cm::Packet& packet : effects.sent) step.sent.push_back(packets_.intern(index, packet));
  if (step.violation.empty()) step.next = intern(node, index);
  ++report_.engine_steps;
  return step;
}

const Explorer::Step& Explorer::step(unsigned index, NodeState from, const Input& input) {
  const auto [found, added] = steps_[index].try_emplace(std::uint64_t{from} << 34 | input.code());
  Step& step = found->second;
  if (!added) return step;
  NodeInfo& info = nodes_[index][from];
  const std::size_t others = info.others.size();
  info.inputs.push_back(input);
  step = take_step(index, info.node, input);
  for (std::size_t i = 0; i < others && step.violation.empty(); ++i) {
    step.violation = compare_step({index, from, i}, input);
  }
  if (step.violation.empty()) step.violation = compare_arrangements();
  return step;
}

// Empty: from this arrangement the step does the same.
std::string Explorer::compare_step(const Arrangement& arrangement, const Input& input) {
  const Node& node = nodes_[arrangement.index][arrangement.state].others[arrangement.other];
  const Step& first = steps_[arrangement.index].at(std::uint64_t{arrangement.state} << 34 | input.code());
  const Step step = take_step(arrangement.index, node, input);
  if (step.does_the_same(first)) return {};
  return step.violation.empty() ? "what the node does depends on where the engine keeps its connections"
                                : step.violation;
}

// Steps done before an arrangement was met are done from it, too.
std::string Explorer::compare_arrangements() {
  while (!unchecked_.empty()) {
    const Arrangement arrangement = unchecked_.back();
    unchecked_.pop_back();
    for (const Input& input : nodes_[arrangement.index][arrangement.state].inputs) {
      if (std::string violation = compare_step(arrangement, input); !violation.empty()) return violation;
    }
  }
  return {};
}

unsigned Explorer::fresh_comm_id(const State& state, unsigned node, unsigned connection) const {
  unsigned used = info(state, 0).comm_ids[node] | info(state, 1).comm_ids[node];
  for (unsigned i = 0; i < state.in_flight; ++i) used |= packets_[state.packets[i]].comm_ids[node];
  // A range for each connection, so that what one of them gets says nothing of what the others did before.
  unsigned number = scenario_.unmerged ? 0 : connection * kCommIdsPerConnection;
  const unsigned end = scenario_.unmerged ? kCommIdsPerNode : number + kCommIdsPerConnection;
  while (number < end && (used >> number & 1u) != 0) ++number;
  UCM_CHECK(number < end);
  return number;
}

// --------------------------------------------------------------------------------------------------------------------
// The whole.

// Several ends may be made by one REQ, one after the other.
template <class Matches>
bool Explorer::any_peer(const State& state, unsigned node, const cm::EngineAccess::Facts& facts,
                        Matches matches) const {
  const NodeInfo& other = info(state, 1 - node);
  for (std::size_t end = 0; end < other.facts.size(); ++end) {
    const auto& f = other.facts[end];
    const bool knows = f.remote_comm_id == facts.local_comm_id;
    const bool known = f.local_comm_id == facts.remote_comm_id;
    const bool peers = knows ? known || facts.remote_comm_id == 0 : known && f.remote_comm_id == 0;
    if (peers && matches(end)) return true;
  }
  return false;
}

bool Explorer::timer_is_early(const State& state, unsigned node, const cm::EngineAccess::Facts& facts) const {
  // Held back by a request that has not been repeated yet, which will be first.
  if (state.in_flight > 0 || facts.state == cm::State::kReqHeld) return true;
  if (facts.state == cm::State::kTimewait) return false;
  return any_peer(state, node, facts,
                  [&](std::size_t peer) { return owes_answer(info(state, 1 - node).facts[peer].state); });
}

// notify() is for data that came before RTU, so the peer has had the REP.
bool Explorer::data_may_arrive(const State& state, unsigned node, std::size_t end) const {
  return any_peer(state, node, info(state, node).facts[end], [&](std::size_t peer) {
    const Phase phase = info(state, 1 - node).node.ends()[peer].phase;
    return phase == Phase::kResponded || phase == Phase::kEstablished || phase == Phase::kClosing ||
           phase == Phase::kOrphaned;
  });
}

bool Explorer::for_each_move(const State& state, const Visit& visit) {
  for (unsigned i = 0; i < state.in_flight; ++i) {
    const Packets::Index packet = state.packets[i];
    if (i > 0 && state.packets[i - 1] == packet) continue;
    const unsigned to = packets_[packet].to;
    State rest = state;
    std::copy(rest.packets.begin() + i + 1, rest.packets.begin() + rest.in_flight, rest.packets.begin() + i);
    rest.packets[--rest.in_flight] = 0;
    Input input{.kind = Input::Kind::kDeliver, .subject = packet};
    if (packets_[packet].is_request)
      input.fresh_comm_id = static_cast<std::uint8_t>(fresh_comm_id(state, to, packets_[packet].connection));
    if (!move(rest, to, input, visit)) return false;
  }
  for (unsigned node = 0; node < kNodes; ++node) {
    const auto& calls = info(state, node).calls;
    for (const auto& [call, end] : calls) {
      Input input{.kind = Input::Kind::kCall, .call = call, .subject = static_cast<std::uint16_t>(end)};
      if (call == Call::kConnect) {
        const unsigned connection = info(state, node).node.connects() + (node == 0 ? 0 : scenario_.connects[0]);
        input.fresh_comm_id = static_cast<std::uint8_t>(fresh_comm_id(state, node, connection));
      }
      if (call == Call::kNotify && !data_may_arrive(state, node, end)) continue;
      if (!move(state, node, input, visit)) return false;
    }
    const auto& facts = info(state, node).facts;
    for (std::size_t end = 0; end < facts.size(); ++end) {
      if (!facts[end].timer) continue;
      const Input input{.kind = Input::Kind::kTimer, .subject = static_cast<std::uint16_t>(end)};
      if (!move(state, node, input, visit)) return false;
    }
  }
  return true;
}

bool Explorer::move(const State& state, unsigned node, Input input, const Visit& visit) {
  Move move{.node = node, .input = input};
  State next = state;
  if (input.kind == Input::Kind::kTimer && !scenario_.asynchronous &&
      timer_is_early(state, node, info(state, node).facts[input.subject])) {
    if (state.used.early_timers == scenario_.early_timers) return true;
    // Only retransmission is worth a budget: no packet lives for longer than timewait.
    if (info(state, node).facts[input.subject].state == cm::State::kTimewait) return true;
    move.early = true;
    ++next.used.early_timers;
  }
  const Step& done = step(node, state.node[node], input);
  next.node[node] = done.next;
  if (!done.violation.empty()) return visit(next, move, done.violation);
  if (done.timeout) {
    if (const std::string violation = check_timeout(next, node, *done.timeout); !violation.empty()) {
      return visit(next, move, violation);
    }
  }
  move.copies.resize(done.sent.size());
  return deal_with_sent(done, 0, next, move, visit);
}

// A packet's fate is decided when it is sent: to lose it later leads to nothing else.
bool Explorer::deal_with_sent(const Step& step, std::size_t index, State& next, Move& move, const Visit& visit) {
  if (index == step.sent.size()) return visit(next, move, {});
  const State before = next;
  const unsigned copies_max = 1 + scenario_.duplicates - before.used.duplicates;
  const bool may_be_lost = !scenario_.asynchronous && before.used.losses < scenario_.losses &&
                           (scenario_.loses_rejections || !packets_[step.sent[index]].is_rejection);
  for (unsigned copies = may_be_lost ? 0 : 1; copies <= copies_max; ++copies) {
    next = before;
    if (copies == 0) ++next.used.losses;
    if (copies > 1) next.used.duplicates = static_cast<std::uint8_t>(before.used.duplicates + copies - 1);
    for (unsigned copy = 0; copy < copies; ++copy) {
      UCM_CHECK(next.in_flight < kInFlightMax);
      const auto end = next.packets.begin() + next.in_flight;
      const auto place = std::upper_bound(next.packets.begin(), end, step.sent[index]);
      std::copy_backward(place, end, end + 1);
      *place = step.sent[index];
      ++next.in_flight;
    }
    move.copies[index] = static_cast<std::uint8_t>(copies);
    if (!deal_with_sent(step, index + 1, next, move, visit)) return false;
  }
  next = before;
  return true;
}

bool Explorer::expand(const Reached& reached) {
  if (collecting_) collect(reached.state);
  report_.violation = check_state(reached.state);
  if (!report_.violation.empty()) {
    report_.trace = trace_to(reached.index, nullptr);
    return false;
  }
  return for_each_move(reached.state, [&](const State& next, const Move& move, const std::string& violation) {
    ++report_.transitions;
    if (!violation.empty()) {
      report_.violation = violation;
      report_.trace = trace_to(reached.index, &move);
      return false;
    }
    found_.push_back({next, next.hash(), reached.index});
    visited_.prefetch(found_.back().hash);
    return true;
  });
}

void Explorer::sort_in() {
  for (const Found& found : found_) {
    const auto index = visited_.insert({.hash = found.hash, .parent = found.parent, .used = found.state.used});
    if (index) waiting_[found.state.used.total()].push_back({found.state, *index});
  }
  found_.clear();
}

Report Explorer::run(const std::function<void(const Report&)>& progress) {
  const auto tell = [&] {
    report_.states = visited_.states();
    report_.node_states = {nodes_[0].size(), nodes_[1].size()};
    report_.packets = packets_.size();
    if (progress) progress(report_);
  };
  constexpr std::size_t kBatch = 1024;
  constexpr std::size_t kProgressEvery = 1u << 20;
  waiting_.assign(scenario_.losses + scenario_.duplicates + scenario_.early_timers + 1u, {});
  found_.push_back({initial_, initial_.hash(), Visited::kNone});
  sort_in();
  for (auto& waiting : waiting_) {
    for (unsigned depth = 0; !waiting.empty(); ++depth) {
      report_.depth = std::max(report_.depth, depth);
      const std::vector<Reached> level = std::move(waiting);
      waiting.clear();
      for (const Reached& reached : level) {
        if (visited_.is_superseded(reached.index)) continue;
        if (++report_.visits % kProgressEvery == 0) tell();
        if (!expand(reached)) {
          tell();
          return report_;
        }
        if (found_.size() >= kBatch) sort_in();
      }
      sort_in();
    }
  }
  tell();
  return report_;
}

bool Explorer::reached(cm::State state) const {
  for (const auto& nodes : nodes_) {
    for (const NodeInfo& node : nodes) {
      for (const auto& facts : node.facts) {
        if (facts.state == state) return true;
      }
    }
  }
  return false;
}

// --------------------------------------------------------------------------------------------------------------------
// Invariants of the whole.

// Every loss so far can have been repaired, and nothing took longer than a timer waits.
bool Explorer::strict(const State& state) const {
  return !scenario_.asynchronous && !scenario_.reuses_qp && state.used.early_timers == 0 &&
         state.used.losses <= scenario_.cm_retries;
}

// Who gives up has a reason: nobody is there any more, or has not answered in time.
std::string Explorer::check_timeout(const State& state, unsigned node, const Timeout& timeout) const {
  if (!strict(state)) return {};
  if (timeout.event == cm::EventType::kUnreachable && !timeout.end.active) {
    const bool peer_waits = any_peer(state, node, timeout.facts, [&](std::size_t peer) {
      return (state.used.losses == 0 && state.used.duplicates == 0) ||
             !is_over(info(state, 1 - node).node.ends()[peer].phase);
    });
    if (!peer_waits) return {};
  }
  return "gives up, although no more than " + std::to_string(scenario_.cm_retries) +
         " packets were lost and the peer answers at once";
}

std::string Explorer::check_state(const State& state) const {
  for (unsigned node = 0; node < kNodes; ++node) {
    if (!info(state, node).violation.empty()) return info(state, node).violation;
    const auto& ends = info(state, node).node.ends();
    for (std::size_t end = 0; end < ends.size(); ++end) {
      if (ends[end].phase != Phase::kEstablished) continue;
      std::string violation;
      any_peer(state, node, info(state, node).facts[end], [&](std::size_t peer) {
        if (info(state, 1 - node).node.ends()[peer].phase == Phase::kOrphaned) return false;
        violation = check_pair(state, node, end, peer);
        return !violation.empty();
      });
      if (!violation.empty()) return violation;
    }
  }
  return check_rest(state);
}

// Two ends of one connection describe the same one.
std::string Explorer::check_pair(const State& state, unsigned node, std::size_t end, std::size_t peer_end) const {
  const Node& own = info(state, node).node;
  const Node& other = info(state, 1 - node).node;
  if (own.ends()[end].active == other.ends()[peer_end].active) return "both ends have the same role";
  if (own.facts(end).remote_comm_id != other.facts(peer_end).local_comm_id ||
      own.facts(end).local_comm_id != other.facts(peer_end).remote_comm_id) {
    return {};
  }
  const auto a = own.qp_parameters(end);
  const auto b = other.qp_parameters(peer_end);
  const bool agree = a.dest_known && a.local_qpn == own.ends()[end].qpn && a.dest_qpn == other.ends()[peer_end].qpn &&
                     a.dest_qpn == b.local_qpn && b.dest_qpn == a.local_qpn && a.rq_psn == b.sq_psn &&
                     a.sq_psn == b.rq_psn;
  return agree ? std::string() : "the two ends do not agree on QP numbers and starting PSNs";
}

// When nothing is on its way and no timer runs, only applications can go on: an end that counts on its peer has one
// that knows of it.
std::string Explorer::check_rest(const State& state) const {
  if (!scenario_.asynchronous && state.in_flight > 0) return {};
  if (info(state, 0).timer || info(state, 1).timer) return {};
  const bool excused = !strict(state) || (state.used.losses > 0 && scenario_.loses_rejections);
  for (unsigned node = 0; node < kNodes; ++node) {
    const auto& ends = info(state, node).node.ends();
    for (std::size_t end = 0; end < ends.size(); ++end) {
      if (!counts_on_peer(ends[end].phase)) continue;
      bool over = false;
      const bool peer_counts_on_it = any_peer(state, node, info(state, node).facts[end], [&](std::size_t peer) {
        const Phase phase = info(state, 1 - node).node.ends()[peer].phase;
        over = over || is_over(phase);
        return counts_on_peer(phase);
      });
      if (peer_counts_on_it || excused) continue;
      return std::string(1, letter(node)) + " counts on a connection that its peer has " +
             (over ? "done with" : "destroyed") + ", and nothing is on its way to say so";
    }
  }
  return {};
}

// --------------------------------------------------------------------------------------------------------------------
// For people.

std::string Explorer::describe(const State& state) const {
  std::string text;
  for (unsigned node = 0; node < kNodes; ++node) {
    const NodeInfo& own = info(state, node);
    text += std::string(" | ") + letter(node);
    for (std::size_t end = 0; end < own.facts.size(); ++end) {
      text += " " + comm_ids_.name(own.facts[end].local_comm_id) + ":" + std::string(cm::name(own.facts[end].state));
    }
    if (own.facts.empty()) text += " -";
  }
  text += " | on the way:";
  for (unsigned i = 0; i < state.in_flight; ++i) text += (i > 0 ? ", " : " ") + packets_[state.packets[i]].name;
  if (state.in_flight == 0) text += " nothing";
  return text;
}

std::string Explorer::describe(const State& state, const Move& move) {
  const NodeInfo& before = info(state, move.node);
  Node node = before.node;
  const Input& input = move.input;
  std::string text(1, letter(move.node));
  text += ": ";
  const auto end_name = [&] { return comm_ids_.name(before.facts[input.subject].local_comm_id); };
  if (input.kind == Input::Kind::kDeliver) text += "gets " + packets_[input.subject].name;
  if (input.kind == Input::Kind::kCall) {
    text += std::string(name(input.call)) + "(" + (names_an_end(input.call) ? end_name() : "") + ")";
  }
  if (input.kind == Input::Kind::kTimer)
    text += "timer of " + end_name() + (move.early ? " runs out early" : " runs out");
  const Effects effects = perform(node, input);
  for (const std::string& event : effects.events) text += ", event " + event;
  for (std::size_t i = 0; i < effects.sent.size(); ++i) {
    text += ", sends " + packets_[packets_.intern(move.node, effects.sent[i])].name;
    if (i < move.copies.size() && move.copies[i] == 0) text += " (lost)";
    if (i < move.copies.size() && move.copies[i] > 1) text += " (" + std::to_string(move.copies[i]) + " times)";
  }
  return text;
}

// A connection is what is held together by comm IDs.
void Explorer::collect(const State& state) {
  struct Part {
    CommIdSet comm_ids{};
    std::vector<const std::string*> words{};
  };
  std::vector<Part> parts;
  const auto add = [&](const CommIdSet& comm_ids, const std::string& word) {
    Part whole{.comm_ids = comm_ids, .words = {&word}};
    for (std::size_t i = parts.size(); i-- > 0;) {
      if (((parts[i].comm_ids[0] & whole.comm_ids[0]) | (parts[i].comm_ids[1] & whole.comm_ids[1])) == 0) continue;
      whole.comm_ids = whole.comm_ids | parts[i].comm_ids;
      whole.words.insert(whole.words.end(), parts[i].words.begin(), parts[i].words.end());
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
    }
    parts.push_back(std::move(whole));
  };
  for (unsigned node = 0; node < kNodes; ++node) {
    const NodeInfo& own = info(state, node);
    for (std::size_t end = 0; end < own.facts.size(); ++end) {
      const auto& facts = own.facts[end];
      add(comm_ids_.set_of(facts.local_comm_id) | comm_ids_.set_of(facts.remote_comm_id), own.words[end]);
    }
  }
  for (unsigned i = 0; i < state.in_flight; ++i) {
    const PacketInfo& packet = packets_[state.packets[i]];
    add(packet.comm_ids, packet.kind);
  }
  for (Part& part : parts) {
    std::sort(part.words.begin(), part.words.end(), [](const auto* a, const auto* b) { return *a < *b; });
    std::string text;
    for (const std::string* word : part.words) text += *word;
    connections_.insert(std::move(text));
  }
}

std::string Explorer::trace_to(Visited::Index last, const Move* violating) {
  std::vector<Visited::Index> way;
  for (Visited::Index i = last; i != Visited::kNone; i = visited_[i].parent) way.push_back(i);
  std::string text;
  unsigned number = 0;
  const auto add_line = [&](const std::string& step, const std::string& after) {
    std::string line = std::to_string(++number) + ". ";
    line.insert(0, line.size() < 5 ? 5 - line.size() : 0, ' ');
    line += step;
    line.resize(std::max<std::size_t>(line.size() + 1, 70), ' ');
    text += line + after + "\n";
  };
  State state = initial_;
  for (std::size_t i = way.size() - 1; i-- > 0;) {
    const Visited::Record& record = visited_[way[i]];
    for_each_move(state, [&](const State& next, const Move& move, const std::string& violation) {
      if (!violation.empty() || next.hash() != record.hash || next.used != record.used) return true;
      add_line(describe(state, move), describe(next));
      state = next;
      return false;
    });
  }
  if (violating != nullptr) add_line(describe(state, *violating), " | violation");
  return text;
}

}  // namespace ucm::explore
