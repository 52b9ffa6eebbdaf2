#include "roce/queue_pair.h"

#include <cerrno>

#include "roce/limits.h"
#include "roce/qp_states.h"

namespace ucm::roce {
namespace {

constexpr std::uint8_t kPathMtuMax = 5;     // 4096 bytes
constexpr std::uint8_t kTimerCodeMax = 31;  // five bits
constexpr std::uint8_t kRetryMax = 7;       // three bits

constexpr CompletionOpcode completion_opcode(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kWrite:
    case SendOpcode::kWriteImm:
      return CompletionOpcode::kWrite;
    case SendOpcode::kRead:
      return CompletionOpcode::kRead;
    case SendOpcode::kCompareSwap:
      return CompletionOpcode::kCompareSwap;
    case SendOpcode::kFetchAdd:
      return CompletionOpcode::kFetchAdd;
    case SendOpcode::kBindWindow:
      return CompletionOpcode::kBindWindow;
    case SendOpcode::kLocalInvalidate:
      return CompletionOpcode::kLocalInvalidate;
    default:
      return CompletionOpcode::kSend;
  }
}

bool receives(QpState state) { return state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqd; }
bool sends(QpState state) { return state == QpState::kRts || state == QpState::kSqd; }

}  // namespace

QueuePair::QueuePair(Core& core, const QpParams& params, const Queues& queues)
    : core_(core),
      params_(params),
      queues_(queues),
      send_queue_(params.capacity),
      receive_queue_(params.capacity.recv_wr_max, params.capacity.recv_sge_max),
      requester_(core, *this),
      responder_(core, *this),
      datagrams_(core, *this) {
  attributes_ = initial_attributes();
}

QpAttributes QueuePair::initial_attributes() const {
  QpAttributes attributes;
  if (params_.type == QpType::kUd) attributes.path_mtu = kPathMtuMax;
  return attributes;
}

wire::Service QueuePair::service() const {
  switch (params_.type) {
    case QpType::kUc:
      return wire::Service::kUc;
    case QpType::kUd:
      return wire::Service::kUd;
    case QpType::kXrcSend:
    case QpType::kXrcRecv:
      return wire::Service::kXrc;
    default:
      return wire::Service::kRc;
  }
}

// ------------------------------------------------------------------------------------------------ states

Result<void> QueuePair::check_values(const QpAttributes& attributes, std::uint32_t mask) const {
  const auto wrong = [mask](std::uint32_t bit, bool bad) { return (mask & bit) != 0 && bad; };
  const auto exceeds24 = [](std::uint32_t value) { return value > wire::kMask24; };
  if (wrong(kQpPathMtu, attributes.path_mtu == 0 || attributes.path_mtu > kPathMtuMax)) return fail(EINVAL, "path MTU");
  if (wrong(kQpTimeout, attributes.timeout > kTimerCodeMax)) return fail(EINVAL, "timeout");
  if (wrong(kQpMinRnrTimer, attributes.min_rnr_timer > kTimerCodeMax)) return fail(EINVAL, "minimum RNR timer");
  if (wrong(kQpRetryCount, attributes.retry_count > kRetryMax)) return fail(EINVAL, "retry count");
  if (wrong(kQpRnrRetry, attributes.rnr_retry > kRetryMax)) return fail(EINVAL, "RNR retry count");
  if (wrong(kQpRqPsn, exceeds24(attributes.rq_psn))) return fail(EINVAL, "receive PSN");
  if (wrong(kQpSqPsn, exceeds24(attributes.sq_psn))) return fail(EINVAL, "send PSN");
  if (wrong(kQpDestQpn, exceeds24(attributes.dest_qpn))) return fail(EINVAL, "destination QP number");
  if (wrong(kQpMaxRdAtomic, attributes.max_rd_atomic > kRdAtomicMax)) return fail(EINVAL, "initiator depth");
  if (wrong(kQpMaxDestRdAtomic, attributes.max_dest_rd_atomic > kRdAtomicMax)) {
    return fail(EINVAL, "responder resources");
  }
  return {};
}

void QueuePair::assign(const QpAttributes& attributes, std::uint32_t mask) {
  const auto set = [mask](std::uint32_t bit, auto& to, const auto& from) {
    if ((mask & bit) != 0) to = from;
  };
  set(kQpAccess, attributes_.access, attributes.access);
  set(kQpQkey, attributes_.qkey, attributes.qkey);
  set(kQpAddress, attributes_.address, attributes.address);
  set(kQpPathMtu, attributes_.path_mtu, attributes.path_mtu);
  set(kQpTimeout, attributes_.timeout, attributes.timeout);
  set(kQpRetryCount, attributes_.retry_count, attributes.retry_count);
  set(kQpRnrRetry, attributes_.rnr_retry, attributes.rnr_retry);
  set(kQpRqPsn, attributes_.rq_psn, attributes.rq_psn);
  set(kQpMaxRdAtomic, attributes_.max_rd_atomic, attributes.max_rd_atomic);
  set(kQpMinRnrTimer, attributes_.min_rnr_timer, attributes.min_rnr_timer);
  set(kQpSqPsn, attributes_.sq_psn, attributes.sq_psn);
  set(kQpMaxDestRdAtomic, attributes_.max_dest_rd_atomic, attributes.max_dest_rd_atomic);
  set(kQpDestQpn, attributes_.dest_qpn, attributes.dest_qpn);
}

