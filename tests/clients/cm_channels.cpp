// cm_channels LOCAL: event channels in the hands of threads, signals, forks and event loops. LOCAL is an address of
// this host.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "cm_client.h"

using namespace ucm::test;

namespace {

constexpr std::uint16_t kFreePort = 7999;
constexpr int kPatienceMs = 60'000;

bool readable(int fd, int timeout_ms) {
  pollfd ready{fd, POLLIN, 0};
  return poll(&ready, 1, timeout_ms) == 1;
}

// Each gives one event, ADDR_RESOLVED.
void start_resolving(rdma_cm_id* id, const std::string& local) {
  Address to(local, kFreePort);
  succeed(rdma_resolve_addr(id, nullptr, to.get(), kPatienceMs), "rdma_resolve_addr");
}

std::vector<IdPointer> resolving_ids(const Channel& channel, const std::string& local, int count) {
  std::vector<IdPointer> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(make_id(channel));
    start_resolving(ids.back().get(), local);
  }
  return ids;
}

void edge_and_level(const std::string& local) {
  const Channel channel = open_channel();
  const int level = epoll_create1(EPOLL_CLOEXEC);
  const int edge = epoll_create1(EPOLL_CLOEXEC);
  epoll_event wanted{.events = EPOLLIN, .data = {}};
  succeed(epoll_ctl(level, EPOLL_CTL_ADD, channel->fd, &wanted), "epoll_ctl");
  wanted.events |= EPOLLET;
  succeed(epoll_ctl(edge, EPOLL_CTL_ADD, channel->fd, &wanted), "epoll_ctl");
  constexpr int kEvents = 20;
  const auto ids = resolving_ids(channel, local, kEvents);
  epoll_event told{};
  require(epoll_wait(edge, &told, 1, kPatienceMs) == 1, "no edge for the first event");
  for (int i = 0; i < kEvents; ++i) {
    require(epoll_wait(level, &told, 1, kPatienceMs) == 1, "an event waits, and epoll does not say so");
    expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  }
  require(epoll_wait(level, &told, 1, 0) == 0, "readable without an event");
  // Whatever was told before: the next event is an edge.
  while (epoll_wait(edge, &told, 1, 0) == 1) continue;
  succeed(rdma_resolve_route(ids.front().get(), kPatienceMs), "rdma_resolve_route");
  require(epoll_wait(edge, &told, 1, kPatienceMs) == 1, "no edge for an event after all were read");
  expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  close(level);
  close(edge);
}

void nonblocking_and_duplicated(const std::string& local) {
  const Channel channel = open_channel();
  const int duplicate = dup(channel->fd);
  require(duplicate >= 0 && (fcntl(channel->fd, F_GETFD) & FD_CLOEXEC) != 0, "dup, close-on-exec");
  fcntl(duplicate, F_SETFL, O_NONBLOCK);
  rdma_cm_event* event = nullptr;
  expect_errno(rdma_get_cm_event(channel.get(), &event), EAGAIN, "an empty channel");
  const auto ids = resolving_ids(channel, local, 1);
  require(readable(duplicate, kPatienceMs), "the duplicate is not readable");
  close(duplicate);
  expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  expect_errno(rdma_get_cm_event(channel.get(), &event), EAGAIN, "an empty channel");
}

// Runs `body` in a thread, cancels it once it waits, and sees it end by that.
void cancelled(const char* what, const std::function<void()>& body) {
  std::atomic<pid_t> tid{0};
  struct Argument {
    const std::function<void()>& body;
    std::atomic<pid_t>& tid;
  } argument{body, tid};
  pthread_t thread{};
  require(pthread_create(
              &thread, nullptr,
              [](void* given) -> void* {
                auto& own = *static_cast<Argument*>(given);
                own.tid = gettid();
                own.body();
                return nullptr;
              },
              &argument) == 0,
          "pthread_create");
  // Asleep is what the kernel says.
  const auto asleep = [&] {
    char state = 0;
    if (tid == 0) return false;
    std::FILE* const stat = std::fopen(("/proc/self/task/" + std::to_string(tid) + "/stat").c_str(), "r");
    if (stat == nullptr) return false;
    const bool read = std::fscanf(stat, "%*d (%*[^)]) %c", &state) == 1;
    std::fclose(stat);
    return read && state == 'S';
  };
  while (!asleep()) std::this_thread::yield();
  pthread_cancel(thread);
  void* result = nullptr;
  pthread_join(thread, &result);
  require(result == PTHREAD_CANCELED, std::string(what) + " was not cancelled");
}

