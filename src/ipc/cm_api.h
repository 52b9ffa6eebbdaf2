// The rdma_cm calls and events as they travel between a program and its node: fixed-layout records in shared-memory
// rings. A wire format: versioned by kProtocolVersion, grown only through reserved fields, and never trusted by the
// node. Errors are errno values, 0 for success.
//
// Every call is one CmCommand answered by one CmReply. Events are CmEvents, in order per link (= event channel).
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace ucm::ipc {

inline constexpr std::uint32_t kProtocolVersion = 4;

// A socket address without the operating system's layout.
struct SocketAddress {
  std::uint8_t family = 0;  // 0 = none, 4, 6
  std::uint8_t reserved = 0;
  std::uint16_t port = 0;      // host byte order
  std::uint32_t scope_id = 0;  // interface index of a link-local address
  std::uint32_t flow_info = 0;
  std::array<std::uint8_t, 16> address{};  // IPv6, or IPv4 in mapped form
  bool operator==(const SocketAddress&) const = default;
};
static_assert(sizeof(SocketAddress) == 28);

enum class CmCall : std::uint16_t {
  kCreateId = 1,  // -> id, numbers; posted: `id` is the next of the numbers that the link was given
  kDestroyId,     // always succeeds for an own ID; no event of it comes after the reply
  kMigrateId,     // sent on the new link; events after the reply come there
  kSetOption,
  kBindAddr,      // -> local, ifindex
  kResolveAddr,   // -> local (the port is allocated); event kAddrResolved or kAddrError
  kResolveRoute,  // event kRouteResolved or kRouteError
  kListen,        // -> local
  kRequestTaken,  // the application has read the CONNECT_REQUEST that made this ID
  kConnect,
  kAccept,
  kReject,
  kEstablish,  // the active QP is in RTS: send RTU
  kNotify,     // communication established by data
  kDisconnect,
  kJoinMulticast,  // destination = the group, multicast = a number of the caller's; event kMulticastJoin
};

enum class CmOption : std::uint32_t { kTos = 0, kReuseAddr = 1, kAfOnly = 2, kAckTimeout = 3 };

// What one side says of its QP in connect and accept, and hears of the peer's.
struct CmConnParam {
  std::uint32_t qp_num = 0;
  std::uint8_t srq = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t flow_control = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint16_t reject_reason = 0;  // kReject: 28, or 35 for an ECE reject
  std::uint32_t qkey = 0;           // UD: of the QP; kConnect: the only one wanted in the answer, 0 = any
  std::uint32_t ece_vendor_id = 0;
  std::uint32_t ece_options = 0;
  std::uint32_t private_data_size = 0;  // bytes of private_data in use
  std::array<std::uint8_t, 200> private_data{};
};
static_assert(sizeof(CmConnParam) == 228);

// What a real RDMA device adds to a path. port 0: a software device, whose GIDs are its addresses.
struct CmDevicePath {
  std::array<std::uint8_t, 8> guid{};  // of the device, in network byte order
  std::uint32_t index = 0;             // of the device, as ibv_get_device_index() numbers it
  std::uint16_t slid = 0;              // InfiniBand; host byte order, like dlid
  std::uint16_t dlid = 0;
  std::uint8_t port = 0;
  std::uint8_t sgid_index = 0;
  std::uint8_t src_path_bits = 0;
  std::uint8_t static_rate = 0;
  std::array<std::uint8_t, 16> sgid{};
  std::array<std::uint8_t, 16> dgid{};
  std::uint8_t is_global = 0;  // a GRH is needed
  std::array<std::uint8_t, 3> reserved{};
};
inline constexpr std::uint32_t kUnknownDeviceIndex = 0xFFFFFFFF;  // an older kernel does not tell
static_assert(sizeof(CmDevicePath) == 56);

struct CmCommand {
  std::uint32_t sequence = 0;  // echoed in the reply
  CmCall call{};
  std::uint8_t qp_type = 0;  // kCreateId: ibv_qp_type (2 RC, 3 UC, 4 UD, 9 XRC sending, 10 XRC receiving)
  // 1: the program does not wait, and there is no reply. A failure is told by an event: kAddrError, kRouteError or
  // kConnectError of kResolveAddr, kResolveRoute and kConnect. Of kEstablish and kDisconnect there is nothing to tell
  // that other events do not.
  std::uint8_t posted = 0;
  std::uint32_t id = 0;
  std::uint16_t port_space = 0;  // kCreateId: rdma_port_space
  std::uint16_t reserved2 = 0;
  std::uint32_t timeout_ms = 0;    // kResolveAddr, kResolveRoute
  std::int32_t backlog = 0;        // kListen
  CmOption option{};               // kSetOption
  std::uint32_t option_value = 0;  // kJoinMulticast: 1 for a sender that is no member
  SocketAddress source{};          // kBindAddr; kResolveAddr (family 0 = none)
  SocketAddress destination{};     // kResolveAddr, kJoinMulticast
  CmConnParam conn{};              // kConnect, kAccept, kReject
  std::uint32_t multicast = 0;     // kJoinMulticast
  std::uint32_t numbers = 0;       // kCreateId: how many more IDs the link would like to make without asking
  std::array<std::uint32_t, 14> reserved3{};
};

struct CmReply {
  std::uint32_t sequence = 0;
  std::int32_t error = 0;
  std::uint32_t id = 0;
  std::uint32_t ifindex = 0;  // of the device the ID is bound to; 0 = none
  SocketAddress local{};
  CmDevicePath device{};      // of the device the ID is bound to
  std::uint32_t numbers = 0;  // kCreateId: so many after `id` are the link's, to be used in order
  std::uint32_t reserved = 0;
};

// The values are those of rdma_cm_event_type.
enum class CmEventType : std::uint32_t {
  kAddrResolved = 0,
  kAddrError = 1,
  kRouteResolved = 2,
  kRouteError = 3,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kConnectError = 6,
  kUnreachable = 7,
  kRejected = 8,
  kEstablished = 9,
  kDisconnected = 10,
  kDeviceRemoval = 11,
  kMulticastJoin = 12,
  kAddrChange = 14,
  kTimewaitExit = 15,
  // Raised in the program, never by the node.
  kAddrinfoResolved = 16,
  kAddrinfoError = 17,
  kUser = 18,  // conn: eight bytes of private data, the program's argument
};

// The route and the QP as rdma_query_route and rdma_init_qp_attr tell them.
struct CmPath {
  SocketAddress local{};
  SocketAddress remote{};
  std::uint32_t ifindex = 0;  // device
  std::uint32_t flow_label = 0;
  std::uint16_t pkey = 0xFFFF;
  std::uint8_t mtu = 0;  // ibv_mtu
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t sl = 0;
  std::uint8_t packet_lifetime = 0;
  std::uint8_t rate = 0;
};

struct CmQpParams {
  std::uint32_t dest_qpn = 0;
  std::uint32_t rq_psn = 0;
  std::uint32_t sq_psn = 0;
  std::uint8_t dest_known = 0;  // dest_qpn, sq_psn and the depths below are valid
  std::uint8_t path_mtu = 0;
  std::uint8_t responder_resources = 0;  // max_dest_rd_atomic
  std::uint8_t initiator_depth = 0;      // max_rd_atomic
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t ack_timeout = 0;
  std::uint8_t reserved = 0;
};

struct CmEvent {
  CmEventType type{};
  std::int32_t status = 0;
  std::uint32_t id = 0;         // kConnectRequest: the new ID
  std::uint32_t listen_id = 0;  // kConnectRequest only
  // kAddrResolved (addresses, ifindex), kRouteResolved, kConnectRequest; kMulticastJoin: remote is the group
  CmPath path{};
  CmQpParams qp{};  // kConnectRequest, kConnectResponse
  // kConnectRequest, kConnectResponse (depths swapped to the receiver's view), kRejected. UD: kConnectRequest and
  // kUnreachable (private data only), kEstablished (QP, Q_Key and private data).
  CmConnParam conn{};
  std::uint32_t multicast = 0;  // kMulticastJoin: of its command
  CmDevicePath device{};        // whatever path tells
  std::uint32_t reserved = 0;
};
static_assert(sizeof(CmReply) == 108 && sizeof(CmEvent) == 400);

static_assert(std::is_trivially_copyable_v<CmCommand> && std::is_trivially_copyable_v<CmReply> &&
              std::is_trivially_copyable_v<CmEvent>);

}  // namespace ucm::ipc
