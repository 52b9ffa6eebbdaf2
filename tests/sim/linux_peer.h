// A model of the CM of a Linux host (ib_cm below, rdma_cm above) as a node of the simulation: what it sends, when, and
// what its programs hear of it. Written from observations of the kernel and from its documentation of the protocol,
// over the codecs of src/wire and nothing of src/cm: where it and UCM's engine agree, two independent readings do.
//
// Left out: SIDR, LAP, AF_IB, address resolution. Transient states that nothing can be observed in (REQ_RCVD, REP_RCVD)
// are passed in one step.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/deadline_heap.h"
#include "base/random.h"
#include "base/ring_queue.h"
#include "sim/node.h"
#include "wire/cm_messages.h"
#include "wire/ip_cm.h"

namespace ucm::sim {

struct LinuxConfig {
  wire::IpAddress address{};
  std::uint64_t guid = 0;
  std::uint64_t seed = 1;             // of the comm IDs, as a boot chooses them
  std::uint8_t packet_lifetime = 18;  // exponent of 4.096 us: 18 up to Linux 6.1, 16 from 6.2 on
  std::uint8_t ca_ack_delay = 15;     // rxe
  // The kernel's timers fire late, by up to the granularity of the wheel's level: 256 ms for 2 to 16 s at HZ 250.
  bool timer_wheel = true;
};

inline constexpr std::uint8_t kLinuxOlderLifetime = 18;
inline constexpr std::uint8_t kLinuxNewerLifetime = 16;

// The states of ib_cm that can be seen.
enum class LinuxState : std::uint8_t {
  kReqSent,
  kMraReqRcvd,
  kMraRepSent,
  kMraReqSent,
  kRepSent,
  kMraRepRcvd,
  kEstablished,
  kDreqSent,
  kDreqRcvd,
  kTimewait,
  kIdle,
  kFree,
};

class LinuxPeer final : public Node {
 public:
  explicit LinuxPeer(const LinuxConfig& config);

  Handle listen(std::uint16_t port, std::uint32_t backlog, std::uint64_t user) override;
  void close_listener(TimeNs now, Handle listener) override;
  Handle connect(TimeNs now, const ConnectRequest& request) override;
  void request_taken(TimeNs now, Handle connection) override;
  void set_user(Handle connection, std::uint64_t user) override;
  bool accept(TimeNs now, Handle connection, std::uint32_t qpn, std::uint64_t note) override;
  bool reject(TimeNs now, Handle connection) override;
  bool establish(TimeNs now, Handle connection) override;
  void disconnect(TimeNs now, Handle connection) override;
  void destroy(TimeNs now, Handle connection) override;
  std::optional<QpNumbers> qp(Handle connection) const override;
  void on_packet(TimeNs now, const wire::IpAddress& from, Bytes mad) override;
  void on_deadline(TimeNs now) override;
  TimeNs next_deadline() const override { return timers_.next(); }
  bool poll_packet(Packet& packet) override;
  bool poll_event(Event& event) override;
  Usage usage() const override;
  bool answers_every_dreq() const override { return false; }

  // kFree for an invalid handle.
  LinuxState state(Handle connection) const;

 private:
  using Slot = std::uint32_t;
  using Mad = std::array<std::uint8_t, wire::kMadSize>;
  static constexpr Slot kNone = UINT32_MAX;

