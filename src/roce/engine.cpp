#include "roce/engine.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/deadline_heap.h"
#include "base/ring_queue.h"
#include "roce/completion_queue.h"
#include "roce/core.h"
#include "roce/limits.h"
#include "roce/object_table.h"
#include "roce/packet.h"
#include "roce/queue_pair.h"
#include "roce/receive_queue.h"
#include "wire/icrc.h"

namespace ucm::roce {
namespace {

struct ProtectionDomain {
  std::uint32_t users = 0;  // regions, queues, address handles
};

struct XrcDomain {
  std::uint32_t users = 0;  // SRQs and receiving QPs
};

struct AddressHandle {
  PdId pd{};
  AddressVector address;
};

constexpr std::uint16_t kPkeyNumberMask = 0x7FFF;  // without the membership bit

Result<void> check_capacity(const QpCapacity& capacity) {
  if (capacity.send_wr_max > kWorkRequestsMax) return fail(EINVAL, "send queue too long");
  if (capacity.recv_wr_max > kWorkRequestsMax) return fail(EINVAL, "receive queue too long");
  if (capacity.send_sge_max > kSgeMax) return fail(EINVAL, "too many gather elements");
  if (capacity.recv_sge_max > kSgeMax) return fail(EINVAL, "too many scatter elements");
  if (capacity.inline_max > kInlineMax) return fail(EINVAL, "too much inline data");
  return {};
}

}  // namespace

struct Engine::State {
  explicit State(const RandomKey& key) : core(key), srq_numbers({key[1], key[0]}) {}

  QueuePair* find_qp(Qpn qpn) const;
  void add_qp(Qpn qpn, std::unique_ptr<QueuePair> qp);
  void remove_qp(Qpn qpn);
  Result<QueuePair::Queues> find_queues(const QpParams& params) const;
  void count_users(const QpParams& params, std::uint32_t change);
  void count_users(const SrqParams& params, std::uint32_t change);
  std::uint32_t make_srq_number();
  // After anything was done to the QP in `slot`: its place in the schedule and among the deadlines.
  void settle(std::uint32_t slot);
  void settle_qp(Qpn qpn) { settle(slot_of_qpn.at(qpn)); }
  std::size_t groups_of(Qpn qpn) const;
  void deliver(TimeNs now, const wire::DatagramInfo& info, const Packet& packet, Qpn qpn);
  std::size_t seal(std::uint16_t source_port, wire::DatagramInfo& info, std::size_t size, MutableBytes out);

  Core core;
  ObjectTable<PdId, ProtectionDomain> pds;
  ObjectTable<CqId, CompletionQueue> cqs;
  ObjectTable<SrqId, SharedReceiveQueue> srqs;
  ObjectTable<AhId, AddressHandle> ahs;
  ObjectTable<XrcdId, XrcDomain> xrcds;
  Random srq_numbers;

