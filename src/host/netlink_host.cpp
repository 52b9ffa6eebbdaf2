#include "host/netlink_host.h"

#include <linux/neighbour.h>
#include <netinet/in.h>
#include <netlink/errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "host/device_list.h"
#include "host/netlink_request.h"

namespace ucm::host {
namespace {

constexpr std::uint16_t kDiscardPort = 9;

// Notifications read per on_readable(): the rest stay readable.
constexpr int kNotificationReads = 64;

// Room for bursts of neighbour news; when it overflows everything is read anew.
constexpr int kNotificationBufferBytes = 1 << 20;

constexpr std::uint16_t kUsableStates = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;

NeighborState state_of(std::uint16_t nud_state) {
  if ((nud_state & kUsableStates) != 0) return NeighborState::kUsable;
  return (nud_state & NUD_INCOMPLETE) != 0 ? NeighborState::kPending : NeighborState::kUnresolved;
}

std::uint8_t prefix_length(const wire::IpAddress& address) { return address.is_ipv4() ? 32 : 128; }

NetlinkMessage route_request(const RouteQuery& query) {
  rtmsg header{};
  header.rtm_family = static_cast<std::uint8_t>(family_of(query.destination));
  header.rtm_dst_len = prefix_length(query.destination);
  if (query.source) header.rtm_src_len = prefix_length(*query.source);
  auto message = make_request(RTM_GETROUTE, NLM_F_REQUEST, header);
  if (!message) return message;
  put_address(message.get(), RTA_DST, query.destination);
  if (query.source) put_address(message.get(), RTA_SRC, *query.source);
  if (query.ifindex != 0) nla_put_u32(message.get(), RTA_OIF, query.ifindex);
  return message;
}

struct RouteAnswer {
  std::uint8_t type = RTN_UNSPEC;
  std::uint32_t ifindex = 0;
  std::optional<wire::IpAddress> source = std::nullopt;
  std::optional<wire::IpAddress> gateway;
};

RouteAnswer parse_route(nlmsghdr* header) {
  RouteAnswer answer;
  nlattr* attributes[RTA_MAX + 1] = {};
  if (nlmsg_parse(header, sizeof(rtmsg), attributes, RTA_MAX, nullptr) != 0) return answer;
  answer.type = static_cast<const rtmsg*>(nlmsg_data(header))->rtm_type;
  if (attributes[RTA_OIF] != nullptr) answer.ifindex = nla_get_u32(attributes[RTA_OIF]);
  if (attributes[RTA_PREFSRC] != nullptr) answer.source = read_address(attributes[RTA_PREFSRC]);
  if (attributes[RTA_GATEWAY] != nullptr) answer.gateway = read_address(attributes[RTA_GATEWAY]);
  // An IPv4 route over an IPv6 neighbour: a family and its address.
  if (const nlattr* via = attributes[RTA_VIA]; via != nullptr && nla_len(via) == 2 + 16) {
    wire::IpAddress address;
    std::memcpy(address.bytes.data(), static_cast<const std::uint8_t*>(nla_data(via)) + 2, 16);
    answer.gateway = address;
  }
  return answer;
}

template <class T>
T read_setting(const char* path, T fallback) {
  T value{};
  return std::ifstream(path) >> value ? value : fallback;
}

PortRules read_port_rules() {
  PortRules rules;
  rules.unprivileged_first = read_setting("/proc/sys/net/ipv4/ip_unprivileged_port_start", rules.unprivileged_first);
  rules.ipv6_only = read_setting("/proc/sys/net/ipv6/bindv6only", 0) != 0;
  std::uint16_t first = 0, last = 0;
  if (std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last && first != 0 && first <= last) {
    rules.ephemeral_first = first;
    rules.ephemeral_last = last;
  }
  return rules;
}

}  // namespace

struct NetlinkHost::Impl {
  PortRules rules = read_port_rules();
  NetlinkSocket requests{nullptr, nl_socket_free};
  NetlinkSocket news{nullptr, nl_socket_free};
  DeviceList list;
  // Datagrams that make the kernel resolve a neighbour leave here.
  int probe_ipv4 = -1;
  int probe_ipv6 = -1;

  // What one on_readable() gathered.
  bool devices_dirty = false;
  std::set<std::pair<std::uint32_t, wire::IpAddress>> neighbors;

