// The software RoCEv2 device of one process as an engine: protection domains, memory regions, completion queues,
// shared receive queues, address handles and RC, UC, UD and XRC queue pairs. No I/O, clock, thread or verbs header.
//
// After any call that takes `now`, drain poll_packet() and poll_event() until they return nothing, and ask
// next_deadline() again. Not thread-safe: the caller holds one lock around every call. The engine reads and writes the
// application's memory only inside registered regions.
//
// One engine serves every device of the process: QP numbers and keys are unique across them; a QP's addresses come from
// its address vector.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "wire/address.h"
#include "wire/datagram.h"

namespace ucm::roce {

enum class PdId : std::uint32_t {};
enum class CqId : std::uint32_t {};
enum class SrqId : std::uint32_t {};
enum class AhId : std::uint32_t {};
enum class XrcdId : std::uint32_t {};
using Qpn = std::uint32_t;

inline constexpr std::uint32_t kSgeMax = 32;
inline constexpr std::uint32_t kInlineMax = 512;          // bytes
inline constexpr std::uint32_t kMessageMax = 1u << 30;    // bytes
inline constexpr std::uint32_t kWorkRequestsMax = 16384;  // per queue
inline constexpr std::uint32_t kCqeMax = 1u << 20;
inline constexpr std::uint8_t kRdAtomicMax = 128;
// A whole UDP payload: BTH + RETH/AtomicETH + immediate + 4096 bytes + pad + ICRC, rounded up.
inline constexpr std::size_t kPacketSizeMax = 4096 + 64;

// Access rights; the values are those of IBV_ACCESS_*.
inline constexpr std::uint32_t kAccessLocalWrite = 1;
inline constexpr std::uint32_t kAccessRemoteWrite = 2;
inline constexpr std::uint32_t kAccessRemoteRead = 4;
inline constexpr std::uint32_t kAccessRemoteAtomic = 8;
inline constexpr std::uint32_t kAccessWindowBind = 16;

enum class WindowType : std::uint8_t { kType1 = 1, kType2 = 2 };
// XRC has a queue pair for each direction: one sends, the other receives into whichever SRQ of its domain is named.
enum class QpType : std::uint8_t { kRc, kUc, kUd, kXrcSend, kXrcRecv };
constexpr bool has_send_queue(QpType type) { return type != QpType::kXrcRecv; }
constexpr bool has_receives(QpType type) { return type != QpType::kXrcSend; }
constexpr bool is_xrc(QpType type) { return type == QpType::kXrcSend || type == QpType::kXrcRecv; }

// The order is that of ibv_qp_state.
enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };

// Source and destination of what a QP or an address handle sends.
struct AddressVector {
  wire::IpAddress local;
  wire::IpAddress remote;
  std::uint32_t ifindex = 0;  // of a link-local or multicast address
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

struct QpCapacity {
  std::uint32_t send_wr_max = 0;
  std::uint32_t recv_wr_max = 0;  // ignored with an SRQ
  std::uint32_t send_sge_max = 0;
  std::uint32_t recv_sge_max = 0;
  std::uint32_t inline_max = 0;  // bytes
};

struct QpParams {
  Qpn qpn = 0;  // from the block the node handed out; unique
  QpType type = QpType::kRc;
  PdId pd{};                   // not of kXrcRecv: the domain is that of the SRQ a request names
  CqId send_cq{};              // not of kXrcRecv
  CqId recv_cq{};              // of neither XRC type
  std::optional<SrqId> srq{};  // likewise
  XrcdId xrcd{};               // of kXrcRecv
  QpCapacity capacity{};
  bool signal_all = false;  // sq_sig_all
  std::uint64_t user = 0;   // returned in events
};

// Which members of QpAttributes a modify_qp() sets.
enum QpAttributeMask : std::uint32_t {
  kQpState = 1 << 0,
  kQpAccess = 1 << 1,
  kQpQkey = 1 << 2,
  kQpAddress = 1 << 3,
  kQpPathMtu = 1 << 4,
  kQpTimeout = 1 << 5,
  kQpRetryCount = 1 << 6,
  kQpRnrRetry = 1 << 7,
  kQpRqPsn = 1 << 8,
  kQpMaxRdAtomic = 1 << 9,
  kQpMinRnrTimer = 1 << 10,
  kQpSqPsn = 1 << 11,
  kQpMaxDestRdAtomic = 1 << 12,
  kQpDestQpn = 1 << 13,
};

struct QpAttributes {
  QpState state = QpState::kReset;
  std::uint32_t access = 0;
  std::uint32_t qkey = 0;
  AddressVector address{};
  std::uint8_t path_mtu = 3;  // 1 = 256 .. 5 = 4096
  std::uint8_t timeout = 0;   // exponent of 4.096 us; 0 = no timer
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry = 0;  // 7 = without end
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
  std::uint8_t max_rd_atomic = 0;
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  // code of cm-protocol K.2
  Qpn dest_qpn = 0;
};

struct MrParams {
  PdId pd{};
  void* address = nullptr;   // where the bytes are in this process
  std::uint64_t length = 0;  // bytes
  std::uint64_t iova = 0;    // the address remote and local requests use; normally the address itself
  std::uint32_t access = 0;
};
struct MrKeys {
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
};

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

enum class SendOpcode : std::uint8_t {
  kSend,
  kSendImm,
  kSendInvalidate,
  kWrite,
  kWriteImm,
  kRead,
  kCompareSwap,
  kFetchAdd,
  kLocalInvalidate,
  kBindWindow,
};

// What a memory window becomes: a part of a region with rights of its own, under a key of its own.
struct WindowBinding {
  std::uint32_t rkey = 0;  // the window's, with another last byte
  std::uint32_t lkey = 0;  // of the region
  std::uint64_t address = 0;
  std::uint64_t length = 0;  // bytes; 0 takes the window's rights away
  std::uint32_t access = 0;
};

struct SendRequest {
  std::uint64_t wr_id = 0;
  SendOpcode opcode = SendOpcode::kSend;
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;     // sges point at plain memory; copied before post_send() returns
  std::uint32_t immediate = 0;  // wire order as the application gave it; or the rkey to invalidate
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
  WindowBinding binding{};        // kBindWindow
  AhId ah{};                      // UD
  Qpn remote_qpn = 0;             // UD
  std::uint32_t remote_srq = 0;   // XRC: the number of the peer's SRQ
  std::uint32_t remote_qkey = 0;  // UD; with the top bit set the QP's own Q_Key is sent
  std::span<const Sge> sges{};
};

struct SrqParams {
  PdId pd{};
  std::uint32_t wr_max = 0;
  std::uint32_t sge_max = 0;
  // An SRQ of XRC belongs to a domain and completes what it receives itself.
  struct Xrc {
    XrcdId xrcd{};
    CqId cq{};
  };
  std::optional<Xrc> xrc{};
  std::uint64_t user = 0;  // returned in events
};

struct RecvRequest {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges{};
};

// The values are those of ibv_wc_status.
enum class CompletionStatus : std::uint8_t {
  kSuccess = 0,
  kLocalLength = 1,
  kLocalQpOperation = 2,
  kLocalProtection = 4,
  kFlushed = 5,
  kWindowBind = 6,
  kBadResponse = 7,
  kLocalAccess = 8,
  kRemoteInvalidRequest = 9,
  kRemoteAccess = 10,
  kRemoteOperation = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
  kGeneral = 21,
};

// The values are those of ibv_wc_opcode.
enum class CompletionOpcode : std::uint8_t {
  kSend = 0,
  kWrite = 1,
  kRead = 2,
  kCompareSwap = 3,
  kFetchAdd = 4,
  kBindWindow = 5,
  kLocalInvalidate = 6,
  kRecv = 128,
  kRecvWithImm = 129,
};

struct Completion {
  std::uint64_t wr_id = 0;
  CompletionStatus status = CompletionStatus::kSuccess;
  CompletionOpcode opcode = CompletionOpcode::kSend;
  std::uint32_t byte_count = 0;
  std::uint32_t immediate = 0;  // wire order, or the invalidated rkey
  bool has_immediate = false;
  bool has_invalidated_rkey = false;
  bool has_grh = false;  // UD receive: the first 40 bytes of the buffer are the GRH area
  Qpn qpn = 0;
  Qpn source_qpn = 0;
  std::uint64_t qp_user = 0;
};

enum class NotifyKind : std::uint8_t { kNextCompletion, kNextSolicited };

enum class EventType : std::uint8_t {
  kCompletion,     // an armed CQ got a completion; it is disarmed now
  kCqOverrun,      // the CQ lost a completion and is unusable
  kQpEstablished,  // data on a QP in RTR: COMM_EST
  kQpFatal,
  kQpRequestError,  // an invalid request of the peer moved the QP to ERR
  kQpAccessError,   // a request of the peer violated access rights; QP in ERR
  kQpLastWqe,       // SRQ-attached QP in ERR: no more receive will be taken
  kSrqLimit,
};
struct Event {
  EventType type{};
  std::uint64_t user = 0;  // of the CQ, QP or SRQ
};

struct Counters {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t packets_retransmitted = 0;
  std::uint64_t icrc_errors = 0;
  std::uint64_t icrc_solved_ids = 0;
  std::uint64_t malformed = 0;     // short packets, unknown opcodes, bad lengths
  std::uint64_t unknown_qp = 0;    // no such QP, wrong state or type
  std::uint64_t wrong_source = 0;  // packets of a connected QP not from its peer
  std::uint64_t pkey_violations = 0;
  std::uint64_t qkey_violations = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t out_of_sequence = 0;
  std::uint64_t no_receive = 0;  // RNR NAK sent, or a UC or UD message dropped
  std::uint64_t access_errors = 0;
  std::uint64_t datagrams_too_long = 0;  // for the port: completed, not sent
};

class Engine {
 public:
  // `key` seeds rkeys and the numbers of SRQs.
  explicit Engine(const RandomKey& key);
  ~Engine();