  struct QpSlot {
    std::unique_ptr<QueuePair> qp;
    bool queued = false;  // in `ready`, perhaps for a QP that was here before
  };
  std::vector<QpSlot> slots;
  std::vector<std::uint32_t> free_slots;
  std::unordered_map<Qpn, std::uint32_t> slot_of_qpn;
  std::map<wire::MulticastGroup, std::set<Qpn>> groups;
  RingQueue<std::uint32_t> ready;  // slots whose QPs may have something to send, in turn
  DeadlineHeap deadlines;          // by slot
};

QueuePair* Engine::State::find_qp(Qpn qpn) const {
  const auto found = slot_of_qpn.find(qpn);
  return found == slot_of_qpn.end() ? nullptr : slots[found->second].qp.get();
}

void Engine::State::add_qp(Qpn qpn, std::unique_ptr<QueuePair> qp) {
  if (free_slots.empty()) {
    free_slots.push_back(static_cast<std::uint32_t>(slots.size()));
    slots.emplace_back();
  }
  const std::uint32_t slot = free_slots.back();
  free_slots.pop_back();
  slots[slot].qp = std::move(qp);
  slot_of_qpn.emplace(qpn, slot);
}

void Engine::State::remove_qp(Qpn qpn) {
  const auto found = slot_of_qpn.find(qpn);
  const std::uint32_t slot = found->second;
  deadlines.remove(slot);
  slots[slot].qp.reset();
  free_slots.push_back(slot);
  slot_of_qpn.erase(found);
}

void Engine::State::count_users(const QpParams& params, std::uint32_t change) {
  if (params.type == QpType::kXrcRecv) {
    xrcds.find(params.xrcd)->users += change;
    return;
  }
  pds.find(params.pd)->users += change;
  cqs.find(params.send_cq)->users += change;
  if (params.type == QpType::kXrcSend) return;
  cqs.find(params.recv_cq)->users += change;
  if (params.srq) srqs.find(*params.srq)->users += change;
}

void Engine::State::count_users(const SrqParams& params, std::uint32_t change) {
  pds.find(params.pd)->users += change;
  if (!params.xrc) return;
  xrcds.find(params.xrc->xrcd)->users += change;
  cqs.find(params.xrc->cq)->users += change;
}

// The queues that a QP of this type has.
Result<QueuePair::Queues> Engine::State::find_queues(const QpParams& params) const {
  QueuePair::Queues queues;
  if (params.type == QpType::kXrcRecv) {
    if (xrcds.find(params.xrcd) == nullptr) return fail(EINVAL, "no such XRC domain");
    return queues;
  }
  if (pds.find(params.pd) == nullptr) return fail(EINVAL, "no such protection domain");
  queues.send_cq = cqs.find(params.send_cq);
  if (queues.send_cq == nullptr) return fail(EINVAL, "no such completion queue");
  if (params.type == QpType::kXrcSend) return queues;
  queues.recv_cq = cqs.find(params.recv_cq);
  if (queues.recv_cq == nullptr) return fail(EINVAL, "no such completion queue");
  if (!params.srq) return queues;
  queues.srq = srqs.find(*params.srq);
  if (queues.srq == nullptr || queues.srq->params.xrc) return fail(EINVAL, "no such shared receive queue");
  return queues;
}

// At random, so that a peer that takes this process for another one, or an old SRQ for a new one, finds nothing.
std::uint32_t Engine::State::make_srq_number() {
  std::uint32_t number = 0;
  while (number == 0 || core.xrc_srqs.contains(number)) number = srq_numbers.next_u32() & wire::kMask24;
  return number;
}

void Engine::State::settle(std::uint32_t slot) {
  QueuePair& qp = *slots[slot].qp;
  if (qp.lost_completion()) qp.fail_with(EventType::kQpFatal);
  if (qp.has_output() && !slots[slot].queued) {
    slots[slot].queued = true;
    ready.push(slot);
  }
  const TimeNs deadline = qp.next_deadline();
  if (deadlines.deadline_of(slot) != deadline) deadlines.set(slot, deadline);
}

std::size_t Engine::State::groups_of(Qpn qpn) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(groups, [qpn](const auto& entry) { return entry.second.contains(qpn); }));
}

void Engine::State::deliver(TimeNs now, const wire::DatagramInfo& info, const Packet& packet, Qpn qpn) {
  const auto found = slot_of_qpn.find(qpn);
  if (found == slot_of_qpn.end()) {
    ++core.counters.unknown_qp;
    return;
  }
  slots[found->second].qp->on_packet(now, info, packet);
  settle(found->second);
}

// Completes a packet of `size` bytes up to its pad with what every packet needs.
std::size_t Engine::State::seal(std::uint16_t source_port, wire::DatagramInfo& info, std::size_t size,
                                MutableBytes out) {
  info.source_port = source_port;
  info.destination_port = wire::kRoceUdpPort;
  info.ipv4_id = 0;
  wire::store_icrc(out.subspan(size, wire::kIcrcSize), wire::icrc(info, out.first(size)));
  ++core.counters.packets_sent;
  return size + wire::kIcrcSize;
}

Engine::Engine(const RandomKey& key) : state_(std::make_unique<State>(key)) {}
Engine::~Engine() = default;

// ------------------------------------------------------------------------------------------------ domains, memory