  ~Impl() {
    if (probe_ipv4 >= 0) ::close(probe_ipv4);
    if (probe_ipv6 >= 0) ::close(probe_ipv6);
  }
  static int on_news(nl_msg* message, void* argument);
  Result<void> subscribe();
  void note_neighbor(nlmsghdr* header);
};

int NetlinkHost::Impl::on_news(nl_msg* message, void* argument) {
  auto* impl = static_cast<Impl*>(argument);
  nlmsghdr* header = nlmsg_hdr(message);
  if (header->nlmsg_type == RTM_NEWNEIGH || header->nlmsg_type == RTM_DELNEIGH) {
    impl->note_neighbor(header);
  } else {
    impl->devices_dirty = true;
  }
  return NL_OK;
}

void NetlinkHost::Impl::note_neighbor(nlmsghdr* header) {
  nlattr* attributes[NDA_MAX + 1] = {};
  if (nlmsg_parse(header, sizeof(ndmsg), attributes, NDA_MAX, nullptr) != 0 || attributes[NDA_DST] == nullptr) return;
  const auto* info = static_cast<const ndmsg*>(nlmsg_data(header));
  neighbors.emplace(static_cast<std::uint32_t>(info->ndm_ifindex), read_address(attributes[NDA_DST]));
}

Result<void> NetlinkHost::Impl::subscribe() {
  nl_sock* socket = news.get();
  nl_socket_disable_seq_check(socket);
  nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, on_news, this);
  nl_socket_set_buffer_size(socket, kNotificationBufferBytes, 0);
  int error =
      nl_socket_add_memberships(socket, RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_NEIGH, 0);
  if (error == 0) error = nl_socket_set_nonblocking(socket);
  if (error != 0) return fail(EIO, std::string("cannot watch interfaces and neighbours: ") + nl_geterror(error));
  return {};
}

Result<std::unique_ptr<NetlinkHost>> NetlinkHost::open() {
  auto impl = std::make_unique<Impl>();
  for (NetlinkSocket* socket : {&impl->requests, &impl->news}) {
    auto opened = open_netlink();
    if (!opened) return tl::unexpected(opened.error());
    *socket = std::move(*opened);
  }
  // Watching first: no change is lost between the first reading and the first notification.
  if (auto subscribed = impl->subscribe(); !subscribed) return tl::unexpected(subscribed.error());
  auto list = read_device_list(impl->requests.get(), {});
  if (!list) return tl::unexpected(list.error());
  impl->list = std::move(*list);
  impl->probe_ipv4 = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  impl->probe_ipv6 = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return std::unique_ptr<NetlinkHost>(new NetlinkHost(std::move(impl)));
}

