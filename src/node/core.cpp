#include "node/core.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "ipc/limits.h"
#include "net/limits.h"
#include "node/limits.h"
#include "node/probes.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/mad.h"
#include "wire/ud_packet.h"

namespace ucm::node {

Core::Core(net::PacketPort& port, host::Host& host, Node::Callbacks callbacks, const RandomKey& key)
    : port_(port),
      host_(host),
      callbacks_(std::move(callbacks)),
      engine_(cm::Config{.random_key = key}),
      random_(RandomKey{key[1], key[0]}) {
  host_.observe({.devices_changed = [this] { on_devices_changed(); },
                 .neighbor_changed = [this](std::uint32_t ifindex,
                                            const wire::IpAddress& address) { check_neighbor({ifindex, address}); }});
}

void Core::record(FlightRecorder& recorder) {
  recorder_ = &recorder;
  engine_.observe(&recorder);
}

Result<void> Core::record_engine(TimeNs now, recording::RecordedEngine::Sink sink) {
  const cm::Engine::Usage usage = engine_.usage();
  if (usage.connections + usage.sidr_exchanges + usage.last_words != 0) {
    return fail(EBUSY, "a recording begins without connections, and there are " + std::to_string(usage.connections) +
                           ", and " + std::to_string(usage.sidr_exchanges + usage.last_words) +
                           " exchanges (those over go with their IDs, after timewait)");
  }
  for (const cm::CounterField& field : cm::kCounterFields) {
    counted_before_.*field.member += engine_.counters().*field.member;
  }
  engine_.record(now, cm::Config{.random_key = {random_.next(), random_.next()}}, std::move(sink));
  engine_.observe(recorder_);
  if (journal_ != nullptr) engine_.note_changes();
  for (const std::uint32_t number : listening_) {
    if (auto listening = start_listening(*find(number)); !listening) return listening;
  }
  return {};
}

RdmaId* Core::find(std::uint32_t id) {
  const auto it = ids_.find(id);
  return it != ids_.end() ? &it->second : nullptr;
}

const RdmaId* Core::find(std::uint32_t id) const {
  const auto it = ids_.find(id);
  return it != ids_.end() ? &it->second : nullptr;
}

RdmaId* Core::find_own(SessionId session, std::uint32_t id) {
  RdmaId* const found = find(id);
  return found != nullptr && found->session == session ? found : nullptr;
}

std::uint32_t Core::user_of(SessionId session) const {
  return callbacks_.user_of ? callbacks_.user_of(session) : ipc::kTraceNoUser;
}

RdmaId& Core::make(std::uint32_t number, SessionId session, LinkId link) {
  RdmaId& id = ids_[number];
  id.id = number;
  id.session = session;
  id.link = link;
  id.user = user_of(session);
  return id;
}

// nullptr: the session has its share. Numbers come in a cycle, so that one just destroyed is not met again soon.
RdmaId* Core::create(SessionId session, LinkId link) {
  if (!take(session, user_of(session), Resource::kIds)) return nullptr;
  do ++last_id_;
  while (last_id_ == 0 || ids_.contains(last_id_));
  return &make(last_id_, session, link);
}

// Returns how many: those after the last number, up to the first that is in use.
std::uint32_t Core::grant_numbers(SessionId session, LinkId link, std::uint32_t count) {
  forget_grant(link);
  const std::uint32_t user = user_of(session);
  count = std::min({count, ipc::kIdNumbersMax, quotas_.room(session, user, Resource::kIds)});
  if (count == 0 || !quotas_.take(session, user, Resource::kIds, count)) return 0;
  Grant& grant = grants_[link] = {.session = session, .next = last_id_ + 1};
  for (; grant.left < count && last_id_ + 1 != 0 && !ids_.contains(last_id_ + 1); ++grant.left) ++last_id_;
  if (grant.left < count) quotas_.give_back(session, user, Resource::kIds, count - grant.left);
  keep(link, grant);
  return grant.left;
}

// nullptr: the number is not the link's, or has been given to another once all were used up.
RdmaId* Core::create_granted(SessionId session, LinkId link, std::uint32_t number) {
  const auto grant = grants_.find(link);
  if (grant == grants_.end() || grant->second.session != session) return nullptr;
  if (grant->second.left == 0 || grant->second.next != number || ids_.contains(number)) return nullptr;
  ++grant->second.next;
  --grant->second.left;
  keep(link, grant->second);
  return &make(number, session, link);
}

void Core::forget_grant(LinkId link) {
  const auto grant = grants_.find(link);
  if (grant == grants_.end()) return;
  const Grant& left = grant->second;
  if (left.left != 0) quotas_.give_back(left.session, user_of(left.session), Resource::kIds, left.left);
  if (journal_ != nullptr) journal_->drop(grant->second.cell);
  grants_.erase(grant);
}

bool Core::take(SessionId session, std::uint32_t user, Resource resource) {
  const bool taken = quotas_.take(session, user, resource);
  if (!taken && callbacks_.refused) callbacks_.refused(session, kResourceNames[static_cast<std::size_t>(resource)]);
  return taken;
}

// Until an answer comes, or the program has had enough of it.
Result<void> Core::begin_asking(TimeNs now, RdmaId& id) {
  if (!quotas_.may_connect(now, id.session, id.user)) {
    if (callbacks_.refused) callbacks_.refused(id.session, "connects_per_second");
    return fail(EAGAIN, "the process or its user connects too fast");
  }
  id.asking = take(id.session, id.user, Resource::kHalfOpen);
  if (!id.asking) return fail(EAGAIN, "too many connections without an answer");
  return {};
}

void Core::end_asking(RdmaId& id) {
  if (id.asking) quotas_.give_back(id.session, id.user, Resource::kHalfOpen);
  id.asking = false;
}

void Core::forget_resolution(RdmaId& id) {
  if (id.resolve_deadline == kNever) return;
  resolve_deadlines_.erase({id.resolve_deadline, id.id});
  id.resolve_deadline = kNever;
  const auto waiting = waiting_.find({id.route.ifindex, id.route.next_hop});
  waiting->second.erase(id.id);
  if (waiting->second.empty()) waiting_.erase(waiting);
}

void Core::destroy(TimeNs now, std::uint32_t number) {
  RdmaId& id = *find(number);
  forget_resolution(id);
  // Requests that the program never saw go with their listener.
  while (!id.untaken.empty()) destroy(now, *id.untaken.begin());
  if (id.listener != cm::ListenerId{}) {
    engine_.close_listener(now, id.listener);
    quotas_.give_back(id.session, id.user, Resource::kListeners);
  }
  end_asking(id);
  if (id.connection != cm::ConnectionId{}) engine_.destroy(now, id.connection);
  if (id.exchange != cm::SidrId{}) engine_.sidr_destroy(now, id.exchange);
  if (RdmaId* const listening = find(id.listen_id)) listening->untaken.erase(number);
  if (journal_ != nullptr) journal_->drop(id.cell);
  listening_.erase(number);
  ports_.release(number);
  quotas_.give_back(id.session, id.user, Resource::kIds);
  ids_.erase(number);
  work_ = true;
}

template <class Predicate>
void Core::destroy_where(TimeNs now, Predicate predicate) {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, id] : ids_) {
    if (predicate(id)) numbers.push_back(number);
  }
  // In the order of creation: the same run in every simulation. A listener may have taken its requests along.
  std::ranges::sort(numbers);
  for (const std::uint32_t number : numbers) {
    if (ids_.contains(number)) destroy(now, number);
  }
}

