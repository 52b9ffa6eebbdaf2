// Capture files that Wireshark and tshark read (pcapng): UDP datagrams in Ethernet frames, each with a comment. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/datagram.h"

namespace ucm::net {

// What a file begins with: one section, one Ethernet interface, times in nanoseconds.
std::vector<std::uint8_t> pcapng_header(std::string_view application);

struct CapturedDatagram {
  std::int64_t time_ns = 0;  // since 1970
  wire::DatagramInfo info{};
  Bytes payload{};
  bool sent = false;
  std::string_view comment{};
};

// One packet. The frame has MAC addresses 0, and the right lengths and checksums.
std::vector<std::uint8_t> pcapng_packet(const CapturedDatagram& datagram);

// A file of this format and this machine's byte order, as far as its first block tells.
bool is_pcapng(Bytes file);
// Hands over every UDP datagram of a file as above, also of others' files with one Ethernet interface; what else is in
// one is passed over. `take` may keep nothing. EPROTO: it is damaged, cut off or of another kind, and where.
Result<void> read_pcapng(Bytes file, const std::function<void(const CapturedDatagram&)>& take);

}  // namespace ucm::net
