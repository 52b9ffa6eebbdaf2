// A numeric address with a service port, as sockets and rdma_cm take it.
#pragma once

#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/result.h"

namespace ucm::bench {

class Address {
 public:
  static Result<Address> parse(const std::string& host, std::uint32_t service_port) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), std::to_string(service_port).c_str(), &hints, &found);
    if (error != 0) return fail(EINVAL, "address " + host + ": " + gai_strerror(error));
    Address address;
    std::memcpy(&address.storage_, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return address;
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }
  int family() const { return storage_.ss_family; }
  socklen_t size() const { return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }
  // As a RoCEv2 GID: an IPv4 address mapped into IPv6.
  in6_addr gid() const {
    in6_addr gid{};
    if (family() == AF_INET6) return reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
    gid.s6_addr[10] = gid.s6_addr[11] = 0xff;
    std::memcpy(&gid.s6_addr[12], &reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr, sizeof(in_addr));
    return gid;
  }

 private:
  sockaddr_storage storage_{};
};

}  // namespace ucm::bench