  // An rdma_cm_id with its cm_id.
  struct Id {
    LinuxState state = LinuxState::kFree;
    bool active = false;
    bool deaf = false;          // passive, before accept: no events
    bool disconnected = false;  // the rdma_cm_id's state is DISCONNECT, not CONNECT
    bool in_tables = false;     // of remote IDs and remote QPs
    std::uint32_t generation = 1;
    std::uint64_t user = 0;
    wire::IpAddress remote{};
    std::uint64_t tid = 0;
    std::uint32_t local_id = 0;
    std::uint32_t remote_id = 0;
    std::uint64_t remote_guid = 0;
    std::uint32_t local_qpn = 0;
    std::uint32_t remote_qpn = 0;
    std::uint32_t rq_psn = 0;
    std::uint32_t sq_psn = 0;
    std::uint8_t av_timeout = 0;  // exponent
    std::uint8_t retries_max = 0;
    std::uint32_t timeout_ms = 0;  // of this side's REQ or REP, and of its DREQ
    // The MAD under way, repeated until it is cancelled.
    std::uint32_t interval_ms = 0;
    std::uint8_t retries_left = 0;
    Mad mad{};
    Slot listener = kNone;  // while it occupies the backlog
  };
  struct Listener {
    bool open = false;
    std::uint32_t generation = 1;
    std::uint16_t port = 0;
    std::uint32_t backlog = 0;
    std::uint32_t untaken = 0;
    std::uint64_t user = 0;
  };
  struct RemoteKey {
    std::uint64_t guid = 0;
    std::uint32_t number = 0;
    bool operator==(const RemoteKey&) const = default;
  };
  struct RemoteHash {
    std::size_t operator()(const RemoteKey& key) const { return key.guid * 0x9e3779b97f4a7c15 + key.number; }
  };
  using RemoteTable = std::unordered_map<RemoteKey, Slot, RemoteHash>;

  Slot slot_of(Handle connection) const;
  Handle handle_of(Slot slot) const { return Handle{ids_[slot].generation} << 32 | slot; }
  Slot create(const wire::IpAddress& remote);
  void free(Slot slot);
  // By the own ID and the peer's, which is 0 until it is known.
  Slot acquire(std::uint32_t local_id, std::uint32_t remote_id) const;
  static Slot find(const RemoteTable& table, std::uint64_t guid, std::uint32_t number);
  void leave_tables(Slot slot);

  TimeNs expiry(TimeNs now, std::uint32_t ms) const;
  void start_mad(TimeNs now, Slot slot, const Mad& mad, std::uint32_t interval_ms, std::uint8_t retries);
  void cancel_mad(Slot slot) { timers_.remove(slot); }
  void enter_timewait(TimeNs now, Slot slot);
  void reset_to_idle(Slot slot);
  void on_retries_exhausted(TimeNs now, Slot slot);
  void report(Slot slot, EventType type, std::int32_t status = 0);
  void drop_events(Slot slot);
  void leave_backlog(Id& id);

  void on_req(TimeNs now, const wire::IpAddress& from, Bytes mad);
  void on_duplicate_req(Slot slot);
  void on_rep(TimeNs now, Bytes mad);
  void on_rtu(const wire::Rtu& rtu);
  void on_mra(TimeNs now, const wire::Mra& mra);
  void on_rej(TimeNs now, const wire::Rej& rej);
  void on_dreq(TimeNs now, const wire::IpAddress& from, const wire::MadHeader& header, const wire::Dreq& dreq);
  void on_drep(TimeNs now, const wire::Drep& drep);

  template <class Message>
  static Mad mad_of(std::uint64_t tid, const Message& message);
  void send(const wire::IpAddress& to, const Mad& mad);
  void refuse(const wire::IpAddress& to, const wire::MadHeader& header, std::uint32_t local_id, std::uint32_t remote_id,
              wire::RejReason reason, const wire::IpAddress* ari = nullptr);
  void send_rej(Slot slot, wire::MessageKind message);
  void send_rej_timeout(Slot slot);
  void send_mra(Slot slot);
  void send_rtu(Slot slot);
  void send_dreq(TimeNs now, Slot slot, bool repeated);
  void send_drep(Slot slot);

  LinuxConfig config_;
  Random random_;
  std::uint32_t id_counter_ = 0;
  std::uint32_t id_random_ = 0;
  std::vector<Id> ids_;
  std::vector<Slot> free_;
  std::vector<Listener> listeners_;
  std::unordered_map<std::uint32_t, Slot> by_local_id_;
  RemoteTable by_remote_id_;
  RemoteTable by_remote_qp_;
  DeadlineHeap timers_;  // of every ID: the MAD's next repetition, or the end of timewait
  RingQueue<Packet> packets_;
  RingQueue<Event> events_;
};

}  // namespace ucm::sim
