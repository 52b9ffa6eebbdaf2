// One queue pair: its state machine, its queues, and what sends and receives for it. Requester and Responder (RC,
// UC, XRC) and Datagrams (UD) do the work; this class is what they share.
#pragma once

#include <cstdint>
#include <optional>

#include "roce/completion_queue.h"
#include "roce/core.h"
#include "roce/datagrams.h"
#include "roce/engine.h"
#include "roce/packet.h"
#include "roce/receive_queue.h"
#include "roce/requester.h"
#include "roce/responder.h"
#include "roce/send_queue.h"

namespace ucm::roce {

class QueuePair {
 public:
  // Null is what the type has not, and an SRQ where none was wanted.
  struct Queues {
    CompletionQueue* send_cq = nullptr;
    CompletionQueue* recv_cq = nullptr;
    SharedReceiveQueue* srq = nullptr;
  };
  QueuePair(Core& core, const QpParams& params, const Queues& queues);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // --- what the engine calls; after each call has_output() and next_deadline() may have changed
  Result<void> modify(const QpAttributes& attributes, std::uint32_t mask);
  // `destination` is the address behind request.ah; null when there is none. Only UD needs it.
  Result<void> post_send(const SendRequest& request, const AddressVector* destination);
  Result<void> post_recv(const RecvRequest& request);
  // The packet is addressed to this QP, and its ICRC and P_Key are right.
  void on_packet(TimeNs now, const wire::DatagramInfo& info, const Packet& packet);
  bool has_output() const;
  // Writes BTH to pad and fills `info` but for its source port; returns the size, 0 when there was only an error to
  // find. Called while has_output().
  std::size_t build_packet(TimeNs now, wire::DatagramInfo& info, MutableBytes out);
  TimeNs next_deadline() const { return requester_.next_deadline(); }
  void on_deadline(TimeNs now) { requester_.on_deadline(now); }
  // A completion was lost: the QP cannot go on.
  bool lost_completion() const { return lost_completion_; }
  // To ERR, with an event; nothing in RESET or ERR.
  void fail_with(EventType type);
  // The QP is about to go: hands what it still owes to the core and withdraws its completions.
  void retire();

  // --- what the parts call
  const QpParams& params() const { return params_; }
  const QpAttributes& attributes() const { return attributes_; }
  QpState state() const { return attributes_.state; }
  // Whether the peer acknowledges.
  bool reliable() const { return params_.type == QpType::kRc || is_xrc(params_.type); }
  wire::Service service() const;
  std::uint32_t mtu() const { return 128u << attributes_.path_mtu; }
  SendQueue& send_queue() { return send_queue_; }
  const SendQueue& send_queue() const { return send_queue_; }

  ReceiveTarget own_target() const { return {.pd = params_.pd, .srq = queues_.srq, .cq = queues_.recv_cq}; }
  // The QP's own, or of XRC that of the SRQ with this number; nullopt when the QP's domain has no such SRQ.
  std::optional<ReceiveTarget> target_of(std::uint32_t srq_number) const;
  // The next posted receive; nullptr when there is none.
  const Receive* oldest_receive(const ReceiveTarget& target) const;
  // Takes the next posted receive. May raise the limit event of an SRQ.
  bool take_receive(const ReceiveTarget& target, Receive& receive);
  // Completes the oldest send and removes it. A success is reported only when it was asked for.
  void complete_send(CompletionStatus status);
  // Fills in what is the same for every completion of this QP.
  void complete_receive(const ReceiveTarget& target, Completion completion, bool solicited);
  // Completes every posted send in order: `failed` (an absolute index) with `status`, the others as flushed.
  void flush_sends(std::uint64_t failed, CompletionStatus status);
  // To ERR: flushes both queues in order. The queues' own errors have been completed before.
  void enter_error();
  // A UC or UD send failed locally: only the send queue stops.
  void enter_send_error() { attributes_.state = QpState::kSqe; }

 private:
  Result<void> check_values(const QpAttributes& attributes, std::uint32_t mask) const;
  void assign(const QpAttributes& attributes, std::uint32_t mask);
  QpAttributes initial_attributes() const;
  void enter(QpState to);
  void reset();
  void flush_receives();
  bool accepts_from(const wire::DatagramInfo& info) const;

  Core& core_;
  QpParams params_;
  QpAttributes attributes_;
  Queues queues_;
  SendQueue send_queue_;
  ReceiveQueue receive_queue_;
  Requester requester_;
  Responder responder_;
  Datagrams datagrams_;
  bool lost_completion_ = false;
  bool requester_turn_ = false;  // requests and responses alternate when both wait
};

}  // namespace ucm::roce
