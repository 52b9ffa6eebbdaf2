// The invariant CRC of RoCEv2 (IBTA A17, 7.8.1): CRC-32 over a masked pseudo header, the masked BTH and the rest.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "wire/datagram.h"

namespace ucm::wire {

inline constexpr std::size_t kIcrcSize = 4;

// The CRC-32 (reflected 0xEDB88320) of `bytes` continued from `state` (no final inversion).
std::uint32_t crc32_portable(std::uint32_t state, Bytes bytes);
// Same, with carry-less multiplication where the CPU has it; chosen once at run time.
std::uint32_t crc32(std::uint32_t state, Bytes bytes);
// True when crc32() uses carry-less multiplication on this CPU.
bool crc32_is_accelerated();

// The ICRC of the UDP payload `bth_to_pad` (BTH up to and including pad bytes, without the ICRC itself) sent as `info`
// says. The destination decides on the family. IPv4 packets are taken to have DF set, no options, and identification
// info.ipv4_id. The size is at least a BTH's and fits a datagram.
std::uint32_t icrc(const DatagramInfo& info, Bytes bth_to_pad);

// Writes the ICRC, least significant byte first, at out[0..4).
void store_icrc(MutableBytes out, std::uint32_t value);

enum class IcrcCheck : std::uint8_t {
  kGood,      // right with the given ipv4_id (0 when unknown)
  kSolvedId,  // IPv4 only: some identification makes it right; the check is 16 bits weaker: count these
  kBad,
};
// Checks a whole UDP payload, ICRC at its end. `payload` shorter than BTH + ICRC is kBad.
IcrcCheck verify_icrc(const DatagramInfo& info, Bytes payload);

// The IPv4 identification with which the ICRC at the end of `payload` is right; nullopt when there is none. The packet
// is otherwise as `info` says.
std::optional<std::uint16_t> solve_ipv4_id(const DatagramInfo& info, Bytes payload);

}  // namespace ucm::wire
