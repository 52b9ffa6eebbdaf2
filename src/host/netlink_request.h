// One question to rtnetlink and its answers, through libnl.
#pragma once

#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>

#include <functional>
#include <memory>

#include "base/result.h"
#include "wire/address.h"

namespace ucm::host {

using NetlinkSocket = std::unique_ptr<nl_sock, decltype(&nl_socket_free)>;
using NetlinkMessage = std::unique_ptr<nl_msg, decltype(&nlmsg_free)>;

// Connected to NETLINK_ROUTE.
Result<NetlinkSocket> open_netlink();

template <class Header>
NetlinkMessage make_request(int type, int flags, Header header) {
  NetlinkMessage message(nlmsg_alloc_simple(type, flags), nlmsg_free);
  if (message) nlmsg_append(message.get(), &header, sizeof(header), NLMSG_ALIGNTO);
  return message;
}

// Appends 4 or 16 bytes.
void put_address(nl_msg* message, int attribute, const wire::IpAddress& address);
// nullopt-like: the unspecified address when the attribute has another size.
wire::IpAddress read_address(const nlattr* attribute);
inline int family_of(const wire::IpAddress& address) { return address.is_ipv4() ? AF_INET : AF_INET6; }

// Sends `message` and hands every answer to `on_answer`, until the kernel says that it is the last. Waits for the
// local kernel only, which answers at once. The error is the kernel's errno; EINTR: a dump was overtaken by changes.
Result<void> ask(nl_sock* socket, nl_msg* message, const std::function<void(nlmsghdr*)>& on_answer);

}  // namespace ucm::host
