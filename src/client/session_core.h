// What all parts of a session share: the control socket, whether the node is still there, and who must hear of its end.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "client/connection.h"
#include "ipc/cancellation.h"
#include "ipc/control_messages.h"
#include "ipc/file_descriptor.h"

namespace ucm::client {

using ipc::CancellationOff;

// Thread-safe. A core that a child has inherited by fork() counts as lost there: its socket is closed in the child, so
// that the node still notices when the parent ends, and no mutex of it is touched.
class SessionCore : public std::enable_shared_from_this<SessionCore> {
 public:
  // Registers, once, what a fork means to cores. Who registers a handler that takes a lock under which cores are made
  // calls this before: fork() takes the locks of later handlers first.
  static void handle_forks();
  // Starts the thread that waits for the node's end.
  static Result<std::shared_ptr<SessionCore>> start(ipc::FileDescriptor socket);
  ~SessionCore();

  bool lost() const { return lost_.load() || inherited(); }
  bool inherited() const;
  // Readable once the node is gone.
  int lost_fd() const { return lost_fd_.get(); }
  // Hangs up when the node is gone.
  int socket() const { return socket_.get(); }

  // The request's sequence number is set here.
  Result<Answer> ask(ipc::ControlRequest request);
  Result<Answer> ask(ipc::ControlCall call) { return ask(ipc::make_request(call, 0)); }

  // A descriptor for tokens that gets one when the node is lost. ENOTCONN when it is already.
  Result<void> add_listener(int event_fd);
  void remove_listener(int event_fd);

  // The watching thread also calls `news` for every token that the descriptor gets. Once.
  Result<void> watch_also(ipc::FileDescriptor event_fd, std::function<void()> news);

  // Gives the node up: it has broken the rules.
  void abandon();

 private:
  explicit SessionCore(ipc::FileDescriptor socket);
  Result<void> watch_for(int fd, std::uint32_t events);
  Result<void> start_watching();
  void watch();
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  ipc::FileDescriptor socket_;
  ipc::FileDescriptor lost_fd_;
  ipc::FileDescriptor watched_;  // an epoll of the socket's hang-up and news_fd_
  const unsigned fork_generation_;
  std::atomic<bool> lost_{false};
  std::mutex ask_mutex_;
  std::uint32_t sequence_ = 0;
  std::mutex listeners_mutex_;
  std::vector<int> listeners_;
  ipc::FileDescriptor news_fd_;
  std::function<void()> news_;
};

}  // namespace ucm::client
