// The receiving half of a connected queue pair: executes the peer's requests in PSN order, exactly once, and owes
// responses. IBTA 9.7. Of UC it executes the messages that arrive whole, and owes nothing. IBTA 9.8.2.
#pragma once

#include <cstdint>

#include "base/ring_queue.h"
#include "roce/core.h"
#include "roce/engine.h"
#include "roce/packet.h"
#include "roce/receive_queue.h"

namespace ucm::roce {

// Writes the packet of a farewell, BTH to pad; returns its size.
std::size_t build_farewell(const Farewell& farewell, MutableBytes out);

class QueuePair;

class Responder {
 public:
  Responder(Core& core, QueuePair& qp) : core_(core), qp_(qp) {}

  // The first PSN to expect.
  void start(std::uint32_t rq_psn);
  void reset();

  void on_request(const Packet& packet);
  // Of UC: what was lost or cannot be executed costs its message and nothing else.
  void on_unreliable_request(const Packet& packet);
  // The QP is in ERR: nothing is executed any more, but a peer that did not hear that its request had succeeded is
  // told again. Without this, losing the last acknowledgement before a disconnect would fail the peer's request.
  void on_late_request(const Packet& packet);

  bool has_output() const { return !responses_.empty(); }
  // Writes the next response packet, BTH to pad; 0 when it turned out there was none to send.
  std::size_t build_packet(MutableBytes out);

  // Completes the receive in use, if any, as flushed.
  void flush();
  // The application stopped the QP: acknowledgements in front of the first READ response still go out, nothing else.
  void drop_reads();
  // Moves the acknowledgements in front of the first READ response to the core's farewells; where no READ waits, the
  // last of all follows a few times more.
  void say_farewell();

 private:
  // What became of one request packet, in the responder's words of IBTA 9.7.5.
  enum class Verdict : std::uint8_t {
    kAccepted,
    kNotReady,         // no receive posted: RNR NAK
    kInvalidRequest,   // NAK, and the QP fails
    kAccessViolation,  // NAK, and the QP fails
    kReceiveTooShort,  // NAK invalid request; the receive completes with a length error
    kReceiveBroken,    // NAK operational error; the receive completes with a protection error
    kNoRoom,           // dropped as if it had never arrived
  };
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  // A response owed. Responses leave in the order of the requests.
  struct Response {
    bool read = false;
    std::uint32_t srq_number = 0;     // a READ of XRC: whom it is for
    Acknowledgement acknowledgement;  // a READ uses psn (of its first packet), msn
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
    std::uint32_t length = 0;  // bytes
    std::uint32_t sent = 0;    // packets
    bool restarted = false;    // the next packet opens the response anew
  };
  struct AtomicResult {
    std::uint32_t psn = 0;
    std::uint64_t original = 0;
  };

  Verdict execute(const Packet& packet);
  Verdict execute_send(const Packet& packet, const ReceiveTarget& target);
  Verdict execute_write(const Packet& packet, const ReceiveTarget& target);
  Verdict begin_write(const Packet& packet, PdId pd);
  Verdict execute_read(const Packet& packet, PdId pd);
  Verdict execute_atomic(const Packet& packet, PdId pd);
  bool fits_message(const Packet& packet, Message message) const;
  void accept(const Packet& packet);
  void refuse(Verdict verdict);
  void drop_message(Verdict verdict);
  void fail_receive(CompletionStatus status);
  void note_established();
  bool begin_receive(const ReceiveTarget& target);
  void finish_receive(const Packet& packet, const ReceiveTarget& target, Completion completion);
  Verdict check_read(const Packet& packet, PdId pd) const;
  // What the peer may do with memory of this side; nullptr when it may not.
  std::uint8_t* find_memory(PdId pd, std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                            std::uint32_t access) const;

  void on_gap();
  void on_duplicate(const Packet& packet);
  void repeat_read(const Packet& packet);
  void repeat_atomic(std::uint32_t psn);

  std::uint32_t packets_of(std::uint32_t length) const;
  void push_acknowledgement(std::uint32_t psn, std::uint8_t syndrome);
  void push_read(const Packet& packet);
  void push_atomic(const AtomicResult& result);
  std::size_t build_read(Response& response, MutableBytes out);

  Core& core_;
  QueuePair& qp_;

  std::uint32_t expected_psn_ = 0;
  std::uint32_t msn_ = 0;
  bool nak_sent_ = false;  // one NAK until the expected packet arrives
  bool established_ = false;

  Message message_ = Message::kNone;  // in progress
  std::uint32_t srq_number_ = 0;      // XRC: whom the request executed last was for
  std::uint64_t write_address_ = 0;
  std::uint32_t write_rkey_ = 0;
  std::uint32_t write_length_ = 0;     // bytes, of the whole message
  std::uint32_t write_remaining_ = 0;  // bytes

  bool receiving_ = false;  // receive_ is in use
  Receive receive_;
  std::uint64_t received_ = 0;  // bytes

  RingQueue<Response> responses_;
  RingQueue<AtomicResult> atomic_results_;
};

}  // namespace ucm::roce
