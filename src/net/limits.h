// Limits of packet input and output, with their reasons.
#pragma once

#include <cstddef>

namespace ucm::net {

// Datagrams per system call: beyond 32 the cost per datagram falls no further.
inline constexpr std::size_t kBatchSize = 32;

// The largest RoCEv2 UDP payload: path MTU 4096 with every header (BTH 12, RETH 16 or AtomicETH 28, ImmDt 4, ICRC 4),
// rounded up. Longer ones are no RoCE packets: they arrive truncated and are dropped.
inline constexpr std::size_t kPayloadSizeMax = 4096 + 128;

// Receive buffer asked for: 2,000 full-size datagrams, some milliseconds of a fast link while the node is busy.
inline constexpr int kReceiveBufferBytes = 8 << 20;

// Source ports tried before giving up: only a host with most of 0xC000..0xFFFF in use fails.
inline constexpr int kSourcePortTries = 64;

}  // namespace ucm::net