void Core::remove_link(TimeNs now, LinkId link) {
  at(now);
  destroy_where(now, [&](const RdmaId& id) { return id.link == link; });
  forget_grant(link);
}

void Core::remove_session(TimeNs now, SessionId session) {
  at(now);
  destroy_where(now, [&](const RdmaId& id) { return id.session == session; });
  std::vector<LinkId> links;
  for (const auto& [link, grant] : grants_) {
    if (grant.session == session) links.push_back(link);
  }
  for (const LinkId link : links) forget_grant(link);
  quotas_.forget(now, session, user_of(session));
  low_port_sessions_.erase(session);
}

void Core::receive(TimeNs now) {
  at(now);
  port_.receive([&](const net::Datagram& datagram) { on_datagram(now, datagram); }, kDatagramsPerTurn);
  work_ = true;
}

void Core::on_datagram(TimeNs now, const net::Datagram& datagram) {
  ++counters_.received;
  const auto bth = wire::Bth::parse(datagram.payload);
  if (!bth || datagram.payload.size() < wire::Bth::kSize + wire::kIcrcSize) {
    ++counters_.short_packet;
  } else if (bth->destination_qpn == wire::kGsiQpn) {
    on_gsi_packet(now, datagram);
  } else {
    ++counters_.data;
    callbacks_.deliver_data(bth->destination_qpn, datagram.info, datagram.payload);
  }
}

