// CM messages as one line of text, for test tools.
#pragma once

#include <span>
#include <string>

#include "wire/address.h"
#include "wire/mad.h"

namespace ucm::test {

// 10.0.0.1, or an IPv6 address in full: eight groups.
std::string address_text(const wire::IpAddress& address);

// "REQ local_comm_id=0x1 qpn=0x11 psn=0x2 …": the type and what identifies the exchange.
std::string cm_text(std::span<const std::uint8_t, wire::kMadSize> mad);

}  // namespace ucm::test
