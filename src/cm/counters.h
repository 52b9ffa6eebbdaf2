// What the engine counts: every packet it drops has exactly one reason here.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace ucm::cm {

struct Counters {
  std::uint64_t packets_received = 0;
  std::uint64_t packets_sent = 0;
  std::uint64_t retries = 0;

  // Dropped.
  std::uint64_t bad_size = 0;    // not 256 bytes
  std::uint64_t bad_header = 0;  // base version, class, class version or method
  std::uint64_t unknown_attribute = 0;
  std::uint64_t bad_message = 0;         // a field with an impossible value, comm ID 0 for instance
  std::uint64_t unsupported = 0;         // LAP, APR: no alternate paths on RoCE
  std::uint64_t unknown_connection = 0;  // no connection has these comm IDs
  std::uint64_t wrong_source = 0;        // the IDs of a connection, but not from its peer's address
  std::uint64_t wrong_role = 0;          // RTU to the active side and the like
  std::uint64_t wrong_qpn = 0;           // DREQ for another QP
  std::uint64_t ignored = 0;             // fits a connection, but not its state: duplicates, mostly
  std::uint64_t backlog_full = 0;        // the requester's repetition may succeed
  std::uint64_t connections_full = 0;

  // Requests, and replies, answered with REJ.
  std::uint64_t rejected_no_listener = 0;     // 8
  std::uint64_t rejected_not_for_us = 0;      // 28: address, family, header version or transport
  std::uint64_t rejected_gid = 0;             // 12
  std::uint64_t rejected_alternate_path = 0;  // 18
  std::uint64_t rejected_mtu = 0;             // 26
  std::uint64_t rejected_stale = 0;           // 10, REQ or REP
  std::uint64_t rejected_unknown_rep = 0;     // 6: nobody here has asked for it, or nobody any more

  // SIDR requests refused without the application.
  std::uint64_t sidr_no_listener = 0;  // status 1
  std::uint64_t sidr_not_for_us = 0;   // status 2: address, family, header version, P_Key or a connected service
  std::uint64_t sidr_full = 0;         // status 2: backlog or connections_max

  // Answered from the connection's state, or without one.
  std::uint64_t duplicates_answered = 0;  // REQ, REP, DREQ or SIDR_REQ again, or a DREQ that crosses an orphan's
  std::uint64_t unknown_dreqs_answered = 0;
  std::uint64_t class_port_info_answered = 0;

  // Connections.
  std::uint64_t connects = 0;
  std::uint64_t requests = 0;   // delivered to a listener
  std::uint64_t withdrawn = 0;  // by the peer before accept()
  std::uint64_t established = 0;
  std::uint64_t rejected = 0;  // by the peer
  std::uint64_t unreachable = 0;
  std::uint64_t disconnected = 0;
  std::uint64_t disconnect_timeouts = 0;
  std::uint64_t orphans_given_up = 0;  // destroyed, and DREQ never answered; or too many of them at a time

  // SIDR exchanges.
  std::uint64_t sidr_connects = 0;
  std::uint64_t sidr_requests = 0;  // delivered to a listener
  std::uint64_t sidr_replies = 0;   // with a QP that can be used
  std::uint64_t sidr_rejected = 0;  // by the peer, or with a Q_Key that cannot be used
  std::uint64_t sidr_unreachable = 0;
};

struct CounterField {
  std::string_view name;
  std::uint64_t Counters::* member;
};

inline constexpr std::array kCounterFields = {
#define UCM_COUNTER(field) \
  CounterField { #field, &Counters::field }
    UCM_COUNTER(packets_received),
    UCM_COUNTER(packets_sent),
    UCM_COUNTER(retries),
    UCM_COUNTER(bad_size),
    UCM_COUNTER(bad_header),
    UCM_COUNTER(unknown_attribute),
    UCM_COUNTER(bad_message),
    UCM_COUNTER(unsupported),
    UCM_COUNTER(unknown_connection),
    UCM_COUNTER(wrong_source),
    UCM_COUNTER(wrong_role),
    UCM_COUNTER(wrong_qpn),
    UCM_COUNTER(ignored),
    UCM_COUNTER(backlog_full),
    UCM_COUNTER(connections_full),
    UCM_COUNTER(rejected_no_listener),
    UCM_COUNTER(rejected_not_for_us),
    UCM_COUNTER(rejected_gid),
    UCM_COUNTER(rejected_alternate_path),
    UCM_COUNTER(rejected_mtu),
    UCM_COUNTER(rejected_stale),
    UCM_COUNTER(rejected_unknown_rep),
    UCM_COUNTER(sidr_no_listener),
    UCM_COUNTER(sidr_not_for_us),
    UCM_COUNTER(sidr_full),
    UCM_COUNTER(duplicates_answered),
    UCM_COUNTER(unknown_dreqs_answered),
    UCM_COUNTER(class_port_info_answered),
    UCM_COUNTER(connects),
    UCM_COUNTER(requests),
    UCM_COUNTER(withdrawn),
    UCM_COUNTER(established),
    UCM_COUNTER(rejected),
    UCM_COUNTER(unreachable),
    UCM_COUNTER(disconnected),
    UCM_COUNTER(disconnect_timeouts),
    UCM_COUNTER(orphans_given_up),
    UCM_COUNTER(sidr_connects),
    UCM_COUNTER(sidr_requests),
    UCM_COUNTER(sidr_replies),
    UCM_COUNTER(sidr_rejected),
    UCM_COUNTER(sidr_unreachable),
#undef UCM_COUNTER
};
static_assert(sizeof(Counters) == kCounterFields.size() * sizeof(std::uint64_t), "every counter has a name");

}  // namespace ucm::cm
