#include "roce/requester.h"

#include <algorithm>
#include <array>

#include "roce/limits.h"
#include "roce/psn.h"
#include "roce/queue_pair.h"

namespace ucm::roce {
namespace {

constexpr TimeNs kTimeoutUnit = 4'096;  // ns; IBTA 9.7.6.1.3

// IBTA table 45, in units of 10 us.
constexpr std::array<std::uint32_t, 32> kNotReadyDelays10us = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

struct DataOpcodes {
  wire::Opcode first, middle, last, only;
};
constexpr DataOpcodes opcodes_of(SendOpcode opcode) {
  using wire::Opcode;
  switch (opcode) {
    case SendOpcode::kSendImm:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastImm, Opcode::kRcSendOnlyImm};
    case SendOpcode::kSendInvalidate:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastInvalidate,
              Opcode::kRcSendOnlyInvalidate};
    case SendOpcode::kWrite:
      return {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast, Opcode::kRcWriteOnly};
    case SendOpcode::kWriteImm:
      return {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLastImm, Opcode::kRcWriteOnlyImm};
    default:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast, Opcode::kRcSendOnly};
  }
}
constexpr bool is_write(SendOpcode opcode) { return opcode == SendOpcode::kWrite || opcode == SendOpcode::kWriteImm; }
constexpr bool has_immediate(SendOpcode opcode) {
  return opcode == SendOpcode::kSendImm || opcode == SendOpcode::kWriteImm;
}

constexpr std::optional<CompletionStatus> status_of_nak(std::uint8_t syndrome) {
  switch (syndrome) {
    case wire::kSyndromeNakInvalidRequest:
      return CompletionStatus::kRemoteInvalidRequest;
    case wire::kSyndromeNakRemoteAccess:
      return CompletionStatus::kRemoteAccess;
    case wire::kSyndromeNakRemoteOperational:
      return CompletionStatus::kRemoteOperation;
    default:
      return std::nullopt;
  }
}

constexpr std::uint8_t kSyndromeKindMask = 0xE0;
constexpr std::uint8_t kSyndromeValueMask = 0x1F;

}  // namespace

void Requester::start(std::uint32_t sq_psn) {
  reset();
  unacknowledged_psn_ = cursor_psn_ = unsent_psn_ = sq_psn;
  const QpAttributes& attributes = qp_.attributes();
  retries_left_ = attributes.retry_count;
  not_ready_retries_left_ = attributes.rnr_retry;
  window_.start(qp_.mtu());
}

void Requester::reset() {
  stop();
  cursor_index_ = started_end_ = qp_.send_queue().sends().end_index();
  cursor_packet_ = 0;
  awaiting_data_ = 0;
  open_reads_.clear();
  went_back_to_.reset();
  timed_psn_.reset();
  round_trip_ = {};
  probes_ = 0;
}

void Requester::stop() {
  stop_timers();
  resume_at_ = kNever;
}

// ------------------------------------------------------------------------------------------------ sending

std::uint32_t Requester::packets_in_flight() const {
  return static_cast<std::uint32_t>(psn_distance(unacknowledged_psn_, cursor_psn_));
}

bool Requester::has_output() const {
  const QpState state = qp_.state();
  if (state != QpState::kRts && state != QpState::kSqd) return false;
  const RingQueue<Send>& sends = qp_.send_queue().sends();
  if (resume_at_ != kNever || cursor_index_ == sends.end_index()) return false;
  if (state == QpState::kSqd && !started(cursor_index_)) return false;
  const Send& send = sends[cursor_index_];
  return send.failure == CompletionStatus::kSuccess && may_send(send);
}

bool Requester::may_send(const Send& send) const {
  if (cursor_packet_ == 0 && send.fence && !open_reads_.empty()) return false;  // IBTA 10.8.3.3
  if (is_local(send)) return true;
  const std::uint32_t in_flight = packets_in_flight();
  if (!returns_data(send)) return in_flight < window_.packets();
  if (open_reads_.size() >= qp_.attributes().max_rd_atomic) return false;
  // The responses come as one burst: they all have to fit, or be alone.
  return in_flight == 0 || in_flight + read_packets(send) <= window_.packets();
}

// How many response packets to ask for at the cursor. A long READ is asked for in parts so that its responses stay
// within the window; the parts' borders never move, because a responder repeats only within one request.
std::uint32_t Requester::read_packets(const Send& send) const {
  if (!is_read(send)) return 1;
  const std::uint32_t total = std::max(1u, (send.length + qp_.mtu() - 1) / qp_.mtu());
  const std::uint32_t part = std::min(kWindowPacketsInitial, kWindowBytesInitial / qp_.mtu());
  return std::min(total - cursor_packet_, part - cursor_packet_ % part);
}

