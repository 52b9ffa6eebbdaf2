// A session and a server, joined by a real socket and real rings, in front of a made-up node.
#include "client/session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "client/connection.h"
#include "client/socket_session.h"
#include "daemon/fake_node.h"

namespace ucm::client {
namespace {

using daemon::ServerThread;

// Generous: only a fault makes a test wait so long.
constexpr int kPatienceMs = 20'000;

std::shared_ptr<SocketSession> open_session(ServerThread& server) {
  auto socket = server.connect();
  auto hello = say_hello(socket.get(), ipc::Role::kProgram);
  return SocketSession::open(std::move(socket), std::move(hello.value())).value();
}

// While it lives this process can open `count` descriptors more.
class DescriptorsLeft {
 public:
  explicit DescriptorsLeft(int count) {
    std::vector<ipc::FileDescriptor> free;
    int most = -1;
    for (int i = 0; i < count; ++i) most = std::max(most, free.emplace_back(dup(STDIN_FILENO)).get());
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{.rlim_cur = static_cast<rlim_t>(most) + 1, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
  }
  ~DescriptorsLeft() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorsLeft(const DescriptorsLeft&) = delete;
  DescriptorsLeft& operator=(const DescriptorsLeft&) = delete;

 private:
  rlimit before_{};
};

bool readable(int fd, int timeout_ms = kPatienceMs) {
  pollfd event{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&event, 1, timeout_ms) == 1;
}

ipc::CmCommand command(ipc::CmCall call, std::uint32_t id = 0) {
  ipc::CmCommand result;
  result.call = call;
  result.id = id;
  return result;
}

// The next event; nullopt: none came.
std::optional<ipc::CmEvent> next(CmLink& link, int timeout_ms = kPatienceMs) {
  ipc::CmEvent event;
  while (!link.poll_event(event)) {
    if (!link.arm()) continue;
    if (!readable(link.event_fd(), timeout_ms)) return std::nullopt;
    eventfd_t token = 0;
    eventfd_read(link.event_fd(), &token);
  }
  return event;
}

struct SessionTest : testing::Test {
  SessionTest() {
    on_execute([this](node::SessionId, node::LinkId link, const ipc::CmCommand& c) {
      last_link = link;
      ipc::CmReply reply;
      reply.id = c.id + 1;
      return reply;
    });
  }
  template <class Function>
  void on_execute(Function function) {
    server.run([&] { server.node.on_execute = function; });
  }
  void deliver(const ipc::CmEvent& event) {
    server.run([&] { server.callbacks.deliver_event(last_link, event); });
  }
  ServerThread server;
  node::LinkId last_link = 0;
};

TEST_F(SessionTest, CallsAreAnsweredAndKeepTheirSequence) {
  const auto session = open_session(server);
  const auto link = session->open_cm_link().value();
  for (std::uint32_t i = 0; i < 1000; ++i) {
    auto c = command(ipc::CmCall::kBindAddr, i);
    c.sequence = 7;
    const ipc::CmReply reply = link->call(c);
    ASSERT_EQ(reply.error, 0);
    ASSERT_EQ(reply.id, i + 1);
    ASSERT_EQ(reply.sequence, 7u);
  }
}

TEST_F(SessionTest, ThreadsMayShareALinkAndHaveTheirOwn) {
  const auto session = open_session(server);
  const auto shared = session->open_cm_link().value();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto own = session->open_cm_link().value();
      for (std::uint32_t i = 0; i < 300; ++i) {
        const std::uint32_t id = static_cast<std::uint32_t>(t) * 1000 + i;
        if (shared->call(command(ipc::CmCall::kListen, id)).id != id + 1) ++wrong;
        if (own->call(command(ipc::CmCall::kListen, id)).id != id + 1) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(SessionTest, EveryEventComesInOrderWithOneTokenAlsoWhenTheRingOverflows) {
  const auto session = open_session(server);
  const auto link = session->open_cm_link().value();
  static_cast<void>(link->call(command(ipc::CmCall::kCreateId)));
  constexpr std::uint32_t kEvents = 1000;  // several times what the ring holds
  for (std::uint32_t i = 0; i < kEvents; ++i) {
    ipc::CmEvent event;
    event.id = i;
    deliver(event);
  }
  constexpr std::uint32_t kRoom = ipc::kEventRingSize / ipc::record_footprint(sizeof(ipc::CmEvent));
  EXPECT_EQ(server.counters().events_waited, kEvents - kRoom) << "each once, however long it waits";
  for (std::uint32_t i = 0; i < kEvents; ++i) {
    const auto event = next(*link);
    ASSERT_TRUE(event) << i;
    ASSERT_EQ(event->id, i);
  }
  EXPECT_FALSE(next(*link, 0));
}

TEST_F(SessionTest, PostedCommandsComeInOrderHoweverManyAndGetNoReply) {
  const auto session = open_session(server);
  const auto link = session->open_cm_link().value();
  std::atomic<std::uint32_t> seen{0};
  std::atomic<bool> wrong{false};
  on_execute([&](node::SessionId, node::LinkId, const ipc::CmCommand& c) {
    const bool posted = c.call == ipc::CmCall::kDisconnect;
    if (c.id != seen || (c.posted != 0) != posted) wrong = true;
    ++seen;
    return ipc::CmReply{.error = posted ? EINVAL : 0, .id = c.id};
  });
  constexpr std::uint32_t kCommands = 1000;  // many times what the ring holds
  for (std::uint32_t i = 0; i < kCommands; ++i) {
    ASSERT_EQ(link->post(command(ipc::CmCall::kDisconnect, i)).error, 0);
  }
  EXPECT_EQ(link->call(command(ipc::CmCall::kListen, kCommands)).id, kCommands);
  EXPECT_EQ(seen, kCommands + 1);
  EXPECT_FALSE(wrong);
  server.kill();
  EXPECT_TRUE(readable(session->lost_fd()));
  EXPECT_EQ(link->post(command(ipc::CmCall::kDisconnect)).error, ENOTCONN);
}

TEST_F(SessionTest, ALinkMakesIdsWithoutAskingWhileItHasNumbers) {
  const auto session = open_session(server);
  const auto link = session->open_cm_link().value();
  std::uint32_t next = 100;
  std::atomic<std::uint32_t> asked = 0;
  on_execute([&](node::SessionId, node::LinkId, const ipc::CmCommand& c) {
    if (c.posted != 0) return ipc::CmReply{};
    ++asked;
    const ipc::CmReply reply{.id = next, .numbers = c.numbers};
    next += 1 + c.numbers;
    return reply;
  });
  const std::uint32_t all = 1 + 2 * (1 + ipc::kIdNumbersMax);
  for (std::uint32_t i = 0; i < all; ++i) EXPECT_EQ(link->post(command(ipc::CmCall::kCreateId)).id, 100 + i);
  EXPECT_EQ(asked, 3u) << "the first ID of a link asks for no more";
}

TEST_F(SessionTest, ATokenComesOnceForEveryTimeItIsAskedFor) {
  const auto session = open_session(server);
  const auto link = session->open_cm_link().value();
  static_cast<void>(link->call(command(ipc::CmCall::kCreateId)));
  // The first reply may come before the events of its turn, the second one comes after them.
  const auto pushed = [&] {
    for (int i = 0; i < 2; ++i) static_cast<void>(link->call(command(ipc::CmCall::kCreateId)));
  };
  ipc::CmEvent event;
  for (int round = 0; round < 2; ++round) {
    deliver(event);
    deliver(event);
    pushed();
    ASSERT_TRUE(readable(link->event_fd())) << "armed";
    eventfd_t token = 0;
    ASSERT_EQ(eventfd_read(link->event_fd(), &token), 0);
    EXPECT_EQ(token, 1u);
    EXPECT_FALSE(link->disarm()) << "taken already";
    EXPECT_TRUE(link->poll_event(event));
    EXPECT_FALSE(link->arm()) << "an event waits";
    EXPECT_TRUE(link->poll_event(event));
    EXPECT_TRUE(link->arm());
  }
  EXPECT_TRUE(link->disarm());
  deliver(event);
  pushed();
  EXPECT_FALSE(readable(link->event_fd(), 0)) << "not asked for";
  EXPECT_TRUE(link->poll_event(event));
}

TEST_F(SessionTest, AWaitingEventOfADestroyedIdIsNotDelivered) {
  const auto session = open_session(server);
  const auto link = session->open_cm_link().value();
  static_cast<void>(link->call(command(ipc::CmCall::kCreateId)));
  for (std::uint32_t i = 0; i < 400; ++i) {
    ipc::CmEvent event;
    event.id = i < 399 ? 1 : 2;
    deliver(event);
  }
  ASSERT_EQ(link->call(command(ipc::CmCall::kDestroyId, 2)).error, 0);
  std::uint32_t taken = 0;
  while (const auto event = next(*link, taken < 399 ? kPatienceMs : 0)) {
    ASSERT_EQ(event->id, 1u);
    ++taken;
  }
  EXPECT_EQ(taken, 399u);
}

TEST_F(SessionTest, TheEndOfTheNodeFailsCallsAndWritesATokenToEveryLink) {
  const auto session = open_session(server);
  const auto one = session->open_cm_link().value();
  const auto two = session->open_cm_link().value();
  const auto data = session->open_data_link().value();
  server.kill();
  EXPECT_TRUE(readable(one->event_fd()));
  EXPECT_TRUE(readable(two->event_fd()));
  EXPECT_TRUE(readable(data->wake_fd()));
  EXPECT_TRUE(readable(session->lost_fd()));
  EXPECT_TRUE(one->lost() && data->lost() && session->lost());
  EXPECT_EQ(one->call(command(ipc::CmCall::kCreateId)).error, ENOTCONN);
  EXPECT_EQ(session->allocate_qpn().error().code, ENOTCONN);
  EXPECT_EQ(session->open_cm_link().error().code, ENOTCONN);
  EXPECT_EQ(session->send_sockets().error().code, ENOTCONN);
  EXPECT_TRUE(data->wait_prepare());
  EXPECT_TRUE(readable(data->wake_fd(), 0)) << "a sleeper must not miss it";
}

TEST_F(SessionTest, ACallInTheAirFailsWhenTheNodeEnds) {
  const auto session = open_session(server);
  const auto link = session->open_cm_link().value();
  std::atomic<bool> executing{false}, node_may_end{false};
  on_execute([&](node::SessionId, node::LinkId, const ipc::CmCommand&) {
    executing = true;
    node_may_end.wait(false);
    return ipc::CmReply{};
  });
  ipc::CmReply reply;
  std::thread caller([&] {
    reply = link->call(command(ipc::CmCall::kCreateId));
    static_cast<void>(link->call(command(ipc::CmCall::kCreateId)));
    reply = link->call(command(ipc::CmCall::kCreateId));
  });
  while (!executing) std::this_thread::yield();
  std::thread killer([&] { server.kill(); });
  node_may_end = true;
  node_may_end.notify_all();
  killer.join();
  caller.join();
  EXPECT_TRUE(link->lost() || readable(session->lost_fd()));
}

TEST_F(SessionTest, QpnsAreTheSessionsAndThePeerTableReachesTheNode) {
  const auto session = open_session(server);
  const std::uint32_t qpn = session->allocate_qpn().value();
  bool owned = false;
  server.run([&] { owned = server.callbacks.owns_qpn(1, qpn); });
  EXPECT_TRUE(owned);

  const auto other = open_session(server);
  const std::uint32_t peer = other->allocate_qpn().value();
  const SendSockets sockets = session->send_sockets().value();
  const SendSockets other_sockets = other->send_sockets().value();
  EXPECT_GE(sockets.port, wire::kRoceSourcePortMin);
  const auto data = session->open_data_link().value();
  session->set_peer_qpn(qpn, peer);

  const std::array<std::uint8_t, 16> payload{1, 2, 3};
  const auto send_from = [&](std::uint16_t port) {
    wire::DatagramInfo info;
    info.source = wire::IpAddress::ipv4(0x7f000001);
    info.source_port = port;
    server.run([&] { server.callbacks.deliver_data(qpn, info, payload); });
  };
  std::vector<std::uint16_t> heard;
  const auto hear = [&](const wire::DatagramInfo& info, Bytes bytes) {
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), payload.begin(), payload.end()));
    heard.push_back(info.source_port);
  };
  send_from(other_sockets.port);
  send_from(sockets.port);  // not the peer's
  send_from(5000);          // nobody's
  EXPECT_EQ(data->poll(hear, 10), 1u);
  EXPECT_EQ(heard, std::vector{other_sockets.port});
  session->set_peer_qpn(qpn, 0);
  send_from(sockets.port);
  EXPECT_EQ(data->poll(hear, 10), 1u);
}

TEST_F(SessionTest, ASleeperIsWokenByAPacketAndNotAgain) {
  const auto session = open_session(server);
  const std::uint32_t qpn = session->allocate_qpn().value();
  const auto data = session->open_data_link().value();
  const std::array<std::uint8_t, 16> payload{};
  const auto send = [&] { server.run([&] { server.callbacks.deliver_data(qpn, {}, payload); }); };
  ASSERT_TRUE(data->wait_prepare());
  EXPECT_FALSE(readable(data->wake_fd(), 0));
  send();
  EXPECT_TRUE(readable(data->wake_fd()));
  data->wait_done();
  EXPECT_FALSE(data->wait_prepare()) << "a packet waits";
  EXPECT_EQ(data->poll([](const auto&, Bytes) {}, 10), 1u);
  EXPECT_TRUE(data->wait_prepare());
  EXPECT_FALSE(readable(data->wake_fd(), 0));
}

TEST_F(SessionTest, ASlowReaderLosesPacketsAndTheyAreCounted) {
  const auto session = open_session(server);
  const std::uint32_t qpn = session->allocate_qpn().value();
  const auto data = session->open_data_link().value();
  const std::vector<std::uint8_t> payload(4096 + 64);
  server.run([&] {
    for (int i = 0; i < 2000; ++i) server.callbacks.deliver_data(qpn, {}, payload);
  });
  const auto counters = server.counters();
  EXPECT_GT(counters.packets_ring_full, 0u);
  EXPECT_EQ(data->poll([](const auto&, Bytes) {}, 2000), counters.packets);
}

TEST_F(SessionTest, EveryDescriptorIsClosedOnExec) {
  const auto session = open_session(server);
  const auto link = session->open_cm_link().value();
  const auto data = session->open_data_link().value();
  const SendSockets sockets = session->send_sockets().value();
  for (const int fd : {link->event_fd(), data->wake_fd(), sockets.ipv4, session->lost_fd()}) {
    EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST_F(SessionTest, DevicesAreThoseOfTheNode) {
  server.node.device_list = {
      {.ifindex = 1, .interface_name = "lo", .mtu = 65536, .guid = 1, .loopback = true, .addresses = {}}};
  const auto devices = open_session(server)->devices();
  ASSERT_TRUE(devices.has_value());
  EXPECT_EQ(*devices, server.node.device_list);
}

TEST_F(SessionTest, AChangeOfTheDevicesIsToldToThoseWhoWatch) {
  const auto session = open_session(server);
  std::atomic<int> told{0};
  ASSERT_TRUE(session
                  ->watch_devices([&] {
                    ++told;
                    told.notify_one();
                  })
                  .has_value());
  EXPECT_EQ(session->watch_devices([] {}).error().code, EBUSY);
  server.run([&] { server.callbacks.devices_changed(); });
  told.wait(0);
  server.run([&] { server.callbacks.devices_changed(); });
  told.wait(1);
  EXPECT_EQ(told, 2);
}

TEST_F(SessionTest, AClosedLinkIsRemovedFromTheNode) {
  const auto session = open_session(server);
  session->open_cm_link().value().reset();
  EXPECT_TRUE(server.eventually([&] { return server.node.removed_links.size() == 1; }));
}

// In the child the session counts as lost; the parent's goes on, and ends with the parent although the child lives.
TEST_F(SessionTest, AForkedChildNeitherUsesNorKeepsTheParentsSession) {
  auto session = open_session(server);
  auto link = session->open_cm_link().value();
  std::array<int, 2> child_may_end{};
  ASSERT_EQ(pipe(child_may_end.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(child_may_end[1]);
    const bool right = session->lost() && link->lost() &&
                       link->call(command(ipc::CmCall::kCreateId)).error == ENOTCONN && !session->allocate_qpn();
    char byte = 0;
    static_cast<void>(!read(child_may_end[0], &byte, 1));
    _exit(right ? 0 : 1);
  }
  EXPECT_EQ(link->call(command(ipc::CmCall::kCreateId)).error, 0);
  link.reset();
  session.reset();
  EXPECT_TRUE(server.eventually([&] { return server.node.removed_sessions.size() == 1; }));
  close(child_may_end[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(SessionTest, ACancelledThreadFinishesItsCall) {
  const auto session = open_session(server);
  const auto link = session->open_cm_link().value();
  std::atomic<bool> executing{false}, node_may_answer{false};
  on_execute([&](node::SessionId, node::LinkId, const ipc::CmCommand&) {
    executing = true;
    node_may_answer.wait(false);
    return ipc::CmReply{};
  });
  std::thread caller([&] {
    static_cast<void>(link->call(command(ipc::CmCall::kCreateId)));
    pthread_testcancel();
    ADD_FAILURE() << "the cancellation got lost";
  });
  while (!executing) std::this_thread::yield();
  pthread_cancel(caller.native_handle());
  node_may_answer = true;
  node_may_answer.notify_all();
  caller.join();
  EXPECT_EQ(link->call(command(ipc::CmCall::kCreateId)).error, 0) << "the link is as it was";
}

TEST_F(SessionTest, AProgramWithoutDescriptorsLeavesNothingInTheNode) {
  const auto session = open_session(server);
  {
    const DescriptorsLeft for_the_server(4);  // which is in this process, too
    const auto link = session->open_cm_link();
    ASSERT_FALSE(link);
    EXPECT_EQ(link.error().code, EMFILE);
  }
  EXPECT_EQ(nlohmann::json::parse(server.status())["sessions"][0]["event_channels"], 0);
  EXPECT_TRUE(session->open_cm_link());
  {
    const DescriptorsLeft for_the_server(2);
    EXPECT_EQ(session->open_data_link().error().code, EMFILE);
  }
  EXPECT_TRUE(session->open_data_link());
}

}  // namespace
}  // namespace ucm::client
