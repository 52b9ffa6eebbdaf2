// A supervisor that is none: the environment and the sockets are the test's.
#include "cli/supervisor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "ipc/control_socket.h"

namespace ucm::cli {
namespace {

std::string own_name(const std::string& what) { return "@ucm-test-" + what + "-" + std::to_string(getpid()); }

ipc::FileDescriptor notify_socket(const std::string& name) {
  ipc::FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
            0);
  return socket;
}

TEST(Supervisor, HearsWhatItIsTold) {
  const std::string name = own_name("notify");
  const auto socket = notify_socket(name);
  setenv("NOTIFY_SOCKET", name.c_str(), 1);
  setenv("WATCHDOG_USEC", "30000000", 1);
  const auto supervisor = Supervisor::from_environment();
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr) << "not for those that ucmd starts";
  EXPECT_EQ(supervisor.watchdog_interval(), 15 * kNanosecondsPerSecond);
  supervisor.tell("READY=1");
  std::array<char, 100> text{};
  EXPECT_EQ(recv(socket.get(), text.data(), text.size(), MSG_DONTWAIT), 7);
  EXPECT_STREQ(text.data(), "READY=1");
}

TEST(Supervisor, NobodyIsTheUsualOne) {
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"}) unsetenv(name);
  auto supervisor = Supervisor::from_environment();
  supervisor.tell("READY=1");
  EXPECT_EQ(supervisor.watchdog_interval(), kNever);
  EXPECT_FALSE(supervisor.take_listener().value());
}

TEST(Supervisor, AWatchdogOrSocketsOfAnotherProcessAreNotOurs) {
  setenv("WATCHDOG_USEC", "1000000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  setenv("LISTEN_FDS", "1", 1);
  setenv("LISTEN_PID", "1", 1);
  auto supervisor = Supervisor::from_environment();
  EXPECT_EQ(supervisor.watchdog_interval(), kNever);
  EXPECT_FALSE(supervisor.take_listener().value());
}

// In a child, where descriptor 3 can be what it has to be.
bool in_child_with(int socket, const char* count, const std::function<bool(Supervisor&)>& holds) {
  const pid_t child = fork();
  if (child == 0) {
    if (socket != 3) dup2(socket, 3);
    setenv("LISTEN_FDS", count, 1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    auto supervisor = Supervisor::from_environment();
    _exit(holds(supervisor) ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST(Supervisor, PassesAListeningSocketWithItsName) {
  const std::string name = own_name("listen");
  const auto listener = ipc::listen_on(name);
  ASSERT_TRUE(listener);
  EXPECT_TRUE(in_child_with(listener->get(), "1", [&](Supervisor& supervisor) {
    const auto taken = supervisor.take_listener();
    return taken && taken->get() == 3 && listener_name(3) == name;
  }));
}

TEST(Supervisor, AnythingElseIsRefused) {
  const auto pair = ipc::connected_pair();
  const auto refuses = [](Supervisor& supervisor) { return !supervisor.take_listener(); };
  EXPECT_TRUE(in_child_with(pair->first.get(), "1", refuses)) << "it does not listen";
  EXPECT_TRUE(in_child_with(pair->first.get(), "2", refuses)) << "two";
}

}  // namespace
}  // namespace ucm::cli