Result<PdId> Engine::alloc_pd() {
  if (state_->pds.full()) return fail(ENOMEM, "too many protection domains");
  return state_->pds.add(std::make_unique<ProtectionDomain>());
}

Result<void> Engine::dealloc_pd(PdId pd) {
  const ProtectionDomain* domain = state_->pds.find(pd);
  if (domain == nullptr) return fail(EINVAL, "no such protection domain");
  if (domain->users != 0) return fail(EBUSY, "the protection domain is in use");
  state_->pds.remove(pd);
  return {};
}

bool Engine::has_pd(PdId pd) const { return state_->pds.find(pd) != nullptr; }

Result<MrParams> Engine::query_mr(std::uint32_t lkey) const { return state_->core.memory.params_of(lkey); }

Result<MrKeys> Engine::reg_mr(const MrParams& params) {
  ProtectionDomain* domain = state_->pds.find(params.pd);
  if (domain == nullptr) return fail(EINVAL, "no such protection domain");
  Result<MrKeys> keys = state_->core.memory.add(params);
  if (keys) ++domain->users;
  return keys;
}

Result<void> Engine::dereg_mr(std::uint32_t lkey) {
  const Result<PdId> pd = state_->core.memory.remove(lkey);
  if (!pd) return tl::unexpected(pd.error());
  --state_->pds.find(*pd)->users;
  return {};
}

Result<void> Engine::rereg_mr(std::uint32_t lkey, const MrParams& params) {
  ProtectionDomain* domain = state_->pds.find(params.pd);
  if (domain == nullptr) return fail(EINVAL, "no such protection domain");
  const Result<PdId> before = state_->core.memory.change(lkey, params);
  if (!before) return tl::unexpected(before.error());
  --state_->pds.find(*before)->users;
  ++domain->users;
  return {};
}

Result<std::uint32_t> Engine::alloc_mw(PdId pd, WindowType type) {
  ProtectionDomain* domain = state_->pds.find(pd);
  if (domain == nullptr) return fail(EINVAL, "no such protection domain");
  Result<std::uint32_t> rkey = state_->core.memory.add_window(pd, type);
  if (rkey) ++domain->users;
  return rkey;
}

Result<void> Engine::dealloc_mw(std::uint32_t rkey) {
  const Result<PdId> pd = state_->core.memory.remove_window(rkey);
  if (!pd) return tl::unexpected(pd.error());
  --state_->pds.find(*pd)->users;
  return {};
}

// ------------------------------------------------------------------------------------------------ completion queues

Result<CqId> Engine::create_cq(std::uint32_t cqe_min, std::uint64_t user) {
  if (cqe_min == 0 || cqe_min > kCqeMax) return fail(EINVAL, "completion queue size out of range");
  if (state_->cqs.full()) return fail(ENOMEM, "too many completion queues");
  return state_->cqs.add(std::make_unique<CompletionQueue>(cqe_min, user));
}

std::uint32_t Engine::cq_capacity(CqId cq) const {
  const CompletionQueue* queue = state_->cqs.find(cq);
  return queue == nullptr ? 0 : queue->capacity();
}

Result<void> Engine::resize_cq(CqId cq, std::uint32_t cqe_min) {
  CompletionQueue* queue = state_->cqs.find(cq);
  if (queue == nullptr) return fail(EINVAL, "no such completion queue");
  if (cqe_min == 0 || cqe_min > kCqeMax) return fail(EINVAL, "completion queue size out of range");
  if (cqe_min < queue->size()) return fail(EINVAL, "the completion queue holds more completions than that");
  queue->set_capacity(cqe_min);
  return {};
}

Result<void> Engine::destroy_cq(CqId cq) {
  const CompletionQueue* queue = state_->cqs.find(cq);
  if (queue == nullptr) return fail(EINVAL, "no such completion queue");
  if (queue->users != 0) return fail(EBUSY, "the completion queue is in use");
  state_->core.events.remove_if([user = queue->user()](const Event& event) {
    return event.user == user && (event.type == EventType::kCompletion || event.type == EventType::kCqOverrun);
  });
  state_->cqs.remove(cq);
  return {};
}

