#include "rdma/address_info.h"

#include <netdb.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace ucm::rdma {
namespace {

using Info = std::unique_ptr<rdma_addrinfo, decltype(&free_address_info)>;

addrinfo resolver_hints(const rdma_addrinfo& hints) {
  addrinfo out{};
  if ((hints.ai_flags & RAI_PASSIVE) != 0) out.ai_flags |= AI_PASSIVE;
  if ((hints.ai_flags & RAI_NUMERICHOST) != 0) out.ai_flags |= AI_NUMERICHOST;
  out.ai_family = hints.ai_family;
  switch (hints.ai_qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      out.ai_socktype = SOCK_STREAM;
      break;
    case IBV_QPT_UD:
      out.ai_socktype = SOCK_DGRAM;
      break;
    default:
      break;
  }
  switch (hints.ai_port_space) {
    case RDMA_PS_TCP:
      out.ai_protocol = IPPROTO_TCP;
      break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      out.ai_protocol = IPPROTO_UDP;
      break;
    default:
      break;
  }
  return out;
}

bool copy_address(sockaddr*& to, socklen_t& to_size, const sockaddr* from, socklen_t size) {
  to = static_cast<sockaddr*>(std::malloc(size));
  if (to == nullptr) return false;
  std::memcpy(to, from, size);
  to_size = size;
  return true;
}

bool copy_name(char*& to, const char* from) {
  if (from == nullptr) return true;
  to = ::strdup(from);
  return to != nullptr;
}

void set_transport(rdma_addrinfo& info, const rdma_addrinfo& hints, int socket_type, int protocol) {
  info.ai_port_space = hints.ai_port_space;
  if (info.ai_port_space == 0) info.ai_port_space = protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
  info.ai_qp_type = hints.ai_qp_type;
  if (info.ai_qp_type == 0) info.ai_qp_type = socket_type == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
}

// 0, an EAI_* code, or EAI_SYSTEM with errno.
int fill_from_resolver(const char* node, const char* service, const rdma_addrinfo& hints, rdma_addrinfo& info) {
  const addrinfo wanted = resolver_hints(hints);
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(node, service, &wanted, &found); error != 0) return error;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const bool passive = (hints.ai_flags & RAI_PASSIVE) != 0;
  info.ai_family = found->ai_family;
  set_transport(info, hints, found->ai_socktype, found->ai_protocol);
  const bool copied = passive ? copy_address(info.ai_src_addr, info.ai_src_len, found->ai_addr, found->ai_addrlen) &&
                                    copy_name(info.ai_src_canonname, found->ai_canonname)
                              : copy_address(info.ai_dst_addr, info.ai_dst_len, found->ai_addr, found->ai_addrlen) &&
                                    copy_name(info.ai_dst_canonname, found->ai_canonname);
  return copied ? 0 : EAI_MEMORY;
}

int fill_from_hints(const rdma_addrinfo& hints, rdma_addrinfo& info) {
  info.ai_family = hints.ai_family;
  set_transport(info, hints, 0, 0);
  if (hints.ai_dst_len != 0 && !copy_address(info.ai_dst_addr, info.ai_dst_len, hints.ai_dst_addr, hints.ai_dst_len)) {
    return EAI_MEMORY;
  }
  return 0;
}

}  // namespace

int get_address_info(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo** result) {
  if (result == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) {
    errno = EINVAL;
    return -1;
  }
  const rdma_addrinfo none{};
  const rdma_addrinfo& wanted = hints != nullptr ? *hints : none;
  Info info(static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo))), free_address_info);
  if (info == nullptr) return EAI_MEMORY;
  info->ai_flags = wanted.ai_flags;
  const int error = node != nullptr || service != nullptr ? fill_from_resolver(node, service, wanted, *info)
                                                          : fill_from_hints(wanted, *info);
  if (error != 0) return error;
  if (info->ai_src_len == 0 && wanted.ai_src_len != 0 &&
      !copy_address(info->ai_src_addr, info->ai_src_len, wanted.ai_src_addr, wanted.ai_src_len)) {
    return EAI_MEMORY;
  }
  *result = info.release();
  return 0;
}

rdma_addrinfo* copy_address_info(const rdma_addrinfo& from) {
  Info info(static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo))), free_address_info);
  if (info == nullptr) return nullptr;
  info->ai_flags = from.ai_flags;
  info->ai_family = from.ai_family;
  info->ai_qp_type = from.ai_qp_type;
  info->ai_port_space = from.ai_port_space;
  const bool copied =
      (from.ai_src_len == 0 || copy_address(info->ai_src_addr, info->ai_src_len, from.ai_src_addr, from.ai_src_len)) &&
      (from.ai_dst_len == 0 || copy_address(info->ai_dst_addr, info->ai_dst_len, from.ai_dst_addr, from.ai_dst_len)) &&
      copy_name(info->ai_src_canonname, from.ai_src_canonname) &&
      copy_name(info->ai_dst_canonname, from.ai_dst_canonname);
  return copied ? info.release() : nullptr;
}

void free_address_info(rdma_addrinfo* info) {
  while (info != nullptr) {
    rdma_addrinfo* next = info->ai_next;
    std::free(info->ai_src_addr);
    std::free(info->ai_dst_addr);
    std::free(info->ai_src_canonname);
    std::free(info->ai_dst_canonname);
    std::free(info->ai_route);
    std::free(info->ai_connect);
    std::free(info);
    info = next;
  }
}

}  // namespace ucm::rdma
