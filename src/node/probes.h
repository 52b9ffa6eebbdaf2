// Static probes (USDT) of provider `ucm` at the borders of a node, for bpftrace, perf, SystemTap and gdb: each is one
// instruction that does nothing until somebody attaches to it. Scripts go by their names and arguments, which
// tests/tree/probes_test.py holds; examples/bpftrace has two.
#pragma once

#include <sys/sdt.h>

#include <cstdint>

#include "base/bytes.h"
#include "cm/state_machine.h"
#include "ipc/cm_api.h"
#include "wire/address.h"
#include "wire/mad.h"

namespace ucm::node::probes {

inline std::uint32_t attribute_of(Bytes mad) { return load_be16(&mad[wire::MadHeader::kAttributeOffset]); }

// A program's call begins: ID (0: none yet), call (ipc::CmCall), the program's session.
inline void call(std::uint32_t id, ipc::CmCall call, std::uint32_t session) {
  DTRACE_PROBE3(ucm, call, id, static_cast<std::uint32_t>(call), session);
}
// It ends: ID, call, errno (0: done).
inline void call_done(std::uint32_t id, ipc::CmCall call, std::int32_t error) {
  DTRACE_PROBE3(ucm, call_done, id, static_cast<std::uint32_t>(call), error);
}
// An event for a program: ID, type (ipc::CmEventType, as RDMA_CM_EVENT_*), status.
inline void event(std::uint32_t id, ipc::CmEventType type, std::int32_t status) {
  DTRACE_PROBE3(ucm, event, id, static_cast<std::uint32_t>(type), status);
}
// A CM message comes: attribute ID, its 256 bytes, the sender's address (16 bytes: IPv6, or IPv4 in mapped form).
inline void message_received(Bytes mad, const wire::IpAddress& source) {
  DTRACE_PROBE3(ucm, message_received, attribute_of(mad), mad.data(), source.bytes.data());
}
// A CM message goes: as above, with the receiver's address.
inline void message_sent(Bytes mad, const wire::IpAddress& destination) {
  DTRACE_PROBE3(ucm, message_sent, attribute_of(mad), mad.data(), destination.bytes.data());
}
// examples/bpftrace
static_assert(static_cast<int>(cm::State::kEstablished) == 8 && static_cast<int>(cm::State::kGone) == 14);
// A connection gets an input (cm::Input): local comm ID, state before and after (cm::State), input. Only with a flight
// recorder.
inline void state(std::uint32_t local_comm_id, cm::State from, cm::State to, cm::Input input) {
  DTRACE_PROBE4(ucm, state, local_comm_id, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to),
                static_cast<std::uint32_t>(input));
}

}  // namespace ucm::node::probes
