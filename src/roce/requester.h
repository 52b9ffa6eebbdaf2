// The sending half of a connected queue pair: turns posted sends into packets, within a window, and takes the
// responses. Loss is repaired by going back to the oldest unacknowledged PSN. IBTA 9.7. A packet of UC is done with
// when it leaves: no window, no response, no timer. IBTA 9.8.2.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ring_queue.h"
#include "base/time.h"
#include "roce/core.h"
#include "roce/engine.h"
#include "roce/packet.h"
#include "roce/send_queue.h"
#include "roce/window.h"

namespace ucm::roce {

class QueuePair;

class Requester {
 public:
  Requester(Core& core, QueuePair& qp) : core_(core), qp_(qp) {}

  // The first PSN to send. The QP's attributes are complete.
  void start(std::uint32_t sq_psn);
  void reset();
  // Nothing will be sent or timed any more.
  void stop();

  bool has_output() const;
  // Writes the next request packet, BTH to pad; 0 when there was none after all (a local operation, a local error).
  std::size_t build_packet(TimeNs now, MutableBytes out);
  void on_response(TimeNs now, const Packet& packet);

  TimeNs next_deadline() const;
  void on_deadline(TimeNs now);

 private:
  // --- sending
  bool started(std::uint64_t index) const { return index < started_end_; }
  bool may_send(const Send& send) const;
  std::uint32_t packets_in_flight() const;
  std::uint32_t read_packets(const Send& send) const;
  void start_send(Send& send);
  void begin_request(PacketWriter& writer, const wire::Bth& bth, const Send& send) const;
  void finish_local(Send& send);
  bool check_memory(Send& send);
  std::size_t build_request(Send& send, MutableBytes out);
  std::size_t build_data(Send& send, bool asks, MutableBytes out);
  bool asks_acknowledgement(const Send& send) const;
  void advance_cursor(Send& send, std::uint32_t packets);
  void note_sent(TimeNs now, std::uint32_t psn, bool measured);
  void fail_at_cursor(Send& send, CompletionStatus status);

  // --- responses
  std::optional<std::uint32_t> first_missing_response() const;
  bool acknowledge_before(TimeNs now, std::uint32_t psn);
  void advance(TimeNs now, std::uint32_t unacknowledged);
  void complete_acknowledged();
  void on_acknowledge(TimeNs now, const Packet& packet);
  void on_nak(TimeNs now, const Packet& packet);
  void on_receiver_not_ready(TimeNs now, std::uint8_t timer);
  void on_returned_data(TimeNs now, const Packet& packet);
  CompletionStatus take_read_data(const Send& send, const Packet& packet);
  CompletionStatus take_atomic_data(const Send& send, const Packet& packet);

  // --- recovery
  void go_back();
  void go_back_once();
  void fail_oldest(CompletionStatus status);
  void restart_timers(TimeNs now);
  void stop_timers();
  TimeNs retry_interval() const;

  Core& core_;
  QueuePair& qp_;

  // PSNs: unacknowledged <= cursor <= unsent. After going back, what lies between cursor and unsent is sent again.
  std::uint32_t unacknowledged_psn_ = 0;
  std::uint32_t cursor_psn_ = 0;
  std::uint32_t unsent_psn_ = 0;
  // The cursor as a send (absolute index) and a packet of it.
  std::uint64_t cursor_index_ = 0;
  std::uint32_t cursor_packet_ = 0;
  std::uint64_t started_end_ = 0;    // sends before this index have their PSNs
  std::uint32_t awaiting_data_ = 0;  // started READs and atomics that have not completed

  RingQueue<std::uint32_t> open_reads_;  // the last PSN of each READ and atomic between unacknowledged and cursor
  Window window_;
  std::optional<std::uint32_t> went_back_to_;  // a second report of the same loss is the echo of the first

  RoundTrip round_trip_;
  std::optional<std::uint32_t> timed_psn_;  // of the packet whose round trip is being measured
  TimeNs timed_at_ = 0;

  TimeNs retry_at_ = kNever;  // the QP's `timeout`
  TimeNs probe_at_ = kNever;
  TimeNs resume_at_ = kNever;  // end of a wait that the receiver asked for
  std::uint32_t retries_left_ = 0;
  std::uint32_t not_ready_retries_left_ = 0;
  std::uint32_t probes_ = 0;  // without an answer since
};

}  // namespace ucm::roce
