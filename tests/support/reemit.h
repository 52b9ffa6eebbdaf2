// Reads a whole RoCEv2 packet with UCM's codecs and writes it again from what was read.
#pragma once

#include <vector>

#include "base/bytes.h"

namespace ucm::test {

// The packet (a UDP payload with its ICRC) parsed header by header, CM message included, and emitted again; the ICRC is
// copied. Bytes that no codec knows are copied too. Empty when a header is missing or malformed.
std::vector<std::uint8_t> reemit(Bytes packet);

}  // namespace ucm::test
