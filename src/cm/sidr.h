// Service ID resolution (SIDR), how datagram QPs find each other: one question, one answer. What goes into the engine
// and comes out of it for that; the engine's sidr_ functions are the interface.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/deadline_heap.h"
#include "base/hash.h"
#include "base/inline_bytes.h"
#include "base/ring_queue.h"
#include "base/time.h"
#include "cm/listeners.h"
#include "cm/path.h"
#include "cm/sidr_state_machine.h"
#include "cm/slab.h"
#include "cm/slot_table.h"
#include "wire/ip_cm.h"
#include "wire/mad.h"

namespace ucm::cm {

// Like the engine's other handles.
enum class SidrId : std::uint64_t {};

struct SidrConnectParams {
  Path path{};
  std::uint64_t service_id = 0;
  std::uint16_t source_port = 0;
  std::uint32_t qkey = 0;  // the only one taken from the peer; 0: any but 0
  Bytes private_data{};    // at most 180; copied
  std::uint64_t user = 0;
};

struct SidrAcceptParams {
  std::uint32_t qpn = 0;
  std::uint32_t qkey = 0;
  Bytes private_data{};  // at most 136; copied
};

enum class SidrEventType : std::uint8_t {
  kRequest,      // a listener got SIDR_REQ; `exchange` is new
  kReply,        // the peer told its QP and Q_Key
  kRefused,      // status = SIDR status, positive
  kBadQkey,      // the reply has a Q_Key that is not the own one; status -22
  kUnreachable,  // no answer; status -110
};

struct SidrEvent {
  SidrEventType type{};
  SidrId exchange{};
  ListenerId listener{};   // kRequest only
  std::uint64_t user = 0;  // of the exchange; of the listener for kRequest
  std::int32_t status = 0;
  std::uint32_t qpn = 0;   // kReply
  std::uint32_t qkey = 0;  // kReply
  // kRequest: 180 bytes after the IP CM header; kReply, kRefused, kBadQkey: 136; else empty.
  InlineBytes<180> private_data{};
  // kRequest: from the IP CM header and the packet.
  wire::IpCmHeader addresses{};
  Path path{};
};

// What the engine keeps of one exchange.
struct SidrExchange {
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::uint64_t user = 0;
  std::uint64_t transaction_id = 0;
  std::uint64_t service_id = 0;
  Path path{};
  std::uint32_t generation = 1;    // of the slot; goes up with every life
  std::uint32_t request_id = 0;    // the active side's comm ID
  std::uint32_t qkey = 0;          // active: what the peer must answer
  std::uint32_t message = kNone;   // the request or the answer, while it may be needed again
  std::uint32_t listener = kNone;  // while the request is not taken
  TimeNs sent_at = 0;              // active, of the request: as for a connection's (exchange.h)
  TimeNs give_up_at = 0;
  TimeNs wait = 0;
  SidrState state = SidrState::kGone;
  bool active = false;
  std::uint8_t repetitions = 0;

  void add_to(StateHash& hash) const;
};

// Everything the engine has for SIDR.
struct SidrTables {
  Slab<SidrExchange> exchanges;
  Slab<std::array<std::uint8_t, wire::kMadSize>> messages;
  SlotTable by_request_id;      // active, from birth to destroy
  SlotTable by_remote_request;  // passive, until the peer has stopped asking
  DeadlineHeap timers;          // the next repetition, or the end of an answer's life
  RingQueue<SidrEvent> events;
};

}  // namespace ucm::cm