void cancellation(const std::string& local) {
  const Channel channel = open_channel();
  const IdPointer listener = make_id(channel);
  Address any(local, 0);
  succeed(rdma_bind_addr(listener.get(), any.get()), "rdma_bind_addr");
  succeed(rdma_listen(listener.get(), 4), "rdma_listen");
  cancelled("rdma_get_cm_event", [&] {
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel.get(), &event);
  });

  rdma_cm_id* made = nullptr;
  succeed(rdma_create_id(nullptr, &made, nullptr, RDMA_PS_TCP), "rdma_create_id");
  const IdPointer id(made);
  Address to(local, ntohs(rdma_get_src_port(listener.get())));
  succeed(rdma_resolve_addr(id.get(), nullptr, to.get(), kPatienceMs), "rdma_resolve_addr");
  succeed(rdma_resolve_route(id.get(), kPatienceMs), "rdma_resolve_route");
  create_qp(id.get());
  cancelled("rdma_get_send_comp", [&] {
    ibv_wc completion{};
    rdma_get_send_comp(id.get(), &completion);
  });
  cancelled("ibv_get_cq_event", [&] {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    ibv_get_cq_event(id->recv_cq_channel, &queue, &context);
  });
  // Nobody accepts.
  cancelled("rdma_connect", [&] { rdma_connect(id.get(), nullptr); });
  const Told request = next_event(channel);
  require(request.type == RDMA_CM_EVENT_CONNECT_REQUEST, "the cancelled call's request");
  rdma_destroy_id(request.id);
  const auto ids = resolving_ids(channel, local, 1);
  expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
}

void many_readers(const std::string& local) {
  const Channel channel = open_channel();
  constexpr int kEvents = 200;
  std::mutex mutex;
  std::map<rdma_cm_id*, int> told;
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&] {
      for (int i = 0; i < kEvents / 4; ++i) {
        const Told event = next_event(channel);
        require(event.type == RDMA_CM_EVENT_ADDR_RESOLVED, "ADDR_RESOLVED");
        const std::lock_guard lock(mutex);
        ++told[event.id];
      }
    });
  }
  const auto ids = resolving_ids(channel, local, kEvents);
  for (std::thread& reader : readers) reader.join();
  for (const IdPointer& id : ids) require(told[id.get()] == 1, "each event to one reader");
  require(!readable(channel->fd, 0), "readable without an event");
}

// Field case 7.03: with events that wait, and with one that is not acknowledged.
void migration(const std::string& local) {
  const Channel from = open_channel();
  const Channel to = open_channel();
  auto ids = resolving_ids(from, local, 100);
  std::thread moving([&] {
    for (const IdPointer& id : ids) succeed(rdma_migrate_id(id.get(), to.get()), "rdma_migrate_id");
  });
  moving.join();
  for (std::size_t i = 0; i < ids.size(); ++i) expect_event(to, RDMA_CM_EVENT_ADDR_RESOLVED);
  require(!readable(from->fd, 0) && !readable(to->fd, 0), "an event is left");

  rdma_cm_id* const id = ids.front().get();
  succeed(rdma_resolve_route(id, kPatienceMs), "rdma_resolve_route");
  rdma_cm_event* event = nullptr;
  succeed(rdma_get_cm_event(to.get(), &event), "rdma_get_cm_event");
  std::atomic<bool> acknowledged{false};
  std::thread waiting([&] {
    succeed(rdma_migrate_id(id, from.get()), "rdma_migrate_id");
    require(acknowledged, "moved before its event was acknowledged");
  });
  std::thread acknowledging([&] {
    acknowledged = true;
    rdma_ack_cm_event(event);
  });
  waiting.join();
  acknowledging.join();
  require(id->channel == from.get(), "the ID's channel");
}

void destroyed_meanwhile(const std::string& local) {
  const Channel channel = open_channel();
  rdma_cm_id* told = nullptr;
  std::thread reader([&] { told = next_event(channel).id; });
  for (int i = 0; i < 200; ++i) make_id(channel);
  const auto ids = resolving_ids(channel, local, 1);
  reader.join();
  require(told == ids.front().get(), "an event of an ID that is there");
}

