#include "client/embedded.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "daemon/instance.h"
#include "ipc/control_socket.h"
#include "ipc/helper_thread.h"
#include "net/fault_port.h"

namespace ucm::client {
namespace {

// The exit of a program waits so long for the node to send its last messages.
constexpr time_t kStopTimeoutSeconds = 2;

struct EmbeddedNode {
  std::unique_ptr<daemon::Instance> instance;
  ipc::FileDescriptor stop_fd;
  pthread_t thread{};
  pid_t process = 0;  // a child has no such thread
};

EmbeddedNode* running_node = nullptr;

// After the program's own exit handlers, so that these still find a node.
[[gnu::destructor]] void stop_node() {
  if (running_node == nullptr || running_node->process != getpid()) return;
  eventfd_write(running_node->stop_fd.get(), 1);
  timespec deadline{};
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += kStopTimeoutSeconds;
  pthread_timedjoin_np(running_node->thread, nullptr, &deadline);
}

Result<node::Options> options_from_environment() {
  node::Options options;
  const char* text = std::getenv("UCM_FAULTS");
  if (text == nullptr || *text == '\0') return options;
  auto faults = net::FaultSpec::parse(text);
  if (!faults) return fail(faults.error().code, "UCM_FAULTS: " + faults.error().message);
  options.faults = *faults;
  return options;
}

}  // namespace

Result<ipc::FileDescriptor> start_embedded_node() {
  const auto options = options_from_environment();
  if (!options) return tl::unexpected(options.error());
  auto sockets = ipc::connected_pair();
  if (!sockets) return tl::unexpected(sockets.error());
  auto instance = daemon::Instance::open({.node = *options, .socket_name = "", .log = {}});
  if (!instance) return tl::unexpected(instance.error());

  auto node = std::make_unique<EmbeddedNode>();
  node->instance = std::move(*instance);
  node->stop_fd.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  node->process = getpid();
  if (!node->stop_fd) return fail(EMFILE, "no descriptor left for the node");
  auto started = node->instance->adopt(std::move(sockets->second));
  if (started) started = node->instance->stop_when_readable(node->stop_fd.get());
  if (!started) return tl::unexpected(started.error());
  const auto thread = ipc::start_helper_thread("ucm-node", [running = node->instance.get()] { running->run(); });
  if (!thread) return tl::unexpected(thread.error());
  node->thread = *thread;
  running_node = node.release();
  return std::move(sockets->first);
}

}  // namespace ucm::client