NetlinkHost::NetlinkHost(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NetlinkHost::~NetlinkHost() = default;

const std::vector<Device>& NetlinkHost::devices() const { return impl_->list.devices; }

int NetlinkHost::wait_fd() const { return nl_socket_get_fd(impl_->news.get()); }

void NetlinkHost::on_readable() {
  impl_->devices_dirty = false;
  impl_->neighbors.clear();
  for (int reads = 0; reads < kNotificationReads; ++reads) {
    const int error = nl_recvmsgs_default(impl_->news.get());
    if (error == -NLE_AGAIN) break;
    // News were lost: the devices are read anew; who waits for a neighbour asks for its state now and then.
    if (error < 0) impl_->devices_dirty = true;
  }
  if (impl_->devices_dirty) {
    auto list = read_device_list(impl_->requests.get(), impl_->list.devices);
    // Failing that the old list stands until the next change.
    if (list && *list != impl_->list) {
      impl_->list = std::move(*list);
      if (observer_.devices_changed) observer_.devices_changed();
    }
  }
  if (!observer_.neighbor_changed) return;
  for (const auto& [ifindex, address] : impl_->neighbors) observer_.neighbor_changed(ifindex, address);
}

Result<Route> NetlinkHost::find_route(const RouteQuery& query) {
  const bool wrong_family = query.source && query.source->is_ipv4() != query.destination.is_ipv4();
  if (wrong_family) return fail(EINVAL, "source and destination are of different families");
  if (query.source && find_device_of(*query.source, query.ifindex) == nullptr) {
    return fail(EADDRNOTAVAIL, "the source address is not on this host");
  }
  const Device* destination_device = find_device_of(query.destination, query.ifindex);
  return destination_device != nullptr ? local_route(query, *destination_device) : remote_route(query);
}

// The kernel would name the loopback interface; the program's device is the one with the address.
Route NetlinkHost::local_route(const RouteQuery& query, const Device& destination_device) const {
  Route route;
  route.source = query.source.value_or(query.destination);
  route.ifindex = query.source ? find_device_of(*query.source, query.ifindex)->ifindex : destination_device.ifindex;
  route.next_hop = query.destination;
  return route;
}

Result<Route> NetlinkHost::remote_route(const RouteQuery& query) {
  RouteAnswer answer;
  const auto asked = ask(impl_->requests.get(), route_request(query).get(), [&](nlmsghdr* header) {
    if (header->nlmsg_type == RTM_NEWROUTE) answer = parse_route(header);
  });
  if (!asked) return tl::unexpected(asked.error());
  if (answer.type == RTN_BROADCAST) return fail(EINVAL, "the destination is a broadcast address");
  // A local address that is on no interface that is up.
  const bool leaves = answer.type == RTN_UNICAST || answer.type == RTN_MULTICAST;
  if (!leaves || answer.ifindex == 0) return fail(ENETUNREACH, "there is no route to the destination");
  const auto source = query.source ? query.source : answer.source;
  if (!source) return fail(EADDRNOTAVAIL, "no source address reaches the destination");

  Route route;
  route.ifindex = answer.ifindex;
  route.source = *source;
  route.next_hop = answer.gateway.value_or(query.destination);
  route.needs_neighbor = answer.type == RTN_UNICAST && !impl_->list.without_neighbors.contains(answer.ifindex);
  return route;
}

void NetlinkHost::resolve_neighbor(std::uint32_t ifindex, const wire::IpAddress& address) {
  alignas(cmsghdr) std::uint8_t control[CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(int))] = {};
  sockaddr_in6 to_ipv6{};
  sockaddr_in to_ipv4{};
  msghdr message{};
  message.msg_control = control;
  const auto add_control = [&](int level, int type, const auto& value) {
    auto* header = reinterpret_cast<cmsghdr*>(control + message.msg_controllen);
    header->cmsg_level = level;
    header->cmsg_type = type;
    header->cmsg_len = CMSG_LEN(sizeof(value));
    std::memcpy(CMSG_DATA(header), &value, sizeof(value));
    message.msg_controllen += CMSG_SPACE(sizeof(value));
  };
  if (address.is_ipv4()) {
    to_ipv4.sin_family = AF_INET;
    to_ipv4.sin_port = htons(kDiscardPort);
    std::memcpy(&to_ipv4.sin_addr, &address.bytes[12], 4);
    message.msg_name = &to_ipv4;
    message.msg_namelen = sizeof(to_ipv4);
    in_pktinfo interface{};
    interface.ipi_ifindex = static_cast<int>(ifindex);
    add_control(IPPROTO_IP, IP_PKTINFO, interface);
    add_control(IPPROTO_IP, IP_TTL, 1);
  } else {
    to_ipv6.sin6_family = AF_INET6;
    to_ipv6.sin6_port = htons(kDiscardPort);
    to_ipv6.sin6_scope_id = address.is_link_local() ? ifindex : 0;
    std::memcpy(&to_ipv6.sin6_addr, address.bytes.data(), 16);
    message.msg_name = &to_ipv6;
    message.msg_namelen = sizeof(to_ipv6);
    in6_pktinfo interface{};
    interface.ipi6_ifindex = ifindex;
    add_control(IPPROTO_IPV6, IPV6_PKTINFO, interface);
    add_control(IPPROTO_IPV6, IPV6_HOPLIMIT, 1);
  }
  // A failure shows as a neighbour that stays unresolved.
  (void)sendmsg(address.is_ipv4() ? impl_->probe_ipv4 : impl_->probe_ipv6, &message, MSG_DONTWAIT);
}

NeighborState NetlinkHost::neighbor_state(std::uint32_t ifindex, const wire::IpAddress& address) {
  ndmsg header{};
  header.ndm_family = static_cast<std::uint8_t>(family_of(address));
  header.ndm_ifindex = static_cast<int>(ifindex);
  const auto message = make_request(RTM_GETNEIGH, NLM_F_REQUEST, header);
  if (message) put_address(message.get(), NDA_DST, address);
  NeighborState state = NeighborState::kUnresolved;
  // No such entry is an error for the kernel, and no neighbour for us.
  (void)ask(impl_->requests.get(), message.get(), [&](nlmsghdr* answer) {
    if (answer->nlmsg_type == RTM_NEWNEIGH) state = state_of(static_cast<const ndmsg*>(nlmsg_data(answer))->ndm_state);
  });
  return state;
}

PortRules NetlinkHost::port_rules() const { return impl_->rules; }

}  // namespace ucm::host
