#include "client/embedded.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>

#include "daemon/instance.h"
#include "ipc/control_socket.h"
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

void* run_node(void* node) {
  pthread_setname_np(pthread_self(), "ucm-node");
  static_cast<EmbeddedNode*>(node)->instance->run();
  return nullptr;
}

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

Result<void> start_thread(EmbeddedNode& node) {
  sigset_t all_signals, previous;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &previous);
  const int error = pthread_create(&node.thread, nullptr, run_node, &node);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  if (error == 0) return {};
  return fail(error, "cannot start the node's thread: " + std::generic_category().message(error));
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
  if (started) started = start_thread(*node);
  if (!started) return tl::unexpected(started.error());
  running_node = node.release();
  return std::move(sockets->first);
}

}  // namespace ucm::client
