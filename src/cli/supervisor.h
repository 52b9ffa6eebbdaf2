// What runs ucmd as a service, systemd or something that speaks like it: sd_notify(3), sd_listen_fds(3).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "ipc/file_descriptor.h"

namespace ucm::cli {

class Supervisor {
 public:
  // Takes NOTIFY_SOCKET, WATCHDOG_USEC and LISTEN_FDS out of the environment.
  static Supervisor from_environment();

  // The listening socket that was passed on; an invalid descriptor when none was. EINVAL: more than one, or something
  // else than a listening SOCK_SEQPACKET UNIX socket.
  Result<ipc::FileDescriptor> take_listener();
  // "READY=1" and the like; without anybody to tell it does nothing.
  void tell(const std::string& state) const;
  bool present() const { return !notify_socket_.empty() || passed_ != 0; }
  // How often "WATCHDOG=1" is to be told; kNever: not at all.
  TimeNs watchdog_interval() const { return watchdog_interval_; }

 private:
  std::string notify_socket_;
  TimeNs watchdog_interval_ = kNever;
  int passed_ = 0;
};

// "@ucm" for the abstract name ucm; the path of another one.
std::string listener_name(int socket);

}  // namespace ucm::cli