Result<std::size_t> Engine::poll_cq(CqId cq, std::span<Completion> out) {
  CompletionQueue* queue = state_->cqs.find(cq);
  if (queue == nullptr) return fail(EINVAL, "no such completion queue");
  if (queue->overrun()) return fail(EINVAL, "the completion queue has lost a completion");
  return queue->poll(out);
}

void Engine::request_notify(CqId cq, NotifyKind kind) {
  if (CompletionQueue* queue = state_->cqs.find(cq)) queue->request_notify(kind);
}

// ------------------------------------------------------------------------------------------------ shared receive
// queues

Result<XrcdId> Engine::alloc_xrcd() {
  if (state_->xrcds.full()) return fail(ENOMEM, "too many XRC domains");
  return state_->xrcds.add(std::make_unique<XrcDomain>());
}

Result<void> Engine::dealloc_xrcd(XrcdId xrcd) {
  const XrcDomain* domain = state_->xrcds.find(xrcd);
  if (domain == nullptr) return fail(EINVAL, "no such XRC domain");
  if (domain->users != 0) return fail(EBUSY, "the XRC domain is in use");
  state_->xrcds.remove(xrcd);
  return {};
}

Result<SrqId> Engine::create_srq(const SrqParams& params) {
  if (state_->pds.find(params.pd) == nullptr) return fail(EINVAL, "no such protection domain");
  if (params.wr_max == 0 || params.wr_max > kWorkRequestsMax) {
    return fail(EINVAL, "shared receive queue length out of range");
  }
  if (params.sge_max > kSgeMax) return fail(EINVAL, "too many scatter elements");
  if (params.xrc && state_->xrcds.find(params.xrc->xrcd) == nullptr) return fail(EINVAL, "no such XRC domain");
  if (params.xrc && state_->cqs.find(params.xrc->cq) == nullptr) return fail(EINVAL, "no such completion queue");
  if (state_->srqs.full()) return fail(ENOMEM, "too many shared receive queues");
  state_->count_users(params, 1);
  auto srq = std::make_unique<SharedReceiveQueue>(params);
  if (params.xrc) {
    srq->cq = state_->cqs.find(params.xrc->cq);
    srq->number = state_->make_srq_number();
    state_->core.xrc_srqs.emplace(srq->number, srq.get());
  }
  return state_->srqs.add(std::move(srq));
}

Result<std::uint32_t> Engine::srq_number(SrqId srq) const {
  const SharedReceiveQueue* queue = state_->srqs.find(srq);
  if (queue == nullptr || !queue->params.xrc) return fail(EINVAL, "no such shared receive queue of XRC");
  return queue->number;
}

Result<void> Engine::destroy_srq(SrqId srq) {
  const SharedReceiveQueue* queue = state_->srqs.find(srq);
  if (queue == nullptr) return fail(EINVAL, "no such shared receive queue");
  if (queue->users != 0) return fail(EBUSY, "the shared receive queue is in use");
  state_->core.events.remove_if([user = queue->params.user](const Event& event) {
    return event.user == user && event.type == EventType::kSrqLimit;
  });
  if (queue->params.xrc) state_->core.xrc_srqs.erase(queue->number);
  state_->count_users(queue->params, UINT32_MAX);
  state_->srqs.remove(srq);
  return {};
}

Result<void> Engine::set_srq_limit(SrqId srq, std::uint32_t limit) {
  SharedReceiveQueue* queue = state_->srqs.find(srq);
  if (queue == nullptr) return fail(EINVAL, "no such shared receive queue");
  if (limit > queue->queue.capacity()) return fail(EINVAL, "the limit exceeds the shared receive queue's length");
  queue->limit = limit;
  return {};
}

std::uint32_t Engine::srq_limit(SrqId srq) const {
  const SharedReceiveQueue* queue = state_->srqs.find(srq);
  return queue == nullptr ? 0 : queue->limit;
}

Result<void> Engine::post_srq_recv(TimeNs, SrqId srq, const RecvRequest& request) {
  SharedReceiveQueue* queue = state_->srqs.find(srq);
  if (queue == nullptr) return fail(EINVAL, "no such shared receive queue");
  return queue->queue.post(request);
}