void Requester::start_send(Send& send) {
  send.first_psn = unsent_psn_;
  send.packet_count = is_atomic(send) ? 1 : std::max(1u, (send.length + qp_.mtu() - 1) / qp_.mtu());
  if (is_local(send)) send.packet_count = 0;
  if (returns_data(send)) ++awaiting_data_;
  started_end_ = cursor_index_ + 1;
}

bool Requester::check_memory(Send& send) {
  const std::uint32_t access = returns_data(send) ? kAccessLocalWrite : 0;
  if (core_.memory.allows(qp_.params().pd, send.sges, access)) return true;
  fail_at_cursor(send, CompletionStatus::kLocalProtection);
  return false;
}

void Requester::finish_local(Send& send) {
  const QpParams& params = qp_.params();
  if (!send.executed && send.opcode == SendOpcode::kBindWindow) {
    if (!core_.memory.bind(params.pd, params.qpn, send.binding))
      return fail_at_cursor(send, CompletionStatus::kWindowBind);
  } else if (!send.executed && !core_.memory.invalidate_local(params.pd, send.immediate)) {
    return fail_at_cursor(send, CompletionStatus::kLocalQpOperation);
  }
  send.executed = true;
  advance_cursor(send, 0);
  complete_acknowledged();
}

// Sends before this one may still complete well; it fails when its turn comes.
void Requester::fail_at_cursor(Send& send, CompletionStatus status) {
  send.failure = status;
  complete_acknowledged();
}

std::size_t Requester::build_packet(TimeNs now, MutableBytes out) {
  // Each round sends, fails, or finishes one local operation.
  while (has_output()) {
    Send& send = qp_.send_queue().sends()[cursor_index_];
    if (!started(cursor_index_)) {
      start_send(send);
      if (!check_memory(send)) return 0;
    }
    if (is_local(send)) {
      finish_local(send);
      continue;
    }
    const std::uint32_t psn = cursor_psn_;
    const bool repeated = psn != unsent_psn_;
    const bool asks = qp_.reliable() && asks_acknowledgement(send);
    const std::size_t size = returns_data(send) ? build_request(send, out) : build_data(send, asks, out);
    if (size == 0) return 0;
    if (!qp_.reliable()) {
      unacknowledged_psn_ = cursor_psn_;
      complete_acknowledged();
      return size;
    }
    if (repeated) ++core_.counters.packets_retransmitted;
    note_sent(now, psn, asks && !repeated);
    return size;
  }
  return 0;
}

// What every request begins with; `bth` has an opcode of RC.
void Requester::begin_request(PacketWriter& writer, const wire::Bth& bth, const Send& send) const {
  wire::Bth own = bth;
  own.opcode = wire::in_service(qp_.service(), bth.opcode);
  writer.add(own);
  if (qp_.service() == wire::Service::kXrc) writer.add(wire::XrcEth{.srq_number = send.remote_srq});
}

// READ and atomics: one packet, answered with data.
std::size_t Requester::build_request(Send& send, MutableBytes out) {
  PacketWriter writer(out);
  wire::Bth bth{.destination_qpn = qp_.attributes().dest_qpn, .ack_request = true, .psn = cursor_psn_};
  const std::uint32_t packets = read_packets(send);
  if (is_read(send)) {
    const std::uint32_t offset = cursor_packet_ * qp_.mtu();
    bth.opcode = wire::Opcode::kRcReadRequest;
    begin_request(writer, bth, send);
    writer.add(wire::Reth{.virtual_address = send.remote_address + offset,
                          .rkey = send.rkey,
                          .dma_length = std::min(send.length - offset, packets * qp_.mtu())});
  } else {
    const bool swaps = send.opcode == SendOpcode::kCompareSwap;
    bth.opcode = swaps ? wire::Opcode::kRcCompareSwap : wire::Opcode::kRcFetchAdd;
    begin_request(writer, bth, send);
    writer.add(wire::AtomicEth{.virtual_address = send.remote_address,
                               .rkey = send.rkey,
                               .swap_or_add = swaps ? send.swap : send.compare_or_add,
                               .compare = swaps ? send.compare_or_add : 0});
  }
  open_reads_.push(psn_add(cursor_psn_, packets - 1));
  advance_cursor(send, packets);
  return writer.size();
}

