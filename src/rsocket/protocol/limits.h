// The limits of rsockets, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ucm::rsocket {

// What a socket has unless /etc/rdma/rsocket or an option says otherwise.  // librdmacm: the same
inline constexpr std::uint32_t kBufferSizeDefault = 128 * 1024;  // bytes; of each direction
inline constexpr std::uint16_t kQueueSizeDefault = 384;          // work requests; of each direction
inline constexpr std::uint16_t kInlineDefault = 64;              // bytes
inline constexpr std::uint32_t kPollingTimeDefault_us = 10;      // before a blocked call sleeps

// Fewer requests leave no room beside control messages; more do not fit the 16 bits of credits.
inline constexpr std::uint16_t kQueueSizeMin = 16;
inline constexpr std::uint16_t kQueueSizeMax = 0xFFFE;

// Data is sent when this much of the send buffer is free: smaller pieces cost more than they carry. Also the slot of a
// datagram.
inline constexpr std::uint32_t kSendLowWater = 2048;
// A buffer has two halves of at least a byte; more than this does not fit the integers of socket options.
inline constexpr std::uint32_t kBufferSizeMin = 2 * kSendLowWater;
inline constexpr std::uint32_t kBufferSizeMax = 1u << 30;

// One write carries at most so much: the peer sees the beginning of a long transfer early.
inline constexpr std::uint32_t kTransferMax = 64 * 1024;

// Control messages need no credit but one of these slots of the send queue.
inline constexpr std::uint16_t kControlSlots = 4;
// Receives beyond those that credits tell of, so that the peer's last control messages find one while the program does
// not call: or the peer's rclose() would wait for that.
inline constexpr std::uint16_t kControlReceives = 2 * kControlSlots;

}  // namespace ucm::rsocket
