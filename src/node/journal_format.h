// The records of a journal: a wire format between one ucmd and the next one, which may be of another version. Grown
// only through reserved fields; anything else, a new value of an enumeration in the middle included, raises
// kJournalVersion, and the new version still reads the old one's (tests/golden/journal).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cm/connection_record.h"
#include "ipc/cm_api.h"

namespace ucm::node {

inline constexpr std::array<char, 8> kJournalMagic{'U', 'C', 'M', 'J', 'O', 'U', 'R', '\n'};
inline constexpr std::uint32_t kJournalVersion = 1;

// Two cells per connection: half a million survive. The memory is taken only as it is used.
inline constexpr std::uint32_t kJournalCellsMax = 1u << 20;
inline constexpr std::size_t kJournalCellSize = 512;
// The changes of one commit. What is more becomes two commits: a session with ten thousand connections ends in one.
inline constexpr std::size_t kJournalStageSize = 4u << 20;

// In the first page; the staged changes follow in the next one, then the cells.
struct JournalHeader {
  std::array<char, 8> magic = kJournalMagic;
  std::uint32_t version = kJournalVersion;
  std::uint32_t cell_size = kJournalCellSize;
  std::uint32_t cells_max = kJournalCellsMax;
  std::uint32_t stage_size = kJournalStageSize;
  std::atomic<std::uint64_t> committed = 0;  // bytes of changes that are being applied to the cells; 0 when done
  std::atomic<std::uint32_t> used = 0;       // cells that ever had a record
  std::uint32_t reserved = 0;
};
inline constexpr std::size_t kJournalStageAt = 4096;
inline constexpr std::size_t kJournalCellsAt = kJournalStageAt + kJournalStageSize;
inline constexpr std::size_t kJournalSize = kJournalCellsAt + kJournalCellsMax * kJournalCellSize;
static_assert(sizeof(JournalHeader) == 40 && offsetof(JournalHeader, committed) == 24);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

enum class RecordKind : std::uint16_t {
  kFree = 0,
  kSession,
  kLink,
  kQpnBlock,
  kSendPort,
  kGroup,
  kId,
  kConnection,
  kEvent,
  kGrant,
};

// In front of every record in a cell.
struct CellHeader {
  RecordKind kind{};
  std::uint16_t size = 0;  // of the record
  std::uint32_t reserved = 0;
};
static_assert(sizeof(CellHeader) == 8);
inline constexpr std::size_t kRecordSizeMax = kJournalCellSize - sizeof(CellHeader);

// In front of every staged change: the cell's new header and record follow.
struct ChangeHeader {
  std::uint32_t cell = 0;
  std::uint32_t reserved = 0;
};

// A program; its descriptors are with the keeper.
struct SessionRecord {
  static constexpr RecordKind kKind = RecordKind::kSession;
  std::uint32_t session = 0;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t last_request = 0;  // the sequence number of the last request on the control socket
  std::array<char, 16> program_name{};
  std::uint32_t low_ports = 0;  // 1: it may bind service ports below 1024
  std::array<std::uint32_t, 6> reserved{};
};
static_assert(sizeof(SessionRecord) == 64);

// An event channel. `calls` and `replies` say where its rings stand: their records are of fixed size.
struct LinkRecord {
  static constexpr RecordKind kKind = RecordKind::kLink;
  std::uint32_t link = 0;
  std::uint32_t session = 0;
  std::uint64_t calls = 0;  // executed
  std::uint64_t replies = 0;
  ipc::CmReply last_reply{};
  std::uint32_t reserved = 0;
};
static_assert(sizeof(LinkRecord) == 136);

// Numbers of IDs that a link may make without asking.
struct GrantRecord {
  static constexpr RecordKind kKind = RecordKind::kGrant;
  std::uint32_t link = 0;
  std::uint32_t session = 0;
  std::uint32_t next = 0;
  std::uint32_t left = 0;
};
static_assert(sizeof(GrantRecord) == 16);

struct QpnBlockRecord {
  static constexpr RecordKind kKind = RecordKind::kQpnBlock;
  std::uint32_t session = 0;
  std::uint32_t first_qpn = 0;
  std::uint32_t position = 0;  // among the session's blocks
  std::uint32_t reserved = 0;
};
static_assert(sizeof(QpnBlockRecord) == 16);

struct SendPortRecord {
  static constexpr RecordKind kKind = RecordKind::kSendPort;
  std::uint32_t session = 0;
  std::uint16_t port = 0;
  std::uint16_t reserved0 = 0;
  std::array<std::uint32_t, 2> reserved{};
};
static_assert(sizeof(SendPortRecord) == 16);

// One join of a session; a session that joins twice has two.
struct GroupRecord {
  static constexpr RecordKind kKind = RecordKind::kGroup;
  std::uint32_t session = 0;
  std::uint32_t ifindex = 0;
  std::array<std::uint8_t, 16> address{};
  std::array<std::uint32_t, 2> reserved{};
};
static_assert(sizeof(GroupRecord) == 32);

// As RdmaId.
struct IdRecord {
  static constexpr RecordKind kKind = RecordKind::kId;
  std::uint32_t id = 0;
  std::uint32_t session = 0;
  std::uint32_t link = 0;
  std::uint32_t ifindex = 0;
  ipc::SocketAddress local{};
  ipc::SocketAddress remote{};
  ipc::SocketAddress bound{};  // while its address is being resolved
  std::uint32_t bound_ifindex = 0;
  std::int64_t resolve_deadline = 0;
  std::uint32_t flow_label = 0;
  std::uint32_t backlog = 0;
  std::uint32_t listen_id = 0;
  std::uint16_t port_space = 0;
  std::uint8_t qp_type = 0;
  std::uint8_t state = 0;  // IdState
  std::uint8_t type_of_service = 0;
  std::uint8_t ack_timeout = 0;
  std::uint8_t reuse_address = 0;
  std::uint8_t family_only = 0;  // 0, 1; 2: not set
  std::uint8_t path_mtu = 0;
  std::uint8_t packet_lifetime = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t passive = 0;
  std::uint8_t accepted = 0;
  std::uint8_t answered = 0;
  std::uint8_t removal_told = 0;
  std::uint8_t reserved0 = 0;
  // An endpoint's interface, also where its socket address does not tell one.
  std::uint32_t local_scope = 0;
  std::uint32_t remote_scope = 0;
  std::uint32_t bound_scope = 0;
  std::array<std::uint32_t, 8> reserved{};
};
static_assert(sizeof(IdRecord) == 184 && offsetof(IdRecord, resolve_deadline) == 104);

struct ConnectionCell {
  static constexpr RecordKind kKind = RecordKind::kConnection;
  cm::ConnectionRecord connection{};
};
static_assert(sizeof(ConnectionCell) == sizeof(cm::ConnectionRecord));

// An event on its way to a program: until it has a link, the node has it.
struct EventRecord {
  static constexpr RecordKind kKind = RecordKind::kEvent;
  std::uint64_t number = 0;  // among all events of the link, or of the node
  std::uint32_t link = 0;    // 0: none yet
  std::uint32_t id = 0;      // on whose link it goes
  ipc::CmEvent event{};
};
static_assert(sizeof(EventRecord) == 416);

static_assert(sizeof(ConnectionCell) <= kRecordSizeMax && sizeof(EventRecord) <= kRecordSizeMax);
static_assert(std::is_trivially_copyable_v<IdRecord> && std::is_trivially_copyable_v<ConnectionCell> &&
              std::is_trivially_copyable_v<EventRecord> && std::is_trivially_copyable_v<LinkRecord>);

}  // namespace ucm::node