// Linux: on every last packet, and now and then inside a message; here also when the window closes behind the packet.
bool Requester::asks_acknowledgement(const Send& send) const {
  return returns_data(send) || cursor_packet_ + 1 == send.packet_count || cursor_psn_ % kAckEveryPackets == 0 ||
         packets_in_flight() + 1 >= window_.packets();
}

std::size_t Requester::build_data(Send& send, bool asks, MutableBytes out) {
  const std::uint32_t offset = cursor_packet_ * qp_.mtu();
  const std::uint32_t size = std::min(send.length - offset, qp_.mtu());
  const bool first = cursor_packet_ == 0;
  const bool last = cursor_packet_ + 1 == send.packet_count;
  const DataOpcodes opcodes = opcodes_of(send.opcode);
  PacketWriter writer(out);
  const wire::Opcode opcode = first ? (last ? opcodes.only : opcodes.first) : (last ? opcodes.last : opcodes.middle);
  begin_request(writer,
                {.opcode = opcode,
                 .solicited_event = last && send.solicited,
                 .pad_count = pad_of(size),
                 .destination_qpn = qp_.attributes().dest_qpn,
                 .ack_request = asks,
                 .psn = cursor_psn_},
                send);
  if (first && is_write(send.opcode)) {
    writer.add(wire::Reth{.virtual_address = send.remote_address, .rkey = send.rkey, .dma_length = send.length});
  }
  if (last && has_immediate(send.opcode)) writer.add(wire::ImmDt{.immediate = send.immediate});
  if (last && send.opcode == SendOpcode::kSendInvalidate) writer.add(wire::Ieth{.rkey = send.immediate});
  const MutableBytes payload = writer.payload(size);
  if (send.inline_data) {
    std::copy_n(send.inline_bytes.begin() + offset, size, payload.begin());
  } else if (!core_.memory.gather(qp_.params().pd, send.sges, offset, payload)) {
    fail_at_cursor(send, CompletionStatus::kLocalProtection);
    return 0;
  }
  advance_cursor(send, 1);
  return writer.size();
}

void Requester::advance_cursor(Send& send, std::uint32_t packets) {
  cursor_psn_ = psn_add(cursor_psn_, packets);
  cursor_packet_ += packets;
  if (cursor_packet_ == send.packet_count) {
    ++cursor_index_;
    cursor_packet_ = 0;
  }
  if (psn_distance(unsent_psn_, cursor_psn_) > 0) unsent_psn_ = cursor_psn_;
}

void Requester::note_sent(TimeNs now, std::uint32_t psn, bool measured) {
  if (retry_at_ == kNever && qp_.attributes().timeout != 0) retry_at_ = now + retry_interval();
  if (probe_at_ == kNever && probes_ < kProbesMax) probe_at_ = now + round_trip_.probe_delay(probes_);
  if (measured && !timed_psn_) {
    timed_psn_ = psn;
    timed_at_ = now;
  }
}

// ------------------------------------------------------------------------------------------------ responses

void Requester::on_response(TimeNs now, const Packet& packet) {
  const std::int32_t position = psn_distance(unacknowledged_psn_, packet.bth.psn);
  if (position < 0) {
    ++core_.counters.duplicates;
    return;
  }
  if (psn_distance(packet.bth.psn, unsent_psn_) <= 0) {  // answers something never sent
    ++core_.counters.malformed;
    return;
  }
  if (packet.traits.kind != PacketKind::kAcknowledge) return on_returned_data(now, packet);
  if ((packet.aeth.syndrome & kSyndromeKindMask) == 0) return on_acknowledge(now, packet);
  on_nak(now, packet);
}

// The PSN of the oldest response with data that has not come yet.
std::optional<std::uint32_t> Requester::first_missing_response() const {
  if (awaiting_data_ == 0) return std::nullopt;
  const RingQueue<Send>& sends = qp_.send_queue().sends();
  for (std::uint64_t i = sends.begin_index(); i != started_end_; ++i) {
    if (!returns_data(sends[i])) continue;
    const bool begun = psn_distance(sends[i].first_psn, unacknowledged_psn_) > 0;
    return begun ? unacknowledged_psn_ : sends[i].first_psn;
  }
  return std::nullopt;
}

