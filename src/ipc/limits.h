// The limits between programs and their node, with the reason for each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ucm::ipc {

// Programs and tools served at once. A session costs ucmd one descriptor and about 1 KiB, a link three descriptors.
inline constexpr std::size_t kSessionsMax = 8192;
// One user cannot take all of them. More than programs of a user (node::Limits): those are told why they are refused.
inline constexpr std::size_t kSessionsPerUserMax = 2048;
// A link per event channel; programs with synchronous IDs have one per ID.
inline constexpr std::size_t kLinksMax = 65536;

// Descriptors passed with one control message: those of a link.
inline constexpr std::size_t kDescriptorsMax = 4;

// 80 commands that nobody waits for: more than a program posts while the node is busy with one turn.
inline constexpr std::uint32_t kCommandRingSize = 32768;  // bytes
// One command of a link waits for its reply, so this ring holds a few.
inline constexpr std::uint32_t kReplyRingSize = 4096;
// IDs that a link may make without asking; a few IDs lie idle with every link.
inline constexpr std::uint32_t kIdNumbersMax = 32;
// About 150 events without anybody reading; what does not fit waits in the node.
inline constexpr std::uint32_t kEventRingSize = 65536;
// 900 packets of 4 KiB: what a slow reader may be behind before packets are dropped.
inline constexpr std::uint32_t kDataRingSize = 4u << 20;

// Events waiting in the node because their ring is full, per session. Two per connection of a very large program.
inline constexpr std::size_t kEventsWaitingMax = 131072;

// The largest UDP payload over RoCE: BTH, extended headers, 4096 bytes, ICRC; rounded up.
inline constexpr std::size_t kDataPayloadMax = 4096 + 128;

// QP numbers are 24 bit; the top four are the shard (0 so far). Numbers below 0x100 stay free of use: 0 and 1 are
// special, and small numbers in a trace are a sign of a fault.
inline constexpr std::uint32_t kQpnFirst = 0x100;
inline constexpr std::uint32_t kQpnEnd = 1u << 20;
inline constexpr std::uint32_t kQpnBlockSize = 64;
// 65536 queue pairs in one program.
inline constexpr std::uint32_t kQpnBlocksPerSessionMax = 1024;
// The table of peer QP numbers that a program shares with its node: one entry per QP number it may hold.
inline constexpr std::size_t kPeerTableEntries = std::size_t{kQpnBlocksPerSessionMax} * kQpnBlockSize;

// Multicast groups that one program has joined, each counted as often as it was. A stock host lets a socket join 20
// IPv4 groups (net.ipv4.igmp_max_memberships), so that is what a device promises.
inline constexpr std::uint32_t kGroupJoinsPerSessionMax = 1024;
inline constexpr int kMulticastGroupsMax = 20;

// Sockets handed to one program. One pair is used; a second one covers a retry.
inline constexpr std::size_t kSendPortsPerSessionMax = 4;

// Work per turn of the loop and link, so that one busy program cannot starve the others.
inline constexpr int kCommandsPerTurnMax = 32;

// How long either side looks at a ring before it sleeps. A wake-up costs 10 to 25 us, so a shorter wait is cheaper
// spent looking; a longer one would keep a core from somebody who needs it.
inline constexpr std::int64_t kSpinNs = 20'000;

}  // namespace ucm::ipc
