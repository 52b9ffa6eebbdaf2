// The thread that works for sockets whose program does not call: connections that are being made without a waiting
// thread, keep-alive messages, and the UDP side of datagrams. It exists from the first socket that needs it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "rsocket/socket.h"

namespace ucm::rsocket {

class Service {
 public:
  // That of this process; a forked child gets one of its own.
  static Service& instance();

  // Calls socket->serve() now and when it asks for, until it needs no more.
  Result<void> attend(std::shared_ptr<Socket> socket);

 private:
  Result<void> start();
  void run();
  // Serves every socket; what to wait for, and how long.
  int turn(std::vector<pollfd>& wait_on);
  void kick();

  struct Entry {
    std::shared_ptr<Socket> socket;
    bool asked;  // since it was last served
  };

  std::mutex mutex_;
  std::vector<Entry> entries_;
  int kick_fd_ = -1;
};

}  // namespace ucm::rsocket
