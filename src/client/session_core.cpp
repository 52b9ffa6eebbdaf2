#include "client/session_core.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace ucm::client {
namespace {

// The watching thread only waits and writes a few eventfds.
constexpr std::size_t kWatchStackSize = 256 * 1024;

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
  static std::once_flag fork_handlers;
  std::call_once(fork_handlers, [] { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); });
  std::shared_ptr<SessionCore> core(new SessionCore(std::move(socket)));
  if (!core->lost_fd_ || !core->watched_) return fail(EMFILE, "no descriptor left for the session with ucmd");
  if (auto watched = core->watch_for(core->socket_.get(), EPOLLRDHUP); !watched) return tl::unexpected(watched.error());
  if (auto started = core->start_watching(); !started) return tl::unexpected(started.error());
  return core;
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
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kWatchStackSize);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // The thread is none of the program's: its signals go to its own threads.
  sigset_t all_signals, previous;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &previous);
  auto* self = new std::shared_ptr<SessionCore>(shared_from_this());
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, watch_thread, self);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  pthread_attr_destroy(&attributes);
  if (error == 0) return {};
  delete self;
  return fail(error, "cannot start the thread that watches ucmd: " + std::generic_category().message(error));
}

void* SessionCore::watch_thread(void* self) {
  const std::unique_ptr<std::shared_ptr<SessionCore>> core(static_cast<std::shared_ptr<SessionCore>*>(self));
  pthread_setname_np(pthread_self(), "ucm-watch");
  (*core)->watch();
  return nullptr;
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
