// The structures of the kernel's user ABI (rdma/rdma_user_cm.h), from and to those of ipc/cm_api.h.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>

#include "base/bytes.h"
#include "ipc/cm_api.h"

namespace ucm::kernel {

// A command as it is written. `Body` is the structure of the same name in the ABI.
template <class Body>
struct Command {
  rdma_ucm_cmd_hdr header{};
  Body body{};

  Bytes bytes() const { return {reinterpret_cast<const std::uint8_t*>(this), sizeof *this}; }
};

// `response` is where the kernel writes its answer.
template <class Body>
Command<Body> make_command(std::uint32_t number) {
  static_assert(sizeof(Command<Body>) == sizeof(rdma_ucm_cmd_hdr) + sizeof(Body));
  Command<Body> command;
  command.header = {.cmd = number, .in = sizeof(Body), .out = 0};
  return command;
}
template <class Body, class Response>
Command<Body> make_command(std::uint32_t number, Response& response) {
  Command<Body> command = make_command<Body>(number);
  command.header.out = sizeof(Response);
  command.body.response = reinterpret_cast<std::uintptr_t>(&response);
  return command;
}

// Returns the size of the address, 0 for none.
std::uint16_t write_address(const ipc::SocketAddress& address, __kernel_sockaddr_storage& out);

rdma_ucm_conn_param to_kernel(const ipc::CmConnParam& param);
ipc::CmConnParam from_kernel(const rdma_ucm_conn_param& param);
ipc::CmConnParam from_kernel(const rdma_ucm_ud_param& param);

// Addresses, device and first path of the answer to QUERY_ROUTE.
void read_route(const rdma_ucm_query_route_resp& answer, ipc::CmPath& path, ipc::CmDevicePath& device);
// The peer of datagrams.
void read_address_handle(const ib_uverbs_ah_attr& attributes, ipc::CmPath& path, ipc::CmDevicePath& device);

}  // namespace ucm::kernel
