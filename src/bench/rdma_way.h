// librdmacm, whichever the process has loaded: UCM's, or rdma-core's on the kernel.
#pragma once

#include "bench/ways.h"

namespace ucm::bench {

Result<std::unique_ptr<Client>> make_rdma_client(const Workload& workload, std::uint32_t thread, Samples& samples);
Result<std::unique_ptr<Server>> make_rdma_server(const Workload& workload, std::uint32_t thread, Samples& samples);

}  // namespace ucm::bench
