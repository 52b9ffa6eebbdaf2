// Between the C structures of the rdma_cm and verbs APIs and UCM's own.
#pragma once

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include "ipc/cm_api.h"
#include "ipc/socket_address.h"

namespace ucm::rdma {

using ipc::from_sockaddr;
using ipc::to_sockaddr;

// In network byte order; 0 without an address.
std::uint16_t port_of(const sockaddr_storage& address);

// The RoCEv2 GID of an address.
ibv_gid gid_of(const ipc::SocketAddress& address);

// Of both ends of a path: on a software device those of the addresses.
ibv_gid local_gid_of(const ipc::CmPath& path, const ipc::CmDevicePath& device);
ibv_gid remote_gid_of(const ipc::CmPath& path, const ipc::CmDevicePath& device);

ibv_sa_path_rec path_record_of(const ipc::CmPath& path, const ipc::CmDevicePath& device);

// The peer of datagrams on a real device.
ibv_ah_attr address_handle_of(const ipc::CmPath& path, const ipc::CmDevicePath& device);

// The type of an event, of which a newer program knows more than the header declares.
ipc::CmEventType type_of(const rdma_cm_event& event);
void set_type(rdma_cm_event& event, ipc::CmEventType type);

// As rdma_event_str tells it.
const char* event_name(ipc::CmEventType type);

}  // namespace ucm::rdma
