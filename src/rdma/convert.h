// Between the C structures of the rdma_cm and verbs APIs and UCM's own.
#pragma once

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <optional>

#include "ipc/cm_api.h"

namespace ucm::rdma {

// nullopt for a family other than AF_INET and AF_INET6.
std::optional<ipc::SocketAddress> from_sockaddr(const sockaddr& address);

// All zero for family 0.
sockaddr_storage to_sockaddr(const ipc::SocketAddress& address);

// In network byte order; 0 without an address.
std::uint16_t port_of(const sockaddr_storage& address);

// The RoCEv2 GID of an address.
ibv_gid gid_of(const ipc::SocketAddress& address);

ibv_sa_path_rec path_record_of(const ipc::CmPath& path);

// The type of an event, of which a newer program knows more than the header declares.
ipc::CmEventType type_of(const rdma_cm_event& event);
void set_type(rdma_cm_event& event, ipc::CmEventType type);

// As rdma_event_str tells it.
const char* event_name(ipc::CmEventType type);

}  // namespace ucm::rdma
