#include "ipc/peer_process.h"

#include <linux/capability.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace ucm::ipc {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The first word of a line of /proc/PID/status that comes `skip` words after its name.
std::optional<std::string> status_word(const std::string& status, const std::string& name, int skip) {
  const auto at = status.find("\n" + name + ":");
  if (at == std::string::npos) return std::nullopt;
  std::istringstream line(status.substr(at + name.size() + 2));
  std::string word;
  for (int i = 0; i <= skip; ++i) {
    if (!(line >> word)) return std::nullopt;
  }
  return word;
}

bool has_capability(const std::string& hex_set, int capability) {
  std::uint64_t set = 0;
  const auto [end, error] = std::from_chars(hex_set.data(), hex_set.data() + hex_set.size(), set, 16);
  return error == std::errc() && end == hex_set.data() + hex_set.size() && (set >> capability & 1) != 0;
}

}  // namespace

bool may_bind_low_ports(const PeerCredentials& peer) {
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!process) return false;
  const std::string folder = "/proc/" + std::to_string(peer.pid);
  const std::string status = read_file(folder + "/status");
  const std::string users = read_file(folder + "/uid_map");
  // A user namespace of its own makes a process capable of everything in there, and of nothing here.
  if (users.empty() || users != read_file("/proc/self/uid_map")) return false;
  const auto user = status_word(status, "Uid", 1);  // the effective one
  const auto capabilities = status_word(status, "CapEff", 0);
  if (user != std::to_string(peer.uid) || !capabilities) return false;
  // The process that was looked at is still the one that the descriptor stands for.
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) == 0 && has_capability(*capabilities, CAP_NET_BIND_SERVICE);
}

}  // namespace ucm::ipc