void Core::on_gsi_packet(TimeNs now, const net::Datagram& datagram) {
  const wire::DatagramInfo& info = datagram.info;
  const wire::IcrcCheck check = wire::verify_icrc(info, datagram.payload);
  if (check == wire::IcrcCheck::kBad) {
    ++counters_.bad_icrc;
    return;
  }
  if (check == wire::IcrcCheck::kSolvedId) ++counters_.solved_icrc;
  const auto mad = wire::parse_gsi_packet(datagram.payload);
  if (!mad) {
    ++counters_.bad_gsi;
    return;
  }
  if (host_.find_device_of(info.destination, info.ifindex) == nullptr) {
    ++counters_.not_ours;
    return;
  }
  if (info.source_port != port_.source_port() && host_.find_device_of(info.source, info.ifindex) != nullptr) {
    ++counters_.not_the_node;
    return;
  }
  probes::message_received(*mad, info.source);
  if (recorder_ != nullptr) recorder_->begin_packet(info, *mad);
  engine_.on_packet(now,
                    {.local = info.destination,
                     .remote = info.source,
                     .ifindex = info.ifindex,
                     .traffic_class = info.traffic_class,
                     .hop_limit = info.hop_limit},
                    *mad);
  if (recorder_ != nullptr) recorder_->end_packet();
  // At once: the next packet may be about a request of this one.
  take_events(now);
}

TimeNs Core::turn(TimeNs now) {
  at(now);
  work_ = false;
  if (next_held_receive_ <= now) receive(now);
  next_held_receive_ = port_.holds_datagrams() ? now + kHeldDatagramsNs : kNever;

  expire_resolutions(now);
  check_neighbors(now);
  for (int calls = 0; calls < kDeadlineCallsPerTurn && engine_.next_deadline() <= now; ++calls)
    engine_.on_deadline(now);
  take_events(now);
  deliver_events();
  commit();
  if (callbacks_.events_delivered) callbacks_.events_delivered();
  send_packets();

  const TimeNs resolve = resolve_deadlines_.empty() ? kNever : resolve_deadlines_.begin()->first;
  return std::min({engine_.next_deadline(), resolve, next_neighbor_check_, next_held_receive_});
}

void Core::send_packets() {
  std::array<std::array<std::uint8_t, wire::kGsiPacketSize>, net::kBatchSize> bytes;
  std::array<net::Datagram, net::kBatchSize> batch;
  std::size_t count = 0;
  while (auto packet = engine_.poll_packet()) {
    net::Datagram& datagram = batch[count];
    datagram.info = {.source = packet->path.local,
                     .destination = packet->path.remote,
                     .source_port = port_.source_port(),
                     .destination_port = wire::kRoceUdpPort,
                     .traffic_class = packet->path.traffic_class,
                     .hop_limit = packet->path.hop_limit,
                     .ifindex = packet->path.ifindex,
                     .ipv4_id = 0};
    wire::emit_gsi_packet(datagram.info, psn_, packet->mad, bytes[count]);
    psn_ = (psn_ + 1) & wire::kMask24;
    datagram.payload = bytes[count];
    probes::message_sent(packet->mad, datagram.info.destination);
    if (recorder_ != nullptr) recorder_->sent(*packet, datagram.info);
    if (++count == batch.size()) {
      port_.send(batch);
      count = 0;
    }
  }
  if (count != 0) port_.send({batch.data(), count});
}

