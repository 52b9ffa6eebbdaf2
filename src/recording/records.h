// What a recording of a CM engine is made of: each input with what the engine returned, and each output that was taken.
//
// A file is a header and records, all numbers big-endian:
//   header  "UCMREC", version (2), wall clock minus CLOCK_MONOTONIC in ns (8), who wrote it (32, text, zeros behind)
//   record  size of the body (4), CRC-32 of the body (4), body: its kind (1), what was drained before it (1), its
//   fields
// The first record is Start, the last one End; a file without its End was cut off. The fields are those that transfer()
// names, in its order; bytes of variable length have their length (2) in front. Another version has another number: a
// change of anything here is one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/inline_bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "cm/engine.h"

namespace ucm::recording {

inline constexpr std::uint16_t kVersion = 1;

struct Header {
  std::int64_t wall_offset_ns = 0;
  std::string writer;
};
inline constexpr std::size_t kHeaderSize = 48;
std::array<std::uint8_t, kHeaderSize> emit_header(const Header& header);
// EPROTO: no recording; EPROTONOSUPPORT: of another version.
Result<Header> parse_header(Bytes file);

// Kinds of output, as bits: Record::drained has those that were taken until nothing was left, before the record and
// since the input before it.
inline constexpr std::uint8_t kPackets = 1;
inline constexpr std::uint8_t kEvents = 2;
inline constexpr std::uint8_t kSidrEvents = 4;

// Inputs. `error` is the errno value that the call has returned, 0: done. An engine is new at Start.
struct Start {
  TimeNs now = 0;
  cm::Config config{};
};
struct Listen {
  cm::ListenParams params{};
  std::int32_t error = 0;
  cm::ListenerId listener{};
};
struct CloseListener {
  TimeNs now = 0;
  cm::ListenerId listener{};
};
struct Connect {
  TimeNs now = 0;
  cm::ConnectParams params{};
  std::int32_t error = 0;
  cm::ConnectionId connection{};
};
struct SetUser {
  cm::ConnectionId connection{};
  std::uint64_t user = 0;
};
struct Accept {
  TimeNs now = 0;
  cm::ConnectionId connection{};
  cm::AcceptParams params{};
  std::int32_t error = 0;
};
struct Reject {
  TimeNs now = 0;
  cm::ConnectionId connection{};
  cm::RejectParams params{};
  std::int32_t error = 0;
};
// A call with nothing but the connection.
enum class Plain : std::uint8_t { kRequestTaken, kEstablish, kNotify, kDisconnect, kDestroy };
template <Plain>
struct Call {
  TimeNs now = 0;
  cm::ConnectionId connection{};
  std::int32_t error = 0;
};
using RequestTaken = Call<Plain::kRequestTaken>;
using Establish = Call<Plain::kEstablish>;
using Notify = Call<Plain::kNotify>;
using Disconnect = Call<Plain::kDisconnect>;
using Destroy = Call<Plain::kDestroy>;
struct SidrConnect {
  TimeNs now = 0;
  cm::SidrConnectParams params{};
  std::int32_t error = 0;
  cm::SidrId exchange{};
};
struct SidrRequestTaken {
  cm::SidrId exchange{};
};
struct SidrSetUser {
  cm::SidrId exchange{};
  std::uint64_t user = 0;
};
struct SidrAccept {
  TimeNs now = 0;
  cm::SidrId exchange{};
  cm::SidrAcceptParams params{};
  std::int32_t error = 0;
};
struct SidrReject {
  TimeNs now = 0;
  cm::SidrId exchange{};
  Bytes private_data{};
  std::int32_t error = 0;
};
struct SidrDestroy {
  TimeNs now = 0;
  cm::SidrId exchange{};
};
struct Received {
  TimeNs now = 0;
  cm::Path path{};
  Bytes mad{};
};
struct Deadline {
  TimeNs now = 0;
};
// Outputs.
struct Sent {
  cm::Path path{};
  std::array<std::uint8_t, wire::kMadSize> mad{};
};
struct Told {
  cm::Event event{};
};
struct SidrTold {
  cm::SidrEvent event{};
};
// Nothing is recorded any more.
struct End {};

// A record's kind in the file is its index here: new ones go to the end.
using Record = std::variant<Start, Listen, CloseListener, Connect, SetUser, Accept, Reject, RequestTaken, Establish,
                            Notify, Disconnect, Destroy, SidrConnect, SidrRequestTaken, SidrSetUser, SidrAccept,
                            SidrReject, SidrDestroy, Received, Deadline, Sent, Told, SidrTold, End>;
inline constexpr std::array kRecordNames{"start",          "listen",
                                         "close_listener", "connect",
                                         "set_user",       "accept",
                                         "reject",         "request_taken",
                                         "establish",      "notify",
                                         "disconnect",     "destroy",
                                         "sidr_connect",   "sidr_request_taken",
                                         "sidr_set_user",  "sidr_accept",
                                         "sidr_reject",    "sidr_destroy",
                                         "received",       "deadline",
                                         "sent",           "told",
                                         "sidr_told",      "end"};
static_assert(kRecordNames.size() == std::variant_size_v<Record>);

// When it happened; nullopt: at the time of the input before.
std::optional<TimeNs> time_of(const Record& record);
// Which kind of output (kPackets, …) the record is; 0: an input or the end.
std::uint8_t output_kind(const Record& record);

// --------------------------------------------------------------------------------------------------------------------
// The fields. An archive is called with name and value, `archive("now", now)("id", id)`, and writes, reads or tells
// them; a structure it gives to transfer() again.

template <class T>
concept Number = std::is_integral_v<T> || std::is_enum_v<T>;
template <class T>
inline constexpr bool kIsValue = Number<T>;
template <>
inline constexpr bool kIsValue<Bytes> = true;
template <std::size_t N>
inline constexpr bool kIsValue<std::array<std::uint8_t, N>> = true;
template <std::size_t N>
inline constexpr bool kIsValue<InlineBytes<N>> = true;
template <class T>
inline constexpr bool kIsValue<std::optional<T>> = true;
template <class T>
concept Structure = !kIsValue<T>;

template <class A>
void transfer(A& a, wire::IpAddress& x) {
  a("address", x.bytes);
}
template <class A>
void transfer(A& a, cm::Path& x) {
  a("local", x.local)("remote", x.remote)("ifindex", x.ifindex)("traffic_class", x.traffic_class);
  a("hop_limit", x.hop_limit);
}
template <class A>
void transfer(A& a, wire::IpCmHeader& x) {
  a("version", x.version)("ip_version", x.ip_version)("source_port", x.source_port)("source", x.source);
  a("destination", x.destination);
}
template <class A>
void transfer(A& a, cm::ConnectionParams& x) {
  a("qpn", x.qpn)("srq", x.srq)("responder_resources", x.responder_resources)("initiator_depth", x.initiator_depth);
  a("flow_control", x.flow_control)("retry_count", x.retry_count)("rnr_retry_count", x.rnr_retry_count);
  a("vendor_id", x.vendor_id)("ece_options", x.ece_options);
}
template <class A>
void transfer(A& a, cm::Recovery& x) {
  a("shortest", x.shortest)("shortest_foreign", x.shortest_foreign)("longest", x.longest);
  a("longest_foreign", x.longest_foreign)("last_words_foreign", x.last_words_foreign)("first_contact", x.first_contact);
  a("first_sidr_contact", x.first_sidr_contact)("longest_backoff", x.longest_backoff);
  a("jitter_percent", x.jitter_percent);
}
template <class A>
void transfer(A& a, cm::Config& x) {
  a("random_key_0", x.random_key[0])("random_key_1", x.random_key[1])("shard", x.shard);
  a("cm_response_timeout", x.cm_response_timeout)("max_cm_retries", x.max_cm_retries);
  a("mra_service_timeout", x.mra_service_timeout)("target_ack_delay", x.target_ack_delay);
  a("connections_max", x.connections_max)("recovery", x.recovery);
}
template <class A>
void transfer(A& a, cm::ListenParams& x) {
  a("service_id", x.service_id)("address", x.address)("address_family_only", x.address_family_only);
  a("ifindex", x.ifindex)("transport", x.transport)("backlog", x.backlog)("user", x.user);
}
template <class A>
void transfer(A& a, cm::ConnectParams& x) {
  a("path", x.path)("ca_guid", x.ca_guid)("service_id", x.service_id)("source_port", x.source_port);
  a("transport", x.transport)("path_mtu", x.path_mtu)("packet_lifetime", x.packet_lifetime);
  a("flow_label", x.flow_label)("params", x.params)("private_data", x.private_data)("user", x.user);
}
template <class A>
void transfer(A& a, cm::AcceptParams& x) {
  a("ca_guid", x.ca_guid)("params", x.params)("private_data", x.private_data);
}
template <class A>
void transfer(A& a, cm::RejectParams& x) {
  a("reason", x.reason)("private_data", x.private_data);
}
template <class A>
void transfer(A& a, cm::SidrConnectParams& x) {
  a("path", x.path)("service_id", x.service_id)("source_port", x.source_port)("qkey", x.qkey);
  a("private_data", x.private_data)("user", x.user);
}
template <class A>
void transfer(A& a, cm::SidrAcceptParams& x) {
  a("qpn", x.qpn)("qkey", x.qkey)("private_data", x.private_data);
}
template <class A>
void transfer(A& a, cm::Event& x) {
  a("type", x.type)("connection", x.connection)("listener", x.listener)("user", x.user)("status", x.status);
  a("peer", x.peer)("private_data", x.private_data)("addresses", x.addresses)("path", x.path);
}
template <class A>
void transfer(A& a, cm::SidrEvent& x) {
  a("type", x.type)("exchange", x.exchange)("listener", x.listener)("user", x.user)("status", x.status)("qpn", x.qpn);
  a("qkey", x.qkey)("private_data", x.private_data)("addresses", x.addresses)("path", x.path);
}

template <class A>
void transfer(A& a, Start& x) {
  a("now", x.now)("config", x.config);
}
template <class A>
void transfer(A& a, Listen& x) {
  a("params", x.params)("error", x.error)("listener", x.listener);
}
template <class A>
void transfer(A& a, CloseListener& x) {
  a("now", x.now)("listener", x.listener);
}
template <class A>
void transfer(A& a, Connect& x) {
  a("now", x.now)("params", x.params)("error", x.error)("connection", x.connection);
}
template <class A>
void transfer(A& a, SetUser& x) {
  a("connection", x.connection)("user", x.user);
}
template <class A>
void transfer(A& a, Accept& x) {
  a("now", x.now)("connection", x.connection)("params", x.params)("error", x.error);
}
template <class A>
void transfer(A& a, Reject& x) {
  a("now", x.now)("connection", x.connection)("params", x.params)("error", x.error);
}
template <class A, Plain kWhat>
void transfer(A& a, Call<kWhat>& x) {
  a("now", x.now)("connection", x.connection)("error", x.error);
}
template <class A>
void transfer(A& a, SidrConnect& x) {
  a("now", x.now)("params", x.params)("error", x.error)("exchange", x.exchange);
}
template <class A>
void transfer(A& a, SidrRequestTaken& x) {
  a("exchange", x.exchange);
}
template <class A>
void transfer(A& a, SidrSetUser& x) {
  a("exchange", x.exchange)("user", x.user);
}
template <class A>
void transfer(A& a, SidrAccept& x) {
  a("now", x.now)("exchange", x.exchange)("params", x.params)("error", x.error);
}
template <class A>
void transfer(A& a, SidrReject& x) {
  a("now", x.now)("exchange", x.exchange)("private_data", x.private_data)("error", x.error);
}
template <class A>
void transfer(A& a, SidrDestroy& x) {
  a("now", x.now)("exchange", x.exchange);
}
template <class A>
void transfer(A& a, Received& x) {
  a("now", x.now)("path", x.path)("mad", x.mad);
}
template <class A>
void transfer(A& a, Deadline& x) {
  a("now", x.now);
}
template <class A>
void transfer(A& a, Sent& x) {
  a("path", x.path)("mad", x.mad);
}
template <class A>
void transfer(A& a, Told& x) {
  a("event", x.event);
}
template <class A>
void transfer(A& a, SidrTold& x) {
  a("event", x.event);
}
template <class A>
void transfer(A&, End&) {}

}  // namespace ucm::recording
