// What a node keeps in the journal, and how it goes on with what another node has kept there.
#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "ipc/limits.h"
#include "node/core.h"

namespace ucm::node {
namespace {

constexpr std::uint8_t kFamilyNotSet = 2;

IdRecord record_of(const RdmaId& id) {
  return {.id = id.id,
          .session = id.session,
          .link = id.link,
          .ifindex = id.ifindex,
          .local = to_socket_address(id.local),
          .remote = to_socket_address(id.remote),
          .bound = to_socket_address(id.bound),
          .bound_ifindex = id.bound_ifindex,
          .resolve_deadline = id.resolve_deadline,
          .flow_label = id.flow_label,
          .backlog = id.backlog,
          .listen_id = id.listen_id,
          .port_space = static_cast<std::uint16_t>(id.port_space),
          .qp_type = id.qp_type,
          .state = static_cast<std::uint8_t>(id.state),
          .type_of_service = id.type_of_service,
          .ack_timeout = id.ack_timeout,
          .reuse_address = id.reuse_address,
          .family_only = id.family_only ? std::uint8_t{*id.family_only} : kFamilyNotSet,
          .path_mtu = id.path_mtu,
          .packet_lifetime = id.packet_lifetime,
          .traffic_class = id.traffic_class,
          .passive = id.passive,
          .accepted = id.accepted,
          .answered = id.answered,
          .removal_told = id.removal_told,
          .local_scope = id.local.scope,
          .remote_scope = id.remote.scope,
          .bound_scope = id.bound.scope};
}

// A scope is more than a socket address tells: the interface of any address, not of a link-local one alone.
Endpoint endpoint_of(const ipc::SocketAddress& address, std::uint32_t scope) {
  Endpoint endpoint = node::endpoint_of(address).value_or(Endpoint{});
  endpoint.scope = scope;
  return endpoint;
}

RdmaId id_of(const IdRecord& record) {
  RdmaId id{.id = record.id,
            .session = record.session,
            .link = record.link,
            .port_space = static_cast<wire::PortSpace>(record.port_space),
            .qp_type = record.qp_type,
            .state = static_cast<IdState>(record.state),
            .local = endpoint_of(record.local, record.local_scope),
            .remote = endpoint_of(record.remote, record.remote_scope),
            .ifindex = record.ifindex,
            .type_of_service = record.type_of_service,
            .ack_timeout = record.ack_timeout,
            .reuse_address = record.reuse_address != 0,
            .bound = endpoint_of(record.bound, record.bound_scope),
            .bound_ifindex = record.bound_ifindex,
            .path_mtu = record.path_mtu,
            .packet_lifetime = record.packet_lifetime,
            .traffic_class = record.traffic_class,
            .flow_label = record.flow_label,
            .backlog = record.backlog,
            .passive = record.passive != 0,
            .accepted = record.accepted != 0,
            .listen_id = record.listen_id,
            .removal_told = record.removal_told != 0,
            .answered = record.answered != 0};
  if (record.family_only < kFamilyNotSet) id.family_only = record.family_only != 0;
  return id;
}

}  // namespace

// --- Keeping

void Core::keep_in(Journal& journal) {
  journal_ = &journal;
  engine_.note_changes();
}

void Core::note(RdmaId& id) {
  if (journal_ == nullptr || id.noted) return;
  id.noted = true;
  changed_ids_.push_back(id.id);
}

void Core::keep(LinkId link, Grant& grant) {
  if (journal_ == nullptr) return;
  const GrantRecord record{.link = link, .session = grant.session, .next = grant.next, .left = grant.left};
  grant.cell = journal_->put(grant.cell, record);
}

void Core::commit() {
  if (journal_ == nullptr) return;
  keep_changes();
  journal_->commit();
}

void Core::keep_changes() {
  while (const auto slot = engine_.poll_changed()) {
    if (*slot >= connection_cells_.size()) connection_cells_.resize(*slot + 1, Journal::kNone);
    Journal::Cell& cell = connection_cells_[*slot];
    if (const auto record = engine_.record_of(*slot)) {
      cell = journal_->put(cell, ConnectionCell{*record});
    } else {
      journal_->drop(cell);
    }
  }
  for (const std::uint32_t number : changed_ids_) {
    RdmaId* const id = find(number);
    if (id == nullptr) continue;
    id->noted = false;
    id->cell = journal_->put(id->cell, record_of(*id));
  }
  changed_ids_.clear();
  for (Told& told : events_) {
    if (told.cell != Journal::kNone) continue;
    told.cell = journal_->put(told.cell, EventRecord{.number = events_kept_++, .id = told.id, .event = told.event});
  }
}

// --- Going on

Result<void> Core::restore(TimeNs now, const std::function<bool(SessionId, LinkId)>& has_link) {
  UCM_CHECK(journal_ != nullptr && ids_.empty());
  at(now);
  if (auto restored = restore_ids(has_link); !restored) return restored;
  restore_grants(has_link);
  if (auto restored = restore_connections(now); !restored) return restored;
  restore_events();
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, id] : ids_) numbers.push_back(number);
  std::ranges::sort(numbers);
  for (const std::uint32_t number : numbers) {
    if (auto goes_on = go_on(now, *find(number)); !goes_on) return goes_on;
  }
  engine_.resume(now);
  work_ = true;
  return {};
}