void Core::on_devices_changed() {
  for (auto& [number, id] : ids_) {
    if (id.ifindex == 0 || id.removal_told || id.state == IdState::kListen) continue;
    if (host_.find_device(id.ifindex) != nullptr) continue;
    id.removal_told = true;
    push_event(number, {.type = ipc::CmEventType::kDeviceRemoval, .id = number});
  }
  if (callbacks_.devices_changed) callbacks_.devices_changed();
}

std::vector<Node::ListenerStatus> Core::listeners() const {
  std::vector<Node::ListenerStatus> all;
  for (const auto& [number, id] : ids_) {
    if (id.state != IdState::kListen) continue;
    all.push_back({.session = id.session,
                   .local = to_socket_address(id.local),
                   .port_space = static_cast<std::uint16_t>(id.port_space),
                   .backlog = id.backlog,
                   .pending = static_cast<std::uint32_t>(id.untaken.size())});
  }
  return all;
}

std::vector<Node::ConnectionStatus> Core::connections() const {
  std::vector<Node::ConnectionStatus> all;
  for (const auto& [number, id] : ids_) {
    const auto qp = engine_.qp_parameters(id.connection);
    const auto state = engine_.state(id.connection);
    if (!qp || !state) continue;
    all.push_back({.session = id.session,
                   .local = to_socket_address(id.local),
                   .remote = to_socket_address(id.remote),
                   .qpn = qp->local_qpn,
                   .peer_qpn = qp->dest_qpn,
                   .state = std::string(cm::name(*state))});
  }
  return all;
}

std::vector<Node::Count> Core::counters() const {
  std::vector<Node::Count> all = {{"node_received", counters_.received},
                                  {"node_data", counters_.data},
                                  {"node_short_packet", counters_.short_packet},
                                  {"node_bad_icrc", counters_.bad_icrc},
                                  {"node_solved_icrc", counters_.solved_icrc},
                                  {"node_bad_gsi", counters_.bad_gsi},
                                  {"node_not_ours", counters_.not_ours},
                                  {"node_not_the_node", counters_.not_the_node},
                                  {"refused_ids", quotas_.refused(Resource::kIds)},
                                  {"refused_listeners", quotas_.refused(Resource::kListeners)},
                                  {"refused_half_open", quotas_.refused(Resource::kHalfOpen)},
                                  {"refused_too_fast", quotas_.refused_too_fast()}};
  for (const cm::CounterField& field : cm::kCounterFields) {
    all.push_back({field.name, counted_before_.*field.member + engine_.counters().*field.member});
  }
  return all;
}

std::vector<Node::Count> Core::held() const {
  const cm::Engine::Usage engine = engine_.usage();
  return {{"ids", ids_.size()},
          {"listeners", engine.listeners},
          {"connections", engine.connections},  // up to the end of timewait
          {"orphans", engine.orphans},          // of these: destroyed, and DREQ is repeated
          {"comm_ids", engine.comm_ids},
          {"remote_ids", engine.remote_ids},
          {"remote_qps", engine.remote_qps},
          {"exchanges", engine.exchanges},
          {"requests", engine.requests},
          {"requests_in_flight", engine.requests_in_flight},
          {"timers", engine.timers},
          {"sidr_exchanges", engine.sidr_exchanges},
          {"sidr_messages", engine.sidr_messages},
          {"last_words", engine.last_words}};
}

}  // namespace ucm::node