Result<void> QueuePair::modify(const QpAttributes& attributes, std::uint32_t mask) {
  const QpState to = (mask & kQpState) != 0 ? attributes.state : state();
  if (!transition_is_legal(params_.type, state(), to, mask)) {
    return fail(EINVAL, "the queue pair may not change state so, or with these attributes");
  }
  if (Result<void> valid = check_values(attributes, mask); !valid) {
    return fail(EINVAL, "queue pair attribute out of range: " + valid.error().message);
  }
  assign(attributes, mask);
  if (to != state()) enter(to);
  return {};
}

void QueuePair::enter(QpState to) {
  const QpState from = state();
  if (to == QpState::kReset) return reset();
  if (to == QpState::kErr) {
    responder_.drop_reads();
    return enter_error();
  }
  attributes_.state = to;
  if (to == QpState::kRtr) responder_.start(attributes_.rq_psn);
  if (to == QpState::kRts && from == QpState::kRtr) {
    requester_.start(attributes_.sq_psn);
    datagrams_.start(attributes_.sq_psn);
  }
}

// Whatever was posted is forgotten without completions. IBTA 10.3.1.1.
void QueuePair::reset() {
  responder_.say_farewell();
  responder_.reset();
  send_queue_.sends().clear();
  receive_queue_.clear();
  requester_.reset();
  // An SRQ of XRC keeps its completions: they say which of its receives are used up.
  if (queues_.send_cq != nullptr) queues_.send_cq->remove_completions_of(params_.qpn);
  if (queues_.recv_cq != nullptr) queues_.recv_cq->remove_completions_of(params_.qpn);
  lost_completion_ = false;
  attributes_ = initial_attributes();
}

void QueuePair::retire() { reset(); }

void QueuePair::enter_error() {
  if (state() == QpState::kErr) return;
  attributes_.state = QpState::kErr;
  requester_.stop();
  flush_sends(send_queue_.sends().end_index(), CompletionStatus::kFlushed);
  flush_receives();
  if (queues_.srq != nullptr) core_.raise(EventType::kQpLastWqe, params_.user);
}

void QueuePair::fail_with(EventType type) {
  if (state() == QpState::kReset || state() == QpState::kErr) return;
  core_.raise(type, params_.user);
  enter_error();
}

// ------------------------------------------------------------------------------------------------ queues

Result<void> QueuePair::post_send(const SendRequest& request, const AddressVector* destination) {
  const bool datagram = params_.type == QpType::kUd;
  if (!has_send_queue(params_.type)) return fail(EINVAL, "the queue pair only receives");
  if (!sends(state()) && state() != QpState::kErr && state() != QpState::kSqe) {
    return fail(EINVAL, "the queue pair is not ready to send");
  }
  if (datagram && destination == nullptr) return fail(EINVAL, "a datagram needs an address handle");
  const bool unanswerable = request.opcode == SendOpcode::kRead || request.opcode == SendOpcode::kCompareSwap ||
                            request.opcode == SendOpcode::kFetchAdd;
  if (unanswerable && sends(state()) && attributes_.max_rd_atomic == 0) {
    return fail(EINVAL, "the queue pair was set up without READs and atomics (initiator depth 0)");
  }
  const Result<Send*> send = send_queue_.post(params_.type, request, kMessageMax);
  if (!send) return tl::unexpected(send.error());
  if (datagram) (*send)->address = *destination;
  if (!sends(state())) flush_sends(send_queue_.sends().end_index(), CompletionStatus::kFlushed);
  return {};
}

Result<void> QueuePair::post_recv(const RecvRequest& request) {
  if (queues_.srq != nullptr || is_xrc(params_.type)) {
    return fail(EINVAL, "the queue pair has no receive queue of its own");
  }
  if (state() == QpState::kReset) return fail(EINVAL, "the queue pair is not initialised");
  if (Result<void> posted = receive_queue_.post(request); !posted) return posted;
  if (state() == QpState::kErr) flush_receives();
  return {};
}