void interrupted() {
  const Channel channel = open_channel();
  struct sigaction action{};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR1, &action, nullptr);
  std::atomic<bool> over{false};
  std::thread waiting([&] {
    rdma_cm_event* event = nullptr;
    expect_errno(rdma_get_cm_event(channel.get(), &event), EINTR, "a wait that a signal ends");
    over = true;
  });
  // A signal that comes before the wait ends nothing.
  while (!over) {
    pthread_kill(waiting.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  waiting.join();
}

// The child's own channel works, what it inherited can be destroyed, and the parent notices nothing.
void forked(const std::string& local) {
  Channel channel = open_channel();
  auto ids = resolving_ids(channel, local, 2);
  expect_success(in_child([&] {
                   Address to(local, kFreePort);
                   expect_errno(rdma_resolve_addr(ids.front().get(), nullptr, to.get(), kPatienceMs), ENOTCONN,
                                "the parent's ID");
                   ids.clear();
                   channel.reset();
                   const Channel own = open_channel();
                   const auto own_ids = resolving_ids(own, local, 1);
                   expect_event(own, RDMA_CM_EVENT_ADDR_RESOLVED);
                 }),
                 "the child");
  expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
}

// What a process needs of its own before it can use an ID: channel, session, device, QP.
void from_the_beginning(const std::string& local) {
  const Channel channel = open_channel();
  const IdPointer id = make_id(channel);
  resolve(channel, id.get(), Address(local, kFreePort));
  create_qp(id.get());
  int count = 0;
  ibv_free_device_list(ibv_get_device_list(&count));
  require(count > 0, "ibv_get_device_list");
  rdma_free_devices(rdma_get_devices(&count));
  require(count > 0, "rdma_get_devices");
}

// Whatever the parent's other threads are in at that moment: the child can begin anew, and end what it has inherited. A
// grandchild is forked while the child itself begins, which happens once in a process.
void forked_while_others_call(const std::string& local) {
  constexpr int kForks = 40;
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      while (!over) from_the_beginning(local);
    });
  }
  Channel channel = open_channel();
  auto ids = resolving_ids(channel, local, 1);
  expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  create_qp(ids.front().get());
  for (int i = 0; i < kForks; ++i) {
    expect_success(in_child([&] {
                     ids.clear();
                     channel.reset();
                     std::thread beginning([&] { from_the_beginning(local); });
                     const pid_t grandchild = in_child([&] { from_the_beginning(local); });
                     beginning.join();
                     expect_success(grandchild, "a child of a program that begins");
                   }),
                   "a child of a program whose threads call");
  }
  over = true;
  for (std::thread& other : others) other.join();
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

void no_descriptors_left(const std::string& local) {
  const int before = open_descriptors();
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  rlimit low = old;
  low.rlim_cur = static_cast<rlim_t>(before) + 30;
  succeed(setrlimit(RLIMIT_NOFILE, &low), "setrlimit");
  {
    std::vector<Channel> channels;
    for (;;) {
      Channel next(rdma_create_event_channel(), rdma_destroy_event_channel);
      if (next == nullptr) break;
      channels.push_back(std::move(next));
    }
    require(errno == EMFILE, std::string("no descriptor left: ") + std::strerror(errno));
    const auto ids = resolving_ids(channels.front(), local, 1);
    expect_event(channels.front(), RDMA_CM_EVENT_ADDR_RESOLVED);
  }
  succeed(setrlimit(RLIMIT_NOFILE, &old), "setrlimit");
  require(open_descriptors() == before, "descriptors are left over");
  const Channel channel = open_channel();
  const auto ids = resolving_ids(channel, local, 1);
  expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) die("usage: cm_channels LOCAL [no-fork]");
  const std::string local = argv[1];
  edge_and_level(local);
  nonblocking_and_duplicated(local);
  cancellation(local);
  many_readers(local);
  migration(local);
  destroyed_meanwhile(local);
  interrupted();
  if (argc == 2) {
    forked(local);
    forked_while_others_call(local);
  }
  no_descriptors_left(local);
  std::puts("all channels as expected");
  return 0;
}
