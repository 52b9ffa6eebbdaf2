// The CM engine's limits, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ucm::cm {

// Comm IDs have 28 random bits beside the shard. As many connections and as many SIDR exchanges leave 98 % of them
// free, so that a free one is found at the first try and a guess hits nothing.
inline constexpr std::uint32_t kConnectionsMax = 1u << 21;

inline constexpr std::uint32_t kListenersMax = 1u << 16;  // one per port number of one address is plenty

// A listener's own choice ends here: a request that waits costs some 350 bytes.
inline constexpr std::uint32_t kBacklogMax = 1u << 16;

// Destroyed connections whose DREQ is repeated: some 35 MB. A peer that answers none holds each of them for a minute or
// more, and shall not take the connections of others. What is above says DREQ once, as Linux does.
inline constexpr std::size_t kOrphansMax = 1u << 16;

// Timers handled in one on_deadline(), so that a storm of them delays a packet by some microseconds only.
inline constexpr std::size_t kTimersPerCall = 64;

// Messages without answer that are to be sent again: with more of them at a time than a receive queue holds, repeating
// them would do harm.
inline constexpr std::size_t kLastWordsMax = 1024;

// How often a withdrawal, of a REQ or of a REP, is sent again: the first time comes after the crowd, and the others are
// for what still gets lost.
inline constexpr std::uint8_t kWithdrawalRepetitions = 3;

// Peers remembered: more hosts than a node talks to at a time, in a few megabytes.
inline constexpr std::uint32_t kPeersMax = 1u << 16;

// Requests in flight to one peer, and to all: the receive buffer of a stock system holds some 250 datagrams.
inline constexpr std::uint32_t kWindowMin = 4;
inline constexpr std::uint32_t kWindowMax = 256;
inline constexpr std::size_t kRequestsInFlightMax = 1024;

// Requests of a listener that the application has as events and has not read. More than it can read before a message to
// the engine and back; few, because what waits in the engine can still be withdrawn without a trace.
inline constexpr std::size_t kDeliveredMax = 32;

// What one host may always have waiting at a listener, and how many of them come in one turn: the queues of one client.
inline constexpr std::size_t kRequestsPerSource = 128;
inline constexpr std::uint32_t kRequestsPerTurn = 64;

// Hosts that share a listener's queue before it is closed to others: with Linux' backlog of 1024, each has room for the
// 16 or so queues of one client.
inline constexpr std::size_t kSourcesMax = 48;

// The largest exponent taken from a peer's message, 65.5 s. It is the kernel's own largest (MRA); 31 would let one
// packet hold state for hours.
inline constexpr std::uint8_t kPeerTimeoutExponentMax = 24;

inline constexpr std::size_t kConnectPrivateDataMax = 56;       // REQ 92 less the 36 of the IP CM header
inline constexpr std::size_t kAcceptPrivateDataMax = 196;       // REP
inline constexpr std::size_t kRejectPrivateDataMax = 148;       // REJ
inline constexpr std::size_t kSidrRequestPrivateDataMax = 180;  // SIDR_REQ 216 less the 36 of the IP CM header
inline constexpr std::size_t kSidrReplyPrivateDataMax = 136;    // SIDR_REP

}  // namespace ucm::cm