std::optional<ReceiveTarget> QueuePair::target_of(std::uint32_t srq_number) const {
  if (params_.type != QpType::kXrcRecv)
    return ReceiveTarget{.pd = params_.pd, .srq = queues_.srq, .cq = queues_.recv_cq};
  const auto found = core_.xrc_srqs.find(srq_number);
  if (found == core_.xrc_srqs.end() || found->second->params.xrc->xrcd != params_.xrcd) return std::nullopt;
  return ReceiveTarget{.pd = found->second->params.pd, .srq = found->second, .cq = found->second->cq};
}

const Receive* QueuePair::oldest_receive(const ReceiveTarget& target) const {
  return target.srq != nullptr ? target.srq->queue.oldest() : receive_queue_.oldest();
}

bool QueuePair::take_receive(const ReceiveTarget& target, Receive& receive) {
  if (target.srq == nullptr) return receive_queue_.take(receive);
  SharedReceiveQueue& srq = *target.srq;
  if (!srq.queue.take(receive)) return false;
  if (srq.queue.size() < srq.limit) {
    srq.limit = 0;
    core_.raise(EventType::kSrqLimit, srq.params.user);
  }
  return true;
}

void QueuePair::complete_send(CompletionStatus status) {
  RingQueue<Send>& queue = send_queue_.sends();
  const Send& send = queue.front();
  if (status != CompletionStatus::kSuccess || send.signaled || params_.signal_all) {
    const Completion completion{.wr_id = send.wr_id,
                                .status = status,
                                .opcode = completion_opcode(send.opcode),
                                .byte_count = send.length,
                                .qpn = params_.qpn,
                                .qp_user = params_.user};
    if (!queues_.send_cq->push(completion, false, core_.events)) lost_completion_ = true;
  }
  queue.pop_front();
}

void QueuePair::complete_receive(const ReceiveTarget& target, Completion completion, bool solicited) {
  completion.qpn = params_.qpn;
  completion.qp_user = params_.user;
  if (!target.cq->push(completion, solicited, core_.events)) lost_completion_ = true;
}

void QueuePair::flush_sends(std::uint64_t failed, CompletionStatus status) {
  RingQueue<Send>& queue = send_queue_.sends();
  while (!queue.empty()) complete_send(queue.begin_index() == failed ? status : CompletionStatus::kFlushed);
}

void QueuePair::flush_receives() {
  responder_.flush();
  Receive receive;
  while (receive_queue_.take(receive)) {
    complete_receive(own_target(),
                     {.wr_id = receive.wr_id, .status = CompletionStatus::kFlushed, .opcode = CompletionOpcode::kRecv},
                     false);
  }
}

// ------------------------------------------------------------------------------------------------ packets

// Linux: a connected QP hears only its peer.
bool QueuePair::accepts_from(const wire::DatagramInfo& info) const {
  return info.source.is_same_host(attributes_.address.remote) &&
         info.destination.is_same_host(attributes_.address.local);
}

void QueuePair::on_packet(TimeNs now, const wire::DatagramInfo& info, const Packet& packet) {
  const PacketKind kind = packet.traits.kind;
  const bool serves = is_response(kind) ? has_send_queue(params_.type) : has_receives(params_.type);
  if (wire::service_of(packet.bth.opcode) != service() || !serves) {
    ++core_.counters.unknown_qp;
    return;
  }
  // The send queue's trouble does not keep an unreliable QP from receiving.
  const bool listens = receives(state()) || state() == QpState::kSqe;
  if (kind == PacketKind::kDatagram) {
    return listens ? datagrams_.on_packet(info, packet) : void(++core_.counters.unknown_qp);
  }
  const bool open = is_response(kind) ? sends(state()) : listens || (reliable() && state() == QpState::kErr);
  if (!open) {
    ++core_.counters.unknown_qp;
    return;
  }
  if (!accepts_from(info)) {
    ++core_.counters.wrong_source;
    return;
  }
  if (is_response(kind)) {
    requester_.on_response(now, packet);
  } else if (!reliable()) {
    responder_.on_unreliable_request(packet);
  } else if (state() == QpState::kErr) {
    responder_.on_late_request(packet);
  } else {
    responder_.on_request(packet);
  }
}

bool QueuePair::has_output() const {
  if (params_.type == QpType::kUd) return datagrams_.has_output();
  return responder_.has_output() || requester_.has_output();
}

std::size_t QueuePair::build_packet(TimeNs now, wire::DatagramInfo& info, MutableBytes out) {
  if (params_.type == QpType::kUd) return datagrams_.build_packet(info, out);
  fill_addresses(attributes_.address, info);
  const bool request = requester_.has_output() && (requester_turn_ || !responder_.has_output());
  requester_turn_ = !request;
  return request ? requester_.build_packet(now, out) : responder_.build_packet(out);
}

}  // namespace ucm::roce
