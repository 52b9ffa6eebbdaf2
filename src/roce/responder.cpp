#include "roce/responder.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "roce/limits.h"
#include "roce/psn.h"
#include "roce/queue_pair.h"

namespace ucm::roce {
namespace {

constexpr std::size_t kReadResponsesMax = 2 * std::size_t{kRdAtomicMax};
constexpr std::size_t kResponsesMax = kReadResponsesMax + kResponsesSpare;
constexpr std::uint64_t kAtomicSize = 8;

// Performs a CMP_SWAP or FETCH_ADD on an aligned word; returns what was there.
std::uint64_t perform_atomic(const Packet& packet, std::uint64_t& target) {
  std::atomic_ref<std::uint64_t> word(target);
  if (wire::as_rc(packet.bth.opcode) == wire::Opcode::kRcFetchAdd) return word.fetch_add(packet.atomic.swap_or_add);
  std::uint64_t original = packet.atomic.compare;
  word.compare_exchange_strong(original, packet.atomic.swap_or_add);
  return original;
}

std::size_t build_acknowledgement(const Acknowledgement& acknowledgement, wire::Service service, Qpn destination,
                                  MutableBytes out) {
  PacketWriter writer(out);
  const wire::Opcode opcode = acknowledgement.atomic ? wire::Opcode::kRcAtomicAck : wire::Opcode::kRcAck;
  writer.add(wire::Bth{
      .opcode = wire::in_service(service, opcode), .destination_qpn = destination, .psn = acknowledgement.psn});
  writer.add(wire::Aeth{.syndrome = acknowledgement.syndrome, .msn = acknowledgement.msn});
  if (acknowledgement.atomic) writer.add(wire::AtomicAckEth{.original = acknowledgement.original});
  return writer.size();
}

}  // namespace

std::size_t build_farewell(const Farewell& farewell, MutableBytes out) {
  return build_acknowledgement(farewell.acknowledgement, farewell.service, farewell.destination, out);
}

void Responder::start(std::uint32_t rq_psn) {
  reset();
  expected_psn_ = rq_psn;
}

void Responder::reset() {
  msn_ = 0;
  nak_sent_ = false;
  established_ = false;
  message_ = Message::kNone;
  receiving_ = false;
  responses_.clear();
  atomic_results_.clear();
}

void Responder::on_request(const Packet& packet) {
  const std::int32_t distance = psn_distance(expected_psn_, packet.bth.psn);
  if (distance > 0) return on_gap();
  if (distance < 0) return on_duplicate(packet);

  nak_sent_ = false;
  const Verdict verdict = execute(packet);
  if (verdict != Verdict::kAccepted) return refuse(verdict);
  accept(packet);
  note_established();
}

// IBTA 11.6.3.2: communication established.
void Responder::note_established() {
  if (qp_.state() != QpState::kRtr || established_) return;
  established_ = true;
  core_.raise(EventType::kQpEstablished, qp_.params().user);
}

// Whatever PSN comes is the one expected from then on. A message that misses a packet is over; the receive that it had
// begun to fill serves the next one.
void Responder::on_unreliable_request(const Packet& packet) {
  const bool next = packet.bth.psn == expected_psn_;
  expected_psn_ = psn_add(packet.bth.psn, 1);
  if (!next) ++core_.counters.out_of_sequence;
  if (packet.traits.first) {
    message_ = Message::kNone;
    received_ = 0;
  } else if (!next || message_ == Message::kNone) {
    message_ = Message::kNone;
    return;
  }
  const Verdict verdict = execute(packet);
  if (verdict != Verdict::kAccepted) return drop_message(verdict);
  note_established();
}

void Responder::drop_message(Verdict verdict) {
  message_ = Message::kNone;
  switch (verdict) {
    case Verdict::kNotReady:
    case Verdict::kReceiveTooShort:
      ++core_.counters.no_receive;
      return;
    case Verdict::kAccessViolation:
      ++core_.counters.access_errors;
      return;
    case Verdict::kReceiveBroken:  // the application's own fault
      fail_receive(CompletionStatus::kLocalProtection);
      return qp_.enter_error();
    default:
      ++core_.counters.malformed;
      return;
  }
}

void Responder::on_late_request(const Packet& packet) {
  const bool posted = packet.traits.kind == PacketKind::kSend || packet.traits.kind == PacketKind::kWrite;
  if (!posted || psn_distance(expected_psn_, packet.bth.psn) >= 0) {
    ++core_.counters.unknown_qp;
    return;
  }
  ++core_.counters.duplicates;
  push_acknowledgement(psn_add(expected_psn_, wire::kMask24), wire::kSyndromeAck);
}

// IBTA 9.7.5.2.8: one NAK carrying the expected PSN, then silence until that packet arrives.
void Responder::on_gap() {
  ++core_.counters.out_of_sequence;
  if (nak_sent_) return;
  nak_sent_ = true;
  push_acknowledgement(expected_psn_, wire::kSyndromeNakSequence);
}

// IBTA 9.7.5.1.1: what was executed is not executed again; its outcome is repeated.
void Responder::on_duplicate(const Packet& packet) {
  ++core_.counters.duplicates;
  switch (packet.traits.kind) {
    case PacketKind::kReadRequest:
      return repeat_read(packet);
    case PacketKind::kAtomicRequest:
      return repeat_atomic(packet.bth.psn);
    default:
      return push_acknowledgement(psn_add(expected_psn_, wire::kMask24), wire::kSyndromeAck);
  }
}

void Responder::repeat_read(const Packet& packet) {
  const std::uint32_t psn = packet.bth.psn;
  const std::int32_t behind = psn_distance(psn, expected_psn_);
  const auto target = qp_.target_of(packet.xrc.srq_number);
  if (!target || check_read(packet, target->pd) != Verdict::kAccepted ||
      packets_of(packet.reth.dma_length) > static_cast<std::uint32_t>(behind)) {
    return;
  }
  for (std::uint64_t i = responses_.begin_index(); i != responses_.end_index(); ++i) {
    Response& response = responses_[i];
    if (!response.read) continue;
    const std::int32_t at = psn_distance(response.acknowledgement.psn, psn);
    const std::uint64_t offset = std::uint64_t{qp_.mtu()} * static_cast<std::uint32_t>(std::max(at, 0));
    const bool same = at >= 0 && response.rkey == packet.reth.rkey &&
                      response.address + offset == packet.reth.virtual_address &&
                      response.length == offset + packet.reth.dma_length;
    if (!same) continue;
    // Still being answered: go back if that part has left already.
    if (static_cast<std::uint32_t>(at) < response.sent) {
      response.sent = static_cast<std::uint32_t>(at);
      response.restarted = true;
    }
    return;
  }
  if (responses_.size() < kReadResponsesMax) push_read(packet);
}

void Responder::repeat_atomic(std::uint32_t psn) {
  for (std::uint64_t i = atomic_results_.begin_index(); i != atomic_results_.end_index(); ++i) {
    if (atomic_results_[i].psn == psn && responses_.size() < kReadResponsesMax) return push_atomic(atomic_results_[i]);
  }
}

Responder::Verdict Responder::execute(const Packet& packet) {
  const auto target = qp_.target_of(packet.xrc.srq_number);
  if (!target) return Verdict::kAccessViolation;  // Linux: a violation of the XRC domain is an access error
  if (message_ != Message::kNone && packet.xrc.srq_number != srq_number_) return Verdict::kInvalidRequest;
  srq_number_ = packet.xrc.srq_number;
  switch (packet.traits.kind) {
    case PacketKind::kSend:
      return execute_send(packet, *target);
    case PacketKind::kWrite:
      return execute_write(packet, *target);
    case PacketKind::kReadRequest:
      return execute_read(packet, target->pd);
    default:
      return execute_atomic(packet, target->pd);
  }
}

// Opcode sequence and exact segmentation. IBTA 9.7.4.1.2, 9.7.4.1.4.
bool Responder::fits_message(const Packet& packet, Message message) const {
  const OpcodeTraits& traits = packet.traits;
  if (message_ != (traits.first ? Message::kNone : message)) return false;
  const std::size_t size = packet.payload.size();
  if (!traits.last) return size == qp_.mtu();
  return size <= qp_.mtu() && (traits.first || size != 0);
}

bool Responder::begin_receive(const ReceiveTarget& target) {
  if (receiving_) return true;
  if (!qp_.take_receive(target, receive_)) return false;
  receiving_ = true;
  received_ = 0;
  return true;
}

void Responder::finish_receive(const Packet& packet, const ReceiveTarget& target, Completion completion) {
  receiving_ = false;
  completion.wr_id = receive_.wr_id;
  completion.source_qpn = qp_.attributes().dest_qpn;
  if ((packet.traits.headers & kHasImmediate) != 0) {
    completion.has_immediate = true;
    completion.immediate = packet.immediate.immediate;
  }
  if ((packet.traits.headers & kHasInvalidate) != 0) {
    completion.has_invalidated_rkey = true;
    completion.immediate = packet.invalidate.rkey;
  }
  qp_.complete_receive(target, completion, packet.bth.solicited_event);
}

Responder::Verdict Responder::execute_send(const Packet& packet, const ReceiveTarget& target) {
  if (!fits_message(packet, Message::kSend)) return Verdict::kInvalidRequest;
  if (!begin_receive(target)) return Verdict::kNotReady;
  switch (core_.memory.scatter(target.pd, receive_.sges, received_, packet.payload)) {
    case ScatterResult::kTooLong:
      return Verdict::kReceiveTooShort;
    case ScatterResult::kProtection:
      return Verdict::kReceiveBroken;
    case ScatterResult::kDone:
      break;
  }
  received_ += packet.payload.size();
  if (received_ > kMessageMax) return Verdict::kInvalidRequest;
  message_ = packet.traits.last ? Message::kNone : Message::kSend;
  if (!packet.traits.last) return Verdict::kAccepted;
  const bool invalidates = (packet.traits.headers & kHasInvalidate) != 0;
  if (invalidates && !core_.memory.invalidate_remote(target.pd, packet.invalidate.rkey)) {
    return Verdict::kAccessViolation;
  }
  finish_receive(packet, target,
                 {.opcode = CompletionOpcode::kRecv, .byte_count = static_cast<std::uint32_t>(received_)});
  return Verdict::kAccepted;
}

std::uint8_t* Responder::find_memory(PdId pd, std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                                     std::uint32_t access) const {
  return core_.memory.find_remote(pd, qp_.params().qpn, rkey, address, length, access);
}

Responder::Verdict Responder::begin_write(const Packet& packet, PdId pd) {
  const wire::Reth& reth = packet.reth;
  if ((qp_.attributes().access & kAccessRemoteWrite) == 0) return Verdict::kInvalidRequest;
  if (reth.dma_length > kMessageMax) return Verdict::kInvalidRequest;
  // A zero-length access is not checked. IBTA 9.7.4.1.3.
  if (reth.dma_length != 0 &&
      find_memory(pd, reth.rkey, reth.virtual_address, reth.dma_length, kAccessRemoteWrite) == nullptr) {
    return Verdict::kAccessViolation;
  }
  write_address_ = reth.virtual_address;
  write_rkey_ = reth.rkey;
  write_length_ = write_remaining_ = reth.dma_length;
  return Verdict::kAccepted;
}

Responder::Verdict Responder::execute_write(const Packet& packet, const ReceiveTarget& target) {
  if (!fits_message(packet, Message::kWrite)) return Verdict::kInvalidRequest;
  if (packet.traits.first) {
    const Verdict verdict = begin_write(packet, target.pd);
    if (verdict != Verdict::kAccepted) return verdict;
  }
  const std::size_t size = packet.payload.size();
  if (packet.traits.last ? size != write_remaining_ : size >= write_remaining_) return Verdict::kInvalidRequest;
  const bool notifies = (packet.traits.headers & kHasImmediate) != 0;
  if (notifies && !begin_receive(target)) return Verdict::kNotReady;
  if (size != 0) {
    std::uint8_t* to = find_memory(target.pd, write_rkey_, write_address_, size, kAccessRemoteWrite);
    if (to == nullptr) return Verdict::kAccessViolation;
    std::memcpy(to, packet.payload.data(), size);
  }
  write_address_ += size;
  write_remaining_ -= static_cast<std::uint32_t>(size);
  message_ = packet.traits.last ? Message::kNone : Message::kWrite;
  if (notifies) {
    finish_receive(packet, target, {.opcode = CompletionOpcode::kRecvWithImm, .byte_count = write_length_});
  }
  return Verdict::kAccepted;
}

Responder::Verdict Responder::check_read(const Packet& packet, PdId pd) const {
  const wire::Reth& reth = packet.reth;
  const QpAttributes& attributes = qp_.attributes();
  if ((attributes.access & kAccessRemoteRead) == 0 || attributes.max_dest_rd_atomic == 0)
    return Verdict::kInvalidRequest;
  if (!packet.payload.empty() || reth.dma_length > kMessageMax) return Verdict::kInvalidRequest;
  if (reth.dma_length != 0 &&
      find_memory(pd, reth.rkey, reth.virtual_address, reth.dma_length, kAccessRemoteRead) == nullptr) {
    return Verdict::kAccessViolation;
  }
  return Verdict::kAccepted;
}

Responder::Verdict Responder::execute_read(const Packet& packet, PdId pd) {
  if (message_ != Message::kNone) return Verdict::kInvalidRequest;
  const Verdict verdict = check_read(packet, pd);
  if (verdict != Verdict::kAccepted) return verdict;
  return responses_.size() < kReadResponsesMax ? Verdict::kAccepted : Verdict::kNoRoom;
}

Responder::Verdict Responder::execute_atomic(const Packet& packet, PdId pd) {
  const wire::AtomicEth& atomic = packet.atomic;
  const QpAttributes& attributes = qp_.attributes();
  if (message_ != Message::kNone || !packet.payload.empty()) return Verdict::kInvalidRequest;
  if ((attributes.access & kAccessRemoteAtomic) == 0 || attributes.max_dest_rd_atomic == 0)
    return Verdict::kInvalidRequest;
  if (atomic.virtual_address % kAtomicSize != 0) return Verdict::kInvalidRequest;  // Linux: misaligned is NAK 0x61
  std::uint8_t* target = find_memory(pd, atomic.rkey, atomic.virtual_address, kAtomicSize, kAccessRemoteAtomic);
  if (target == nullptr) return Verdict::kAccessViolation;
  if (reinterpret_cast<std::uintptr_t>(target) % kAtomicSize != 0) return Verdict::kInvalidRequest;
  if (responses_.size() >= kReadResponsesMax) return Verdict::kNoRoom;

  // Kept for duplicates: a requester has at most kRdAtomicMax of them open.
  if (atomic_results_.size() == kRdAtomicMax) atomic_results_.pop_front();
  atomic_results_.push(
      {.psn = packet.bth.psn, .original = perform_atomic(packet, *reinterpret_cast<std::uint64_t*>(target))});
  return Verdict::kAccepted;
}

void Responder::accept(const Packet& packet) {
  const bool read = packet.traits.kind == PacketKind::kReadRequest;
  expected_psn_ = psn_add(expected_psn_, read ? packets_of(packet.reth.dma_length) : 1);
  if (packet.traits.last) msn_ = (msn_ + 1) & wire::kMask24;
  if (read) return push_read(packet);
  if (packet.traits.kind == PacketKind::kAtomicRequest) return push_atomic(atomic_results_.back());
  if (packet.bth.ack_request) push_acknowledgement(packet.bth.psn, wire::kSyndromeAck);
}

void Responder::fail_receive(CompletionStatus status) {
  receiving_ = false;
  // The receive of an SRQ that was destroyed meanwhile has nowhere to complete.
  const auto target = qp_.target_of(srq_number_);
  if (!target) return;
  qp_.complete_receive(*target, {.wr_id = receive_.wr_id, .status = status, .opcode = CompletionOpcode::kRecv}, false);
}

void Responder::refuse(Verdict verdict) {
  const auto fail_with = [this](std::uint8_t syndrome) {
    push_acknowledgement(expected_psn_, syndrome);
    qp_.enter_error();
  };
  switch (verdict) {
    case Verdict::kAccepted:
    case Verdict::kNoRoom:
      return;
    case Verdict::kNotReady:
      ++core_.counters.no_receive;
      nak_sent_ = true;  // what follows is out of sequence and must not ask for a resend before the timer
      return push_acknowledgement(expected_psn_,
                                  static_cast<std::uint8_t>(wire::kSyndromeRnrNak | qp_.attributes().min_rnr_timer));
    case Verdict::kInvalidRequest:
      ++core_.counters.malformed;
      core_.raise(EventType::kQpRequestError, qp_.params().user);
      return fail_with(wire::kSyndromeNakInvalidRequest);
    case Verdict::kAccessViolation:
      ++core_.counters.access_errors;
      core_.raise(EventType::kQpAccessError, qp_.params().user);
      return fail_with(wire::kSyndromeNakRemoteAccess);
    case Verdict::kReceiveTooShort:
      fail_receive(CompletionStatus::kLocalLength);
      return fail_with(wire::kSyndromeNakInvalidRequest);
    case Verdict::kReceiveBroken:
      fail_receive(CompletionStatus::kLocalProtection);
      return fail_with(wire::kSyndromeNakRemoteOperational);
  }
}

std::uint32_t Responder::packets_of(std::uint32_t length) const {
  return std::max(1u, (length + qp_.mtu() - 1) / qp_.mtu());
}

void Responder::push_acknowledgement(std::uint32_t psn, std::uint8_t syndrome) {
  const Acknowledgement acknowledgement{.psn = psn, .msn = msn_, .syndrome = syndrome};
  const auto positive = [](const Response& response) {
    return !response.read && !response.acknowledgement.atomic &&
           response.acknowledgement.syndrome == wire::kSyndromeAck;
  };
  // A later acknowledgement says everything an earlier one would have (IBTA 9.7.5.1.2).
  if (!responses_.empty() && positive(responses_.back()) && syndrome == wire::kSyndromeAck) {
    responses_.back().acknowledgement = acknowledgement;
  } else if (responses_.size() < kResponsesMax) {
    responses_.push({.acknowledgement = acknowledgement});
  }
}

void Responder::push_read(const Packet& packet) {
  responses_.push({.read = true,
                   .srq_number = packet.xrc.srq_number,
                   .acknowledgement = {.psn = packet.bth.psn, .msn = msn_, .syndrome = wire::kSyndromeAck},
                   .address = packet.reth.virtual_address,
                   .rkey = packet.reth.rkey,
                   .length = packet.reth.dma_length});
}

void Responder::push_atomic(const AtomicResult& result) {
  responses_.push({.acknowledgement = {.psn = result.psn,
                                       .msn = msn_,
                                       .syndrome = wire::kSyndromeAck,
                                       .atomic = true,
                                       .original = result.original}});
}

std::size_t Responder::build_packet(MutableBytes out) {
  Response& response = responses_.front();
  if (response.read) return build_read(response, out);
  const std::size_t size =
      build_acknowledgement(response.acknowledgement, qp_.service(), qp_.attributes().dest_qpn, out);
  responses_.pop_front();
  return size;
}

std::size_t Responder::build_read(Response& response, MutableBytes out) {
  const std::uint32_t offset = response.sent * qp_.mtu();
  const std::uint32_t size = std::min(response.length - offset, qp_.mtu());
  const std::uint32_t psn = psn_add(response.acknowledgement.psn, response.sent);
  const std::uint8_t* from = nullptr;
  if (size != 0) {
    // Checked again: the region may have gone since the request came.
    const auto target = qp_.target_of(response.srq_number);
    if (target) from = find_memory(target->pd, response.rkey, response.address + offset, size, kAccessRemoteRead);
    if (from == nullptr) {
      ++core_.counters.access_errors;
      responses_.clear();
      push_acknowledgement(psn, wire::kSyndromeNakRemoteAccess);
      qp_.fail_with(EventType::kQpAccessError);
      return build_packet(out);
    }
  }
  const bool first = response.sent == 0 || response.restarted;
  const bool last = offset + size == response.length;
  const wire::Opcode opcode = first ? (last ? wire::Opcode::kRcReadResponseOnly : wire::Opcode::kRcReadResponseFirst)
                                    : (last ? wire::Opcode::kRcReadResponseLast : wire::Opcode::kRcReadResponseMiddle);
  PacketWriter writer(out);
  writer.add(wire::Bth{.opcode = wire::in_service(qp_.service(), opcode),
                       .pad_count = pad_of(size),
                       .destination_qpn = qp_.attributes().dest_qpn,
                       .psn = psn});
  if (first || last) {
    writer.add(wire::Aeth{.syndrome = wire::kSyndromeAck, .msn = response.acknowledgement.msn});
  }
  const MutableBytes payload = writer.payload(size);
  if (size != 0) std::memcpy(payload.data(), from, size);
  ++response.sent;
  response.restarted = false;
  if (last) responses_.pop_front();
  return writer.size();
}

void Responder::flush() {
  if (receiving_) fail_receive(CompletionStatus::kFlushed);
}

void Responder::drop_reads() {
  bool read_seen = false;
  responses_.remove_if([&read_seen](const Response& response) {
    read_seen = read_seen || response.read;
    return read_seen;
  });
}

void Responder::say_farewell() {
  while (!responses_.empty() && !responses_.front().read && core_.farewells.size() < kFarewellsMax) {
    core_.farewells.push({.address = qp_.attributes().address,
                          .service = qp_.service(),
                          .destination = qp_.attributes().dest_qpn,
                          .acknowledgement = responses_.front().acknowledgement});
    responses_.pop_front();
  }
  // Nobody can ask for what got lost, and the peer's last request would fail although it was executed.
  const bool executed = qp_.reliable() && responses_.empty() && expected_psn_ != qp_.attributes().rq_psn;
  for (std::size_t i = 0; executed && i < kFarewellRepeats && core_.farewells.size() < kFarewellsMax; ++i) {
    core_.farewells.push({.address = qp_.attributes().address,
                          .service = qp_.service(),
                          .destination = qp_.attributes().dest_qpn,
                          .acknowledgement = {.psn = psn_add(expected_psn_, wire::kMask24), .msn = msn_}});
  }
}

}  // namespace ucm::roce