// ------------------------------------------------------------------------------------------------ address handles

Result<AhId> Engine::create_ah(PdId pd, const AddressVector& address) {
  ProtectionDomain* domain = state_->pds.find(pd);
  if (domain == nullptr) return fail(EINVAL, "no such protection domain");
  if (state_->ahs.full()) return fail(ENOMEM, "too many address handles");
  ++domain->users;
  return state_->ahs.add(std::make_unique<AddressHandle>(AddressHandle{.pd = pd, .address = address}));
}

void Engine::destroy_ah(AhId ah) {
  const AddressHandle* handle = state_->ahs.find(ah);
  if (handle == nullptr) return;
  --state_->pds.find(handle->pd)->users;
  state_->ahs.remove(ah);
}

// ------------------------------------------------------------------------------------------------ queue pairs

Result<void> Engine::create_qp(QpParams& params) {
  const Result<QueuePair::Queues> queues = state_->find_queues(params);
  if (!queues) return tl::unexpected(queues.error());
  if (params.qpn > wire::kMask24 || state_->find_qp(params.qpn) != nullptr) {
    return fail(EINVAL, "the queue pair number is out of range or in use");
  }
  if (Result<void> valid = check_capacity(params.capacity); !valid) return valid;
  if (state_->slot_of_qpn.size() >= kObjectsMax) return fail(ENOMEM, "too many queue pairs");
  params.capacity.inline_max = std::max(params.capacity.inline_max, params.capacity.send_sge_max * kInlinePerSge);
  state_->count_users(params, 1);
  state_->add_qp(params.qpn, std::make_unique<QueuePair>(state_->core, params, *queues));
  return {};
}

Result<void> Engine::modify_qp(TimeNs, Qpn qpn, const QpAttributes& attributes, std::uint32_t mask) {
  QueuePair* qp = state_->find_qp(qpn);
  if (qp == nullptr) return fail(EINVAL, "no such queue pair");
  Result<void> modified = qp->modify(attributes, mask);
  state_->settle_qp(qpn);
  return modified;
}

Result<QpAttributes> Engine::query_qp(Qpn qpn) const {
  const QueuePair* qp = state_->find_qp(qpn);
  if (qp == nullptr) return fail(EINVAL, "no such queue pair");
  return qp->attributes();
}

Result<void> Engine::destroy_qp(TimeNs, Qpn qpn) {
  QueuePair* qp = state_->find_qp(qpn);
  if (qp == nullptr) return fail(EINVAL, "no such queue pair");
  if (state_->groups_of(qpn) != 0) return fail(EBUSY, "the queue pair is attached to a multicast group");
  qp->retire();
  state_->core.events.remove_if([user = qp->params().user](const Event& event) {
    const bool other = event.type == EventType::kCompletion || event.type == EventType::kCqOverrun ||
                       event.type == EventType::kSrqLimit;
    return event.user == user && !other;
  });
  state_->count_users(qp->params(), UINT32_MAX);
  state_->remove_qp(qpn);
  return {};
}

Result<bool> Engine::attach_multicast(Qpn qpn, const wire::MulticastGroup& group) {
  const QueuePair* qp = state_->find_qp(qpn);
  if (qp == nullptr || qp->params().type != QpType::kUd) return fail(EINVAL, "only UD queue pairs take multicast");
  if (!group.address.is_multicast()) return fail(EINVAL, "not a multicast address");
  if (state_->groups_of(qpn) >= kGroupsPerQpMax) return fail(ENOMEM, "the queue pair is in too many groups");
  return state_->groups[group].insert(qpn).second;
}

Result<void> Engine::detach_multicast(Qpn qpn, const wire::MulticastGroup& group) {
  const auto members = state_->groups.find(group);
  if (members == state_->groups.end() || members->second.erase(qpn) == 0) {
    return fail(EINVAL, "the queue pair is not attached to the group");
  }
  if (members->second.empty()) state_->groups.erase(members);
  return {};
}