// Everything before `psn` has arrived, says the peer; data it owes us in between must have been lost. Returns whether
// nothing before `psn` is open any more.
bool Requester::acknowledge_before(TimeNs now, std::uint32_t psn) {
  const std::optional<std::uint32_t> missing = first_missing_response();
  const bool lost = missing && psn_distance(*missing, psn) > 0;
  advance(now, lost ? *missing : psn);
  if (lost) {
    ++core_.counters.out_of_sequence;
    go_back_once();
  }
  return !lost;
}

void Requester::on_acknowledge(TimeNs now, const Packet& packet) {
  acknowledge_before(now, psn_add(packet.bth.psn, 1));
}

void Requester::on_nak(TimeNs now, const Packet& packet) {
  const std::uint8_t syndrome = packet.aeth.syndrome;
  if (const std::optional<CompletionStatus> status = status_of_nak(syndrome)) {
    acknowledge_before(now, packet.bth.psn);
    return fail_oldest(*status);
  }
  if ((syndrome & kSyndromeKindMask) == wire::kSyndromeRnrNak) {
    if (acknowledge_before(now, packet.bth.psn)) on_receiver_not_ready(now, syndrome & kSyndromeValueMask);
  } else if (syndrome == wire::kSyndromeNakSequence) {
    if (acknowledge_before(now, packet.bth.psn) && resume_at_ == kNever) go_back_once();
  } else {
    ++core_.counters.malformed;
  }
}

// IBTA 9.7.5.2.8: wait as long as the receiver says, then send again from there.
void Requester::on_receiver_not_ready(TimeNs now, std::uint8_t timer) {
  if (resume_at_ != kNever) return;
  if (qp_.attributes().rnr_retry != kRetriesEndless) {
    if (not_ready_retries_left_ == 0) return fail_oldest(CompletionStatus::kRnrRetryExceeded);
    --not_ready_retries_left_;
  }
  retries_left_ = qp_.attributes().retry_count;
  probes_ = 0;
  go_back();
  stop_timers();
  resume_at_ = now + kNotReadyDelays10us[timer] * 10 * kNanosecondsPerMicrosecond;
}

void Requester::on_returned_data(TimeNs now, const Packet& packet) {
  if (packet.traits.kind == PacketKind::kReadResponse && (packet.traits.headers & kHasAeth) != 0 &&
      (packet.aeth.syndrome & kSyndromeKindMask) != 0) {
    ++core_.counters.malformed;
    return;
  }
  const std::optional<std::uint32_t> missing = first_missing_response();
  if (!missing || psn_distance(*missing, packet.bth.psn) < 0) {
    ++core_.counters.malformed;
    return;
  }
  if (!acknowledge_before(now, packet.bth.psn)) return;

  // Now the oldest send is the one that awaits this packet.
  const Send& send = qp_.send_queue().sends().front();
  const CompletionStatus status =
      packet.traits.kind == PacketKind::kReadResponse ? take_read_data(send, packet) : take_atomic_data(send, packet);
  if (status != CompletionStatus::kSuccess) return fail_oldest(status);
  advance(now, psn_add(packet.bth.psn, 1));
}

CompletionStatus Requester::take_read_data(const Send& send, const Packet& packet) {
  if (!is_read(send)) return CompletionStatus::kBadResponse;
  const std::uint32_t offset = static_cast<std::uint32_t>(psn_distance(send.first_psn, packet.bth.psn)) * qp_.mtu();
  if (packet.payload.size() != std::min(send.length - offset, qp_.mtu())) return CompletionStatus::kBadResponse;
  const ScatterResult result = core_.memory.scatter(qp_.params().pd, send.sges, offset, packet.payload);
  return result == ScatterResult::kDone ? CompletionStatus::kSuccess : CompletionStatus::kLocalProtection;
}

CompletionStatus Requester::take_atomic_data(const Send& send, const Packet& packet) {
  if (!is_atomic(send) || !packet.payload.empty()) return CompletionStatus::kBadResponse;
  // The value arrives as a number and is stored as one.
  const std::uint64_t original = packet.atomic_ack.original;
  const Bytes bytes{reinterpret_cast<const std::uint8_t*>(&original), sizeof original};
  const ScatterResult result = core_.memory.scatter(qp_.params().pd, send.sges, 0, bytes);
  return result == ScatterResult::kDone ? CompletionStatus::kSuccess : CompletionStatus::kLocalProtection;
}

