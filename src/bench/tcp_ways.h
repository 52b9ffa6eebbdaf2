// What programs without rdma_cm do: a TCP connection, over which they tell each other about their QPs; and the TCP
// connection alone.
#pragma once

#include "bench/ways.h"

namespace ucm::bench {

Result<std::unique_ptr<Client>> make_tcp_client(const Workload& workload, std::uint32_t thread, Samples& samples);
Result<std::unique_ptr<Server>> make_tcp_server(const Workload& workload, std::uint32_t thread, Samples& samples);
Result<std::unique_ptr<Client>> make_exchange_client(const Workload& workload, std::uint32_t thread, Samples& samples);
Result<std::unique_ptr<Server>> make_exchange_server(const Workload& workload, std::uint32_t thread, Samples& samples);

}  // namespace ucm::bench
