// A whole node with its server: what runs in ucmd's main thread, or in a thread of a program that embeds the node.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "daemon/metrics.h"
#include "daemon/server.h"
#include "ipc/file_descriptor.h"
#include "net/event_loop.h"
#include "node/node.h"

namespace ucm::daemon {

struct InstanceOptions {
  node::Options node;
  std::string socket_name;                  // told in the status; empty = none
  TimeNs idle_exit_ns = kNever;             // run() returns when no program was served for so long
  std::optional<MetricsAddress> metrics{};  // served over HTTP
  Log log;
  // Keep everything beyond this process; both or neither. They outlive the instance.
  Keeper* keeper = nullptr;
  node::Journal* journal = nullptr;
  bool restore = false;  // go on with what the journal has
};

class Instance {
 public:
  // Binds UDP 4791, where the keeper has no sockets of another ucmd; the error says who holds it. EPROTO: the journal
  // contradicts itself.
  static Result<std::unique_ptr<Instance>> open(InstanceOptions options);
  ~Instance();

  // Exactly one thread may use an instance at a time.
  Result<void> serve(ipc::FileDescriptor listener);
  Result<void> adopt(ipc::FileDescriptor socket);
  // Makes run() end in good order once `fd` is readable. `fd` outlives run().
  Result<void> stop_when_readable(int fd);
  // Calls `ready`, which reads, whenever `fd` is readable. `fd` outlives run().
  Result<void> when_readable(int fd, std::function<void()> ready);
  // Calls `what` at once and then as often as that, also while there is nothing to do.
  void every(TimeNs interval, std::function<void()> what);
  void set_limits(const node::Limits& limits);
  // Until the stop, the end of idleness, or a request on the control socket.
  void run();

 private:
  explicit Instance(std::unique_ptr<net::EventLoop> loop);
  Result<void> keep(const InstanceOptions& options);

  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<node::Node> node_;
  std::unique_ptr<NodeAccess> access_;
  std::unique_ptr<MetricsServer> metrics_;
};

}  // namespace ucm::daemon