Result<void> Engine::post_send(TimeNs, Qpn qpn, const SendRequest& request) {
  QueuePair* qp = state_->find_qp(qpn);
  if (qp == nullptr) return fail(EINVAL, "no such queue pair");
  const AddressHandle* handle = qp->params().type == QpType::kUd ? state_->ahs.find(request.ah) : nullptr;
  Result<void> posted = qp->post_send(request, handle == nullptr ? nullptr : &handle->address);
  state_->settle_qp(qpn);
  return posted;
}

Result<void> Engine::post_recv(TimeNs, Qpn qpn, const RecvRequest& request) {
  QueuePair* qp = state_->find_qp(qpn);
  if (qp == nullptr) return fail(EINVAL, "no such queue pair");
  Result<void> posted = qp->post_recv(request);
  state_->settle_qp(qpn);
  return posted;
}

// ------------------------------------------------------------------------------------------------ packets, time

void Engine::on_packet(TimeNs now, const wire::DatagramInfo& info, Bytes payload) {
  Counters& counters = state_->core.counters;
  ++counters.packets_received;
  const wire::IcrcCheck check = wire::verify_icrc(info, payload);
  if (check == wire::IcrcCheck::kBad) {
    ++counters.icrc_errors;
    return;
  }
  if (check == wire::IcrcCheck::kSolvedId) ++counters.icrc_solved_ids;
  const std::optional<Packet> packet = parse_packet(payload.first(payload.size() - wire::kIcrcSize));
  if (!packet) {
    ++counters.malformed;
    return;
  }
  if (((packet->bth.pkey ^ wire::kDefaultPkey) & kPkeyNumberMask) != 0) {
    ++counters.pkey_violations;
    return;
  }
  if (packet->bth.destination_qpn != wire::kMulticastQpn) {
    return state_->deliver(now, info, *packet, packet->bth.destination_qpn);
  }
  const auto group = state_->groups.find({info.destination, info.ifindex});
  if (group == state_->groups.end()) {
    ++counters.unknown_qp;
    return;
  }
  for (const Qpn qpn : group->second) state_->deliver(now, info, *packet, qpn);
}

std::size_t Engine::poll_packet(TimeNs now, std::uint16_t source_port, wire::DatagramInfo& info, MutableBytes out) {
  UCM_CHECK(out.size() >= kPacketSizeMax);
  info = {};
  RingQueue<Farewell>& farewells = state_->core.farewells;
  if (!farewells.empty()) {
    const Farewell farewell = farewells.front();
    farewells.pop_front();
    fill_addresses(farewell.address, info);
    return state_->seal(source_port, info, build_farewell(farewell, out), out);
  }
  // A round that builds nothing leaves its QP without output, so each slot comes up once more at most.
  while (!state_->ready.empty()) {
    const std::uint32_t slot = state_->ready.front();
    state_->ready.pop_front();
    state_->slots[slot].queued = false;
    QueuePair* qp = state_->slots[slot].qp.get();
    if (qp == nullptr || !qp->has_output()) continue;
    const std::size_t size = qp->build_packet(now, info, out);
    state_->settle(slot);
    if (size != 0) return state_->seal(source_port, info, size, out);
  }
  return 0;
}

std::optional<Event> Engine::poll_event() {
  EventQueue& events = state_->core.events;
  if (events.empty()) return std::nullopt;
  const Event event = events.front();
  events.pop_front();
  return event;
}

TimeNs Engine::next_deadline() const { return state_->deadlines.next(); }

void Engine::on_deadline(TimeNs now) {
  // Each QP that is due moves its deadline beyond `now`, so each comes up once.
  for (std::size_t left = state_->deadlines.size(); left > 0 && state_->deadlines.next() <= now; --left) {
    const std::uint32_t slot = state_->deadlines.pop();
    state_->slots[slot].qp->on_deadline(now);
    state_->settle(slot);
  }
}

void Engine::fail_all(TimeNs) {
  for (std::uint32_t slot = 0; slot < state_->slots.size(); ++slot) {
    if (state_->slots[slot].qp == nullptr) continue;
    state_->slots[slot].qp->fail_with(EventType::kQpFatal);
    state_->settle(slot);
  }
}

const Counters& Engine::counters() const { return state_->core.counters; }

}  // namespace ucm::roce
