#include "client/session_core.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "ipc/helper_thread.h"

namespace ucm::client {
namespace {

// How many forks lie between the first process and this one.
std::atomic<unsigned> current_fork_generation{0};

// Every core of this process, so that a child can let go of them. Never destroyed: threads may outlive main().
std::mutex& cores_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::vector<SessionCore*>& cores() {
  static auto* all = new std::vector<SessionCore*>;
  return *all;
}

tl::unexpected<Error> lost_error() { return fail(ENOTCONN, "ucmd is gone"); }

}  // namespace

SessionCore::SessionCore(ipc::FileDescriptor socket)
    : socket_(std::move(socket)),
      lost_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      watched_(epoll_create1(EPOLL_CLOEXEC)),
      fork_generation_(current_fork_generation.load()) {
  const std::lock_guard lock(cores_mutex());
  cores().push_back(this);
}

SessionCore::~SessionCore() {
  const std::lock_guard lock(cores_mutex());
  std::erase(cores(), this);
}

Result<std::shared_ptr<SessionCore>> SessionCore::start(ipc::FileDescriptor socket) {
  handle_forks();
  std::shared_ptr<SessionCore> core(new SessionCore(std::move(socket)));
  if (!core->lost_fd_ || !core->watched_) return fail(EMFILE, "no descriptor left for the session with ucmd");
  if (auto watched = core->watch_for(core->socket_.get(), EPOLLRDHUP); !watched) return tl::unexpected(watched.error());
  if (auto started = core->start_watching(); !started) return tl::unexpected(started.error());
  return core;
}

void SessionCore::handle_forks() {
  static std::once_flag registered;
  std::call_once(registered, [] { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); });
}

void SessionCore::before_fork() { cores_mutex().lock(); }
void SessionCore::after_fork_in_parent() { cores_mutex().unlock(); }

void SessionCore::after_fork_in_child() {
  current_fork_generation.fetch_add(1);
  for (SessionCore* core : cores()) core->socket_.reset();
  cores_mutex().unlock();
}

bool SessionCore::inherited() const {
  return fork_generation_ != current_fork_generation.load(std::memory_order_relaxed);
}

Result<void> SessionCore::start_watching() {
  const auto thread = ipc::start_helper_thread("ucm-watch", [self = shared_from_this()] { self->watch(); });
  if (!thread) return tl::unexpected(thread.error());
  pthread_detach(*thread);
  return {};
}

void SessionCore::watch() {
  for (;;) {
    epoll_event event{};
    if (epoll_wait(watched_.get(), &event, 1, -1) <= 0) continue;
    if (event.data.fd == socket_.get()) break;
    eventfd_t tokens = 0;
    eventfd_read(event.data.fd, &tokens);
    news_();
  }
  const std::lock_guard lock(listeners_mutex_);
  lost_.store(true);
  eventfd_write(lost_fd_.get(), 1);
  for (const int event_fd : listeners_) eventfd_write(event_fd, 1);
}

Result<void> SessionCore::watch_also(ipc::FileDescriptor event_fd, std::function<void()> news) {
  // The thread looks at neither before the descriptor is watched.
  news_ = std::move(news);
  news_fd_ = std::move(event_fd);
  return watch_for(news_fd_.get(), EPOLLIN);
}

Result<void> SessionCore::watch_for(int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  if (epoll_ctl(watched_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return fail(errno, "cannot watch ucmd: " + std::generic_category().message(errno));
}

void SessionCore::abandon() {
  if (!inherited()) shutdown(socket_.get(), SHUT_RDWR);
}

Result<Answer> SessionCore::ask(ipc::ControlRequest request) {
  const CancellationOff no_cancellation;
  if (lost()) return lost_error();
  const std::lock_guard lock(ask_mutex_);
  request.header.sequence = ++sequence_;
  auto answer = client::ask(socket_.get(), request);
  // After these the stream of answers is out of step.
  if (!answer && (answer.error().code == ETIMEDOUT || answer.error().code == EPROTO)) abandon();
  return answer;
}

Result<void> SessionCore::add_listener(int event_fd) {
  if (inherited()) return lost_error();
  const std::lock_guard lock(listeners_mutex_);
  if (lost_.load()) return lost_error();
  listeners_.push_back(event_fd);
  return {};
}

void SessionCore::remove_listener(int event_fd) {
  if (inherited()) return;
  const std::lock_guard lock(listeners_mutex_);
  std::erase(listeners_, event_fd);
}

}  // namespace ucm::client
