// The limit of the machine: packets of a CM message's size, as many as a handshake has, through UCM's own sockets and
// event loop, with nothing that thinks.
#pragma once

#include "bench/ways.h"

namespace ucm::bench {

// REQ, REP, RTU.
Result<std::unique_ptr<Client>> make_three_packet_client(const Workload& workload, std::uint32_t thread,
                                                         Samples& samples);
// SIDR_REQ, SIDR_REP.
Result<std::unique_ptr<Client>> make_two_packet_client(const Workload& workload, std::uint32_t thread,
                                                       Samples& samples);
// Answers both.
Result<std::unique_ptr<Server>> make_packet_server(const Workload& workload, std::uint32_t thread, Samples& samples);

}  // namespace ucm::bench