  Result<PdId> alloc_pd();
  Result<void> dealloc_pd(PdId pd);  // EBUSY while used
  bool has_pd(PdId pd) const;

  Result<MrKeys> reg_mr(const MrParams& params);
  Result<MrParams> query_mr(std::uint32_t lkey) const;
  Result<void> dereg_mr(std::uint32_t lkey);  // EBUSY while a window is bound to it
  // The region becomes what `params` says and keeps its keys; unchanged when that is refused.
  Result<void> rereg_mr(std::uint32_t lkey, const MrParams& params);

  // A memory window, which is of no use until it is bound. Of type 1 it serves every QP of the domain and may be bound
  // again; of type 2 only the QP that bound it, until it is invalidated. Returns its rkey.
  Result<std::uint32_t> alloc_mw(PdId pd, WindowType type);
  Result<void> dealloc_mw(std::uint32_t rkey);

  Result<CqId> create_cq(std::uint32_t cqe_min, std::uint64_t user);  // capacity is at least cqe_min
  std::uint32_t cq_capacity(CqId cq) const;
  Result<void> resize_cq(CqId cq, std::uint32_t cqe_min);
  Result<void> destroy_cq(CqId cq);  // EBUSY while a QP or SRQ uses it
  // Moves up to out.size() completions out; returns how many. EINVAL after an overrun.
  Result<std::size_t> poll_cq(CqId cq, std::span<Completion> out);
  void request_notify(CqId cq, NotifyKind kind);

  // An XRC domain: the receiving QPs that are in it may serve the SRQs that are.
  Result<XrcdId> alloc_xrcd();
  Result<void> dealloc_xrcd(XrcdId xrcd);  // EBUSY while used

  Result<SrqId> create_srq(const SrqParams& params);
  Result<void> destroy_srq(SrqId srq);  // EBUSY while a QP uses it; no XRC QP does
  // What requests of XRC call it: 24 bits, unique in this engine. EINVAL: not an SRQ of XRC.
  Result<std::uint32_t> srq_number(SrqId srq) const;
  Result<void> set_srq_limit(SrqId srq, std::uint32_t limit);
  std::uint32_t srq_limit(SrqId srq) const;
  Result<void> post_srq_recv(TimeNs now, SrqId srq, const RecvRequest& request);  // ENOMEM when full

  Result<AhId> create_ah(PdId pd, const AddressVector& address);
  void destroy_ah(AhId ah);

  // The capacity granted is written back and never smaller than asked for. EINVAL names what is out of limits.
  Result<void> create_qp(QpParams& params);
  // Checks that the transition and the mask are legal (IBTA 11.2.5.2), else EINVAL and nothing changes.
  Result<void> modify_qp(TimeNs now, Qpn qpn, const QpAttributes& attributes, std::uint32_t mask);
  Result<QpAttributes> query_qp(Qpn qpn) const;
  // Completions already queued stay in the CQs except those of this QP, which are removed. EBUSY while attached to a
  // multicast group.
  Result<void> destroy_qp(TimeNs now, Qpn qpn);

  // Copies of what is sent to the group go to the UD queue pair. False: they do already. EINVAL: not UD, no multicast
  // address; ENOMEM: kGroupsPerQpMax.
  Result<bool> attach_multicast(Qpn qpn, const wire::MulticastGroup& group);
  Result<void> detach_multicast(Qpn qpn, const wire::MulticastGroup& group);  // EINVAL: not attached

  // EINVAL: state, opcode, too many sges, inline too long; ENOMEM: queue full. In ERR the request is flushed at once.
  Result<void> post_send(TimeNs now, Qpn qpn, const SendRequest& request);
  Result<void> post_recv(TimeNs now, Qpn qpn, const RecvRequest& request);

  // A UDP payload addressed to port 4791: BTH up to and including ICRC. Any bytes.
  void on_packet(TimeNs now, const wire::DatagramInfo& info, Bytes payload);

  // Builds the next packet to send into `out` (at least kPacketSizeMax bytes), ICRC for source_port included.
  // Returns its length and fills `info`; 0 when there is nothing to send now.
  std::size_t poll_packet(TimeNs now, std::uint16_t source_port, wire::DatagramInfo& info, MutableBytes out);
  std::optional<Event> poll_event();

  TimeNs next_deadline() const;
  void on_deadline(TimeNs now);

  // The node is gone: every QP goes to ERR (work requests are flushed) with a kQpFatal event.
  void fail_all(TimeNs now);

  const Counters& counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ucm::roce
