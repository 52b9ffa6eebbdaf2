#include "bench/ways.h"

#include <algorithm>
#include <array>

#include "bench/packet_ways.h"
#include "bench/rdma_way.h"
#include "bench/tcp_ways.h"

namespace ucm::bench {
namespace {

constexpr std::array kWays{
    Way{.name = "rdma_cm",
        .text = "librdmacm: resolve, create QP, connect, disconnect",
        .threads = true,
        .make_client = make_rdma_client,
        .make_server = make_rdma_server},
    Way{.name = "exchange",
        .text = "a TCP connection to exchange QP numbers, then the same verbs calls",
        .threads = true,
        .make_client = make_exchange_client,
        .make_server = make_exchange_server},
    Way{.name = "tcp",
        .text = "a TCP connection, nothing else",
        .threads = true,
        .make_client = make_tcp_client,
        .make_server = make_tcp_server},
    Way{.name = "packets3",
        .text = "three packets through UCM's sockets, no protocol engine",
        .threads = false,
        .make_client = make_three_packet_client,
        .make_server = make_packet_server},
    Way{.name = "packets2",
        .text = "two packets through UCM's sockets, no protocol engine",
        .threads = false,
        .make_client = make_two_packet_client,
        .make_server = make_packet_server},
};

}  // namespace

std::span<const Way> all_ways() { return kWays; }

const Way* find_way(std::string_view name) {
  const auto* found = std::find_if(kWays.begin(), kWays.end(), [&](const Way& way) { return way.name == name; });
  return found != kWays.end() ? found : nullptr;
}

}  // namespace ucm::bench
