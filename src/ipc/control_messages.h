// What a program and its node say on the control socket: every request is one ControlRequest, answered by one
// ControlReply, in order. A wire format: the first 16 bytes and kHello are for ever, so that two versions can tell each
// other that they do not fit; the rest goes with kProtocolVersion and grows only through reserved fields.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/bytes.h"
#include "base/result.h"
#include "ipc/cm_api.h"
#include "ipc/limits.h"
#include "ipc/ring.h"

namespace ucm::ipc {

inline constexpr std::uint32_t kControlMagic = 0x314d4355;  // "UCM1" in memory

enum class ControlCall : std::uint16_t {
  kHello = 1,     // first on every connection; program role: reply with the peer table
  kListDevices,   // reply with a sealed copy of device records (device_list.h)
  kOpenCmLink,    // reply with link; memory, doorbell eventfd, and for tokens of replies and of events
  kOpenDataLink,  // once per session; reply with memory, and for tokens of packets
  kCloseLink,     // link
  kAllocateQpns,  // reply with first_qpn, qpn_count, table_index
  kSendSockets,   // reply with source_port and the sockets of the families there are
  kStatus,        // reply with a sealed copy of JSON text
  kStop,          // the node leaves after the reply; only its own user and root may ask
  kJoinGroup,     // group, ifindex; as often as wanted, each with its kLeaveGroup. Packets come on the data link
  kLeaveGroup,
  kObserve,       // subject, argument: observe.h
  kWatchDevices,  // once per session; reply with what gets a token whenever kListDevices has something new
};
inline constexpr std::uint16_t kControlCallFirst = 1;
inline constexpr std::uint16_t kControlCallLast = 13;

struct ControlHeader {
  std::uint32_t magic = kControlMagic;
  std::uint16_t version = kProtocolVersion;
  ControlCall call{};
  std::uint32_t size = 0;  // of the whole message
  std::uint32_t sequence = 0;
};
static_assert(sizeof(ControlHeader) == 16 && offsetof(ControlHeader, version) == 4 &&
              offsetof(ControlHeader, call) == 6 && offsetof(ControlHeader, size) == 8);

// kHello: a tool asks, a program uses QP numbers and rings and keeps an idle ucmd from leaving.
enum class Role : std::uint32_t { kTool = 0, kProgram = 1 };

struct ControlRequest {
  ControlHeader header;
  Role role{};
  std::uint32_t link = 0;
  std::array<std::uint8_t, 16> group{};  // an IPv6 address, or IPv4 in mapped form
  std::uint32_t ifindex = 0;
  std::uint32_t subject = 0;
  std::uint32_t argument = 0;
  std::array<std::uint32_t, 3> reserved{};
};
static_assert(sizeof(ControlRequest) == 64 && offsetof(ControlRequest, link) == 20);

struct ControlReply {
  ControlHeader header;
  std::int32_t error = 0;  // errno value, 0 = success
  std::uint32_t descriptor_count = 0;
  std::uint32_t link = 0;
  std::uint32_t first_qpn = 0;
  std::uint32_t qpn_count = 0;
  std::uint32_t table_index = 0;  // of first_qpn in the table of peer QP numbers
  std::uint16_t source_port = 0;
  std::uint8_t has_ipv4 = 0;  // the sockets passed: first IPv4, then IPv6
  std::uint8_t has_ipv6 = 0;
  std::uint32_t daemon_uid = 0;
  std::int32_t daemon_pid = 0;
  std::uint32_t reserved0 = 0;
  std::uint64_t node_instance = 0;  // random for every start of a node
  std::array<char, 32> daemon_version{};
  std::array<char, 144> message{};  // with an error: what went wrong, for a person
  std::array<std::uint32_t, 2> reserved{};
};
static_assert(sizeof(ControlReply) == 248 && offsetof(ControlReply, node_instance) == 56 &&
              offsetof(ControlReply, daemon_version) == 64 && offsetof(ControlReply, message) == 96);
static_assert(std::is_trivially_copyable_v<ControlRequest> && std::is_trivially_copyable_v<ControlReply>);

ControlRequest make_request(ControlCall call, std::uint32_t sequence);
ControlReply make_reply(const ControlRequest& request);
void set_error(ControlReply& reply, int code, std::string_view message);

template <class T>
Bytes bytes_of(const T& message) {
  return {reinterpret_cast<const std::uint8_t*>(&message), sizeof message};
}

// EPROTO: not this protocol. EPROTONOSUPPORT: another version; the header has been read. The strings of a reply end
// with a NUL after parsing.
Result<ControlRequest> parse_request(Bytes message);
Result<ControlReply> parse_reply(Bytes message);

// Where the rings lie in the memory of a link.
struct CmLinkLayout {
  static constexpr std::size_t kCommands = 0;
  static constexpr std::size_t kReplies = kCommands + ring_memory_size(kCommandRingSize);
  static constexpr std::size_t kEvents = kReplies + ring_memory_size(kReplyRingSize);
  static constexpr std::size_t kSize = kEvents + ring_memory_size(kEventRingSize);
};
static_assert(CmLinkLayout::kReplies % 64 == 0 && CmLinkLayout::kEvents % 64 == 0);
static_assert(record_footprint(sizeof(CmCommand)) <= kCommandRingSize &&
              record_footprint(sizeof(CmReply)) <= kReplyRingSize);

inline constexpr std::size_t kDataLinkSize = ring_memory_size(kDataRingSize);
inline constexpr std::size_t kPeerTableSize = kPeerTableEntries * sizeof(std::uint32_t);

// In front of every packet in a data ring.
struct DataRecord {
  std::array<std::uint8_t, 16> source{};
  std::array<std::uint8_t, 16> destination{};
  std::uint32_t ifindex = 0;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint16_t ipv4_id = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(DataRecord) == 48);
inline constexpr std::size_t kDataRecordMax = sizeof(DataRecord) + kDataPayloadMax;

// Fixed texts in messages: cut when too long, always ended by a NUL.
template <std::size_t N>
void set_text(std::array<char, N>& out, std::string_view text) {
  out.fill('\0');
  text.copy(out.data(), N - 1);
}
template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  return std::string(text.data());
}

}  // namespace ucm::ipc
