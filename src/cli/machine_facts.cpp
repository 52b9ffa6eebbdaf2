// What `ucm doctor` looks at.
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "cli/doctor.h"
#include "cli/program_run.h"
#include "client/connection.h"
#include "host/netlink_host.h"
#include "net/udp_port.h"
#include "net/udp_sender.h"

namespace ucm::cli {
namespace {

void ask_daemon(MachineFacts& facts) {
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node && node.error().code == ECONNREFUSED) return;
  if (!node) {
    facts.daemon = tl::unexpected(node.error());
    return;
  }
  const ipc::ControlReply& hello = node->hello.reply;
  facts.daemon_version = ipc::text_of(hello.daemon_version);
  facts.daemon = "ucmd " + facts.daemon_version + ", process " + std::to_string(hello.daemon_pid) + " of user " +
                 std::to_string(hello.daemon_uid) + " on " + node->socket_name;
}

std::uint64_t read_number(const char* path) {
  std::uint64_t number = 0;
  std::ifstream(path) >> number;
  return number;
}

bool has_net_admin() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
  if (syscall(SYS_capget, &header, data.data()) != 0) return false;
  return (data[CAP_NET_ADMIN / 32].effective & (1u << (CAP_NET_ADMIN % 32))) != 0;
}

std::uint64_t descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace

MachineFacts gather_facts() {
  MachineFacts facts;
  ask_daemon(facts);
  if (!facts.daemon || !*facts.daemon) {
    if (const auto port = net::UdpPort::open(); !port) facts.port_error = port.error();
  }
  const auto host = host::NetlinkHost::open();
  if (host) {
    facts.devices = (*host)->devices();
  } else {
    facts.devices = tl::unexpected(host.error());
  }
  facts.ipv4_identification = net::probe_ipv4_identification();
  facts.receive_buffer_max = read_number("/proc/sys/net/core/rmem_max");
  facts.may_exceed_buffer_max = has_net_admin();
  facts.descriptors_max = descriptor_limit();
  facts.system_devices = look_at_system_devices();
  facts.libraries = find_libraries();
  return facts;
}

}  // namespace ucm::cli
