#include "node/rdma_id.h"

namespace ucm::node {

std::optional<Endpoint> endpoint_of(const ipc::SocketAddress& address) {
  Endpoint endpoint{.address = {address.address},
                    .port = address.port,
                    .scope = address.scope_id,
                    .flow_info = address.flow_info,
                    .known = true};
  const bool valid = address.family == 6 || (address.family == 4 && endpoint.address.is_ipv4());
  if (!valid) return std::nullopt;
  return endpoint;
}

ipc::SocketAddress to_socket_address(const Endpoint& endpoint) {
  if (!endpoint.known) return {};
  const bool ipv4 = endpoint.address.is_ipv4();
  return {.family = static_cast<std::uint8_t>(ipv4 ? 4 : 6),
          .port = endpoint.port,
          .scope_id = endpoint.address.is_link_local() ? endpoint.scope : 0,
          .flow_info = endpoint.flow_info,
          .address = endpoint.address.bytes};
}

}  // namespace ucm::node
