#include "net/port_holder.h"

#include <dirent.h>
#include <pwd.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

namespace ucm::net {
namespace {

struct Holder {
  uid_t uid = 0;
  std::string inode;
};

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;
Directory open_directory(const std::string& path) { return {opendir(path.c_str()), closedir}; }

// Columns of /proc/net/udp: slot, local address:port in hex, remote, state, queues, timer, retransmits, uid, timeout,
// inode.
std::optional<Holder> find_holder(const char* table, std::uint16_t port) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream columns(line);
    std::string slot, local, remote, state, queues, timer, retransmits, timeout;
    Holder holder;
    columns >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> holder.uid >> timeout >>
        holder.inode;
    const std::size_t colon = local.rfind(':');
    if (!columns || colon == std::string::npos) continue;
    if (std::stoul(local.substr(colon + 1), nullptr, 16) == port) return holder;
  }
  return std::nullopt;
}

bool process_has_socket(const std::string& pid, const std::string& socket_name) {
  const std::string fds = "/proc/" + pid + "/fd";
  const Directory directory = open_directory(fds);
  if (!directory) return false;
  while (const dirent* entry = readdir(directory.get())) {
    std::array<char, 64> target{};
    const std::string path = fds + "/" + entry->d_name;
    const ssize_t length = readlink(path.c_str(), target.data(), target.size());
    if (length > 0 && socket_name == std::string(target.data(), static_cast<std::size_t>(length))) return true;
  }
  return false;
}

std::optional<std::string> find_process(const std::string& inode) {
  const std::string socket_name = "socket:[" + inode + "]";
  const Directory directory = open_directory("/proc");
  if (!directory) return std::nullopt;
  while (const dirent* entry = readdir(directory.get())) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    if (process_has_socket(entry->d_name, socket_name)) return entry->d_name;
  }
  return std::nullopt;
}

std::string user_name(uid_t uid) {
  std::array<char, 1024> buffer;
  passwd entry;
  passwd* found = nullptr;
  getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? std::string(entry.pw_name) : std::to_string(uid);
}

}  // namespace

std::string describe_udp_port_holder(std::uint16_t port) {
  auto holder = find_holder("/proc/net/udp", port);
  if (!holder) holder = find_holder("/proc/net/udp6", port);
  if (!holder) return "another socket";

  if (const auto pid = find_process(holder->inode)) {
    std::string name;
    std::ifstream("/proc/" + *pid + "/comm") >> name;
    return "process " + *pid + " (" + name + ") of user " + user_name(holder->uid);
  }
  // A socket of the kernel belongs to user 0 and to no process.
  if (holder->uid == 0 && access("/sys/module/rdma_rxe", F_OK) == 0) return "the kernel (rdma_rxe)";
  return "a process of user " + user_name(holder->uid);
}

}  // namespace ucm::net
