#include "host/netlink_request.h"

#include <netlink/errno.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace ucm::host {
namespace {

struct Conversation {
  const std::function<void(nlmsghdr*)>* on_answer;
  int error = 0;  // errno of the kernel's refusal
  bool complete = false;
};

int handle_answer(nl_msg* message, void* argument) {
  (*static_cast<Conversation*>(argument)->on_answer)(nlmsg_hdr(message));
  return NL_OK;
}

int handle_error(sockaddr_nl*, nlmsgerr* error, void* argument) {
  auto* conversation = static_cast<Conversation*>(argument);
  conversation->error = -error->error;
  conversation->complete = true;
  return NL_STOP;
}

// The end of a list, or the acknowledgement that libnl asks for with every other request.
int handle_end(nl_msg*, void* argument) {
  static_cast<Conversation*>(argument)->complete = true;
  return NL_STOP;
}

}  // namespace

Result<NetlinkSocket> open_netlink() {
  NetlinkSocket socket(nl_socket_alloc(), nl_socket_free);
  if (!socket) return fail(ENOMEM, "no memory for a netlink socket");
  if (const int error = nl_connect(socket.get(), NETLINK_ROUTE); error != 0) {
    return fail(EPROTONOSUPPORT, std::string("cannot open rtnetlink: ") + nl_geterror(error));
  }
  return socket;
}

void put_address(nl_msg* message, int attribute, const wire::IpAddress& address) {
  if (address.is_ipv4()) {
    nla_put(message, attribute, 4, &address.bytes[12]);
  } else {
    nla_put(message, attribute, 16, address.bytes.data());
  }
}

wire::IpAddress read_address(const nlattr* attribute) {
  wire::IpAddress address;
  const auto* bytes = static_cast<const std::uint8_t*>(nla_data(attribute));
  if (nla_len(attribute) == 4) return wire::IpAddress::ipv4(load_be32(bytes));
  if (nla_len(attribute) == 16) std::memcpy(address.bytes.data(), bytes, 16);
  return address;
}

Result<void> ask(nl_sock* socket, nl_msg* message, const std::function<void(nlmsghdr*)>& on_answer) {
  if (message == nullptr) return fail(ENOMEM, "no memory for a netlink message");
  Conversation conversation{.on_answer = &on_answer};
  const std::unique_ptr<nl_cb, decltype(&nl_cb_put)> callbacks(nl_cb_alloc(NL_CB_DEFAULT), nl_cb_put);
  if (!callbacks) return fail(ENOMEM, "no memory for a netlink conversation");
  nl_cb_set(callbacks.get(), NL_CB_VALID, NL_CB_CUSTOM, handle_answer, &conversation);
  nl_cb_set(callbacks.get(), NL_CB_FINISH, NL_CB_CUSTOM, handle_end, &conversation);
  nl_cb_set(callbacks.get(), NL_CB_ACK, NL_CB_CUSTOM, handle_end, &conversation);
  nl_cb_err(callbacks.get(), NL_CB_CUSTOM, handle_error, &conversation);

  int result = nl_send_auto(socket, message);
  while (result >= 0 && !conversation.complete) result = nl_recvmsgs(socket, callbacks.get());
  if (conversation.error != 0) return fail(conversation.error, std::strerror(conversation.error));
  if (result == -NLE_DUMP_INTR) return fail(EINTR, "the kernel's list changed while it was read");
  if (result < 0) return fail(EIO, std::string("rtnetlink: ") + nl_geterror(result));
  return {};
}

}  // namespace ucm::host