Result<void> Core::restore_ids(const std::function<bool(SessionId, LinkId)>& has_link) {
  Result<void> result;
  journal_->for_each<IdRecord>([&](Journal::Cell cell, const IdRecord& record) {
    if (record.id == 0 || record.state >= kIdStateCount || ids_.contains(record.id)) {
      result = fail(EPROTO, "the journal's ID " + std::to_string(record.id) + " contradicts itself or another one");
      return;
    }
    // Its link or its session was on its way out.
    if (!has_link(record.session, record.link)) return journal_->drop(cell);
    RdmaId& id = ids_[record.id] = id_of(record);
    id.cell = cell;
    if (callbacks_.user_of) id.user = callbacks_.user_of(id.session);
    quotas_.hold(id.session, id.user, Resource::kIds);
    last_id_ = std::max(last_id_, id.id);
    if (!id.passive && id.local.port != 0) {
      ports_.restore(static_cast<PortSpaces::Space>(id.port_space), id.id, id.local.port, claim_of(id));
    }
  });
  return result;
}

void Core::restore_grants(const std::function<bool(SessionId, LinkId)>& has_link) {
  journal_->for_each<GrantRecord>([&](Journal::Cell cell, const GrantRecord& record) {
    const bool usable =
        has_link(record.session, record.link) && record.left <= ipc::kIdNumbersMax && !grants_.contains(record.link);
    if (!usable) return journal_->drop(cell);
    quotas_.hold(record.session, user_of(record.session), Resource::kIds, record.left);
    grants_[record.link] = {.session = record.session, .next = record.next, .left = record.left, .cell = cell};
    if (record.left != 0) last_id_ = std::max(last_id_, record.next + record.left - 1);
  });
}

Result<void> Core::restore_connections(TimeNs now) {
  Result<void> result;
  journal_->for_each<ConnectionCell>([&](Journal::Cell cell, const ConnectionCell& record) {
    const auto connection = engine_.restore(record.connection);
    if (!connection) {
      result = tl::unexpected(connection.error());
      return;
    }
    const std::uint32_t slot = cm::slot_in(*connection);
    if (slot >= connection_cells_.size()) connection_cells_.resize(slot + 1, Journal::kNone);
    connection_cells_[slot] = cell;
    RdmaId* const id = find(static_cast<std::uint32_t>(record.connection.user));
    if (id == nullptr || id->connection != cm::ConnectionId{}) {
      engine_.destroy(now, *connection);  // nothing where it is an orphan anyway
      return;
    }
    if (!engine_.state(*connection)) return;
    id->connection = *connection;
    if (recorder_ != nullptr) recorder_->adopt(*id);
  });
  return result;
}

// In the order of their numbers: cells are taken as they are free.
void Core::restore_events() {
  std::vector<std::pair<std::uint64_t, Told>> kept;
  journal_->for_each<EventRecord>([&](Journal::Cell cell, const EventRecord& record) {
    if (record.link == 0) kept.emplace_back(record.number, Told{record.id, record.event, cell});
  });
  std::ranges::sort(kept, {}, [](const auto& entry) { return entry.first; });
  for (const auto& [number, told] : kept) {
    events_.push_back(told);
    events_kept_ = number + 1;
  }
}

// What was going on for an ID goes on, or ends in an event.
Result<void> Core::go_on(TimeNs now, RdmaId& id) {
  if (RdmaId* const listening = find(id.listen_id)) {
    listening->untaken.insert(id.id);
  } else {
    id.listen_id = 0;
  }
  if (id.state == IdState::kListen) {
    quotas_.hold(id.session, id.user, Resource::kListeners);
    listening_.insert(id.id);
    return start_listening(id);
  }
  if (id.state == IdState::kAddrQuery) {
    const Endpoint destination = id.remote;
    const TimeNs left = std::max<TimeNs>(id.resolve_deadline - now, 0) / kNanosecondsPerMillisecond;
    id.resolve_deadline = kNever;
    id.local = id.bound;
    id.ifindex = id.bound_ifindex;
    const auto started = start_resolution(now, id, destination, static_cast<std::uint32_t>(left));
    if (!started) finish_resolution(id, -started.error().code);
  }
  // Nobody knows the question any more, and no answer will come.
  if (id.is_datagram() && id.state == IdState::kConnect && !id.passive && !id.answered) {
    id.answered = true;
    push_event(id.id, {.type = ipc::CmEventType::kUnreachable, .status = -ETIMEDOUT, .id = id.id});
  }
  return {};
}

}  // namespace ucm::node