// Everything before `unacknowledged` is done. Progress renews all retries.
void Requester::advance(TimeNs now, std::uint32_t unacknowledged) {
  const std::int32_t count = psn_distance(unacknowledged_psn_, unacknowledged);
  if (count <= 0) return;
  unacknowledged_psn_ = unacknowledged;
  resume_at_ = kNever;
  retries_left_ = qp_.attributes().retry_count;
  not_ready_retries_left_ = qp_.attributes().rnr_retry;
  probes_ = 0;
  window_.on_acknowledged(static_cast<std::uint32_t>(count));
  if (timed_psn_ && psn_distance(*timed_psn_, unacknowledged) > 0) {
    round_trip_.on_sample(now - timed_at_);
    timed_psn_.reset();
  }
  while (!open_reads_.empty() && psn_distance(open_reads_.front(), unacknowledged) > 0) open_reads_.pop_front();
  complete_acknowledged();
  // Going back had set the cursor behind what turns out to have arrived.
  const bool overtaken = cursor_index_ < qp_.send_queue().sends().begin_index();
  if (overtaken || psn_distance(cursor_psn_, unacknowledged_psn_) > 0) go_back();
  restart_timers(now);
}

void Requester::complete_acknowledged() {
  RingQueue<Send>& sends = qp_.send_queue().sends();
  while (!sends.empty() && started(sends.begin_index())) {
    const Send& send = sends.front();
    if (send.failure != CompletionStatus::kSuccess) {
      if (psn_distance(send.first_psn, unacknowledged_psn_) >= 0) fail_oldest(send.failure);
      return;
    }
    if (is_local(send) && !send.executed) return;
    if (psn_distance(psn_add(send.first_psn, send.packet_count), unacknowledged_psn_) < 0) return;
    if (returns_data(send)) --awaiting_data_;
    qp_.complete_send(CompletionStatus::kSuccess);
  }
}

// ------------------------------------------------------------------------------------------------ recovery

// The cursor returns to the oldest unacknowledged PSN.
void Requester::go_back() {
  const RingQueue<Send>& sends = qp_.send_queue().sends();
  cursor_index_ = sends.begin_index();
  cursor_psn_ = unacknowledged_psn_;
  cursor_packet_ = 0;
  if (!sends.empty() && started(cursor_index_)) {
    cursor_packet_ = static_cast<std::uint32_t>(psn_distance(sends.front().first_psn, unacknowledged_psn_));
  }
  open_reads_.clear();
  timed_psn_.reset();
}

// What was sent after a loss reports it again and again; only the first report counts until there is progress or a
// timer fires.
void Requester::go_back_once() {
  if (went_back_to_ == unacknowledged_psn_) return;
  went_back_to_ = unacknowledged_psn_;
  window_.on_loss();
  go_back();
}

void Requester::fail_oldest(CompletionStatus status) {
  qp_.flush_sends(qp_.send_queue().sends().begin_index(), status);
  if (!qp_.reliable()) {
    reset();  // the cursor is beyond what was flushed
    return qp_.enter_send_error();
  }
  qp_.enter_error();
}

TimeNs Requester::retry_interval() const {
  const TimeNs interval = kTimeoutUnit << qp_.attributes().timeout;
  return std::clamp(kRetriesMin / (qp_.attributes().retry_count + 1), interval, kRetryIntervalsMax * interval);
}

void Requester::restart_timers(TimeNs now) {
  stop_timers();
  if (unacknowledged_psn_ == unsent_psn_ || qp_.state() == QpState::kErr) return;
  if (qp_.attributes().timeout != 0) retry_at_ = now + retry_interval();
  probe_at_ = now + round_trip_.probe_delay(probes_);
}

void Requester::stop_timers() { retry_at_ = probe_at_ = kNever; }

TimeNs Requester::next_deadline() const { return std::min({retry_at_, probe_at_, resume_at_}); }

void Requester::on_deadline(TimeNs now) {
  if (resume_at_ <= now) {
    resume_at_ = kNever;
    went_back_to_.reset();
  }
  if (retry_at_ <= now) {
    if (retries_left_ == 0) return fail_oldest(CompletionStatus::kRetryExceeded);
    --retries_left_;
    went_back_to_.reset();
    window_.on_loss();
    go_back();
    restart_timers(now);
  }
  if (probe_at_ <= now) {
    ++probes_;
    // A QP without a `timeout` has no other timer: it probes for ever.
    const bool ends = probes_ >= kProbesMax && qp_.attributes().timeout != 0;
    probe_at_ = ends ? kNever : now + round_trip_.probe_delay(probes_);
    went_back_to_.reset();
    window_.on_loss();
    go_back();
  }
}

}  // namespace ucm::roce
