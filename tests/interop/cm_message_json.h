// The packets of CM messages as JSON: a line of it for each packet, with every field by its name in src/wire. Numbers
// are numbers, addresses are text, octets are hexadecimal without the zeros at their end.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "wire/ud_packet.h"

namespace ucm::test {

// Throws std::invalid_argument when it is none.
wire::IpAddress parse_address(const std::string& text);

// What a received packet says. "reserved" holds what no field of the message covers, where that is not zero.
nlohmann::json describe_packet(const wire::DatagramInfo& info, Bytes datagram);

// The packet that `description` asks for, sent as `info` says. A message that lies is one with these besides its
// fields: "mad", "bth", "deth" (fields of the headers), "cma" (of the IP CM header), "patch" ([[offset in the MAD,
// "hex"]…]), "size" (of the MAD), "icrc" (what its right value is XORed with), "plain" (hex: this instead of everything
// else). Throws std::invalid_argument when it has a member that is not known or does not fit.
std::vector<std::uint8_t> build_packet(const wire::DatagramInfo& info, const nlohmann::json& description);

}  // namespace ucm::test
