// rdma_getaddrinfo: names and services to addresses, by the system's resolver.
#pragma once

#include <rdma/rdma_cma.h>

namespace ucm::rdma {

// Returns 0, an EAI_* code, or -1 with errno set. Only the first address found is returned.
int get_address_info(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo** result);

// nullptr when memory runs out. The copy has no route and no connect data: what get_address_info() makes has none.
rdma_addrinfo* copy_address_info(const rdma_addrinfo& from);

// Every member is freed with free(): programs hand in lists of their own making, too.
void free_address_info(rdma_addrinfo* info);

}  // namespace ucm::rdma
