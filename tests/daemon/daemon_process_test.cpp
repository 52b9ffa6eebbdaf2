// A real ucmd in a network namespace of its own, and programs that come, fork and die.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "client/connection.h"
#include "client/session.h"
#include "ipc/memfd.h"

namespace ucm {
namespace {

using client::CmLink;
using client::Session;

// Generous: only a fault makes a test wait so long.
constexpr int kPatienceMs = 20'000;
constexpr std::uint16_t kServicePort = 7174;

// Empty, or why there is no namespace for the test.
std::string enter_network_namespace() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return std::string("no network namespace here: ") + std::strerror(errno) + "; as root there is one: sudo make test";
  }
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  const bool up = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  close(fd);
  return up ? "" : "the loopback interface of a new network namespace cannot be set up";
}

int wait_status(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

int start_ucmd() {
  const pid_t child = fork();
  if (child == 0) {
    execl(UCMD, UCMD, static_cast<char*>(nullptr));
    _exit(127);
  }
  return wait_status(child);
}

pid_t daemon_pid() {
  const auto node = client::connect_node(ipc::Role::kTool);
  return node ? node->hello.reply.daemon_pid : 0;
}

// Of this network namespace.
pid_t holder_pid() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/ns/net", error);
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm") >> std::ws, name);
    if (name == "ucm-holder" && fs::read_symlink(entry.path() / "ns" / "net", error) == own) {
      return std::stoi(entry.path().filename().string());
    }
  }
  return 0;
}

std::string status_text() {
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node) return "";
  const auto answer = client::ask(node->socket.get(), ipc::make_request(ipc::ControlCall::kStatus, 1));
  return answer ? ipc::read_sealed_copy(answer->descriptors[0].get(), 1u << 20).value_or("") : "";
}

bool eventually(const std::function<bool()>& condition) {
  for (int waited_ms = 0; waited_ms < kPatienceMs; waited_ms += 10) {
    if (condition()) return true;
    poll(nullptr, 0, 10);
  }
  return false;
}

bool readable(int fd) {
  pollfd event{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&event, 1, kPatienceMs) == 1;
}

ipc::SocketAddress loopback(std::uint16_t port) {
  ipc::SocketAddress address;
  address.family = 4;
  address.port = port;
  address.address = wire::IpAddress::ipv4(0x7f000001).bytes;
  return address;
}

// The reply's error, or an ENOTCONN of a session that is not there.
int call(CmLink& link, ipc::CmCall call, std::uint32_t& id, std::uint16_t port = 0) {
  ipc::CmCommand command;
  command.call = call;
  command.id = id;
  command.qp_type = 2;
  command.port_space = 0x0106;
  command.backlog = 4;
  if (port != 0) command.source = loopback(port);
  const ipc::CmReply reply = link.call(command);
  if (call == ipc::CmCall::kCreateId) id = reply.id;
  return reply.error;
}

bool listen_on_service_port(CmLink& link) {
  std::uint32_t id = 0;
  return call(link, ipc::CmCall::kCreateId, id) == 0 && call(link, ipc::CmCall::kBindAddr, id, kServicePort) == 0 &&
         call(link, ipc::CmCall::kListen, id) == 0;
}

// Each program is a process: it has a session of its own, and can be killed.
pid_t start_program(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  return child;
}
bool succeeds(const std::function<bool()>& body) {
  const int status = wait_status(start_program(body));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct DaemonProcess : testing::Test {
  void SetUp() override {
    static const std::string obstacle = enter_network_namespace();
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
    unsetenv("UCM_SOCKET");
    unsetenv("UCM_MODE");
    ASSERT_EQ(start_ucmd(), 0);
    daemon = daemon_pid();
    ASSERT_NE(daemon, 0);
  }
  void TearDown() override {
    if (daemon != 0) kill(daemon, SIGTERM);
    EXPECT_TRUE(eventually([] { return daemon_pid() == 0; }));
  }
  pid_t daemon = 0;
};

TEST_F(DaemonProcess, ListsTheLoopbackDeviceWithItsAddress) {
  EXPECT_TRUE(succeeds([] {
    const auto devices = Session::get().value()->devices().value();
    return devices.size() == 1 && devices[0].interface_name == "lo" && devices[0].loopback &&
           std::any_of(devices[0].addresses.begin(), devices[0].addresses.end(),
                       [](const auto& own) { return own.address == wire::IpAddress::ipv4(0x7f000001); });
  }));
}

TEST_F(DaemonProcess, ASecondStartLeavesTheFirstAlone) {
  EXPECT_EQ(start_ucmd(), 0);
  EXPECT_EQ(daemon_pid(), daemon);
}

TEST_F(DaemonProcess, AKilledProgramsListenerIsFreed) {
  const auto service = "127.0.0.1:" + std::to_string(kServicePort);
  const pid_t server = start_program([] {
    const auto link = Session::get().value()->open_cm_link().value();
    if (!listen_on_service_port(*link)) return false;
    pause();
    return true;
  });
  ASSERT_TRUE(eventually([&] { return status_text().find(service) != std::string::npos; }));
  EXPECT_TRUE(succeeds([] {
    const auto link = Session::get().value()->open_cm_link().value();
    std::uint32_t id = 0;
    return call(*link, ipc::CmCall::kCreateId, id) == 0 &&
           call(*link, ipc::CmCall::kBindAddr, id, kServicePort) == EADDRINUSE;
  }));
  kill(server, SIGKILL);
  wait_status(server);
  EXPECT_TRUE(eventually([&] { return status_text().find(service) == std::string::npos; }));
  EXPECT_TRUE(succeeds([] { return listen_on_service_port(*Session::get().value()->open_cm_link().value()); }));
}

TEST_F(DaemonProcess, AKilledDaemonIsFollowedByAnotherAndProgramsDoNotNotice) {
  const auto service = "127.0.0.1:" + std::to_string(kServicePort);
  EXPECT_TRUE(succeeds([&] {
    const auto link = Session::get().value()->open_cm_link().value();
    if (!listen_on_service_port(*link)) return false;
    kill(daemon, SIGKILL);
    std::uint32_t id = 0;
    return call(*link, ipc::CmCall::kCreateId, id) == 0 && !link->lost() &&
           call(*link, ipc::CmCall::kBindAddr, id, kServicePort) == EADDRINUSE &&
           status_text().find(service) != std::string::npos;
  }));
  const pid_t successor = daemon_pid();
  EXPECT_NE(successor, 0);
  EXPECT_NE(successor, daemon);
  daemon = successor;
}

TEST_F(DaemonProcess, ANodeKilledWithItsHolderFailsCallsAndWakesWaiters) {
  EXPECT_TRUE(succeeds([this] {
    const auto session = Session::get().value();
    const auto link = session->open_cm_link().value();
    const auto data = session->open_data_link().value();
    kill(holder_pid(), SIGKILL);
    kill(daemon, SIGKILL);
    std::uint32_t id = 0;
    return readable(link->event_fd()) && readable(data->wake_fd()) && readable(session->lost_fd()) && link->lost() &&
           call(*link, ipc::CmCall::kCreateId, id) == ENOTCONN;
  }));
  daemon = 0;
}

// A user that no account has.
constexpr uid_t kOtherUser = 64123;
// Of start_program(): it could not become another user.
constexpr int kNoOtherUser = 77;

// Leaves no room for a token, and makes whoever writes, or reads what is empty, wait.
void make_useless(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  for (std::uint64_t more = UINT64_MAX - 1; more != 0;) {
    if (write(fd, &more, sizeof more) != sizeof more) more /= 2;
  }
  fcntl(fd, F_SETFL, 0);
}

// A program that asks for tokens of everything, and whose descriptors take none.
bool hold_up_the_node(int report) {
  const auto node = client::connect_node(ipc::Role::kProgram);
  if (!node) return false;
  std::uint32_t sequence = 0;
  const auto ask = [&](ipc::ControlCall call) {
    return client::ask(node->socket.get(), ipc::make_request(call, ++sequence)).value();
  };
  const client::Answer watching = ask(ipc::ControlCall::kWatchDevices);
  make_useless(watching.descriptors[0].get());
  const client::Answer link = ask(ipc::ControlCall::kOpenCmLink);
  for (const int place : {2, 3}) make_useless(link.descriptors[place].get());
  const auto memory = ipc::SharedMemory::map(link.descriptors[0].get(), ipc::CmLinkLayout::kSize).value();
  ipc::RingProducer commands(memory.at(ipc::CmLinkLayout::kCommands), ipc::kCommandRingSize);
  ipc::RingConsumer replies(memory.at(ipc::CmLinkLayout::kReplies), ipc::kReplyRingSize);
  ipc::RingConsumer events(memory.at(ipc::CmLinkLayout::kEvents), ipc::kEventRingSize);

  const int doorbell = link.descriptors[1].get();
  const auto ring_and_take_back = [&] {
    std::uint64_t token = 1;
    fcntl(doorbell, F_SETFL, O_NONBLOCK);
    if (write(doorbell, &token, sizeof token) < 0 || read(doorbell, &token, sizeof token) < 0) return;
    fcntl(doorbell, F_SETFL, 0);
  };
  const auto pops = [&](ipc::RingConsumer& ring, auto& record) {
    std::size_t size = 0;
    return eventually([&] {
      ring_and_take_back();
      const MutableBytes room(reinterpret_cast<std::uint8_t*>(&record), sizeof record);
      return ring.try_pop(room, size) == ipc::RingConsumer::Pop::kPopped;
    });
  };
  ipc::CmCommand command{.sequence = 1, .call = ipc::CmCall::kCreateId, .qp_type = 2, .port_space = 0x0106};
  ipc::CmReply reply;
  ipc::CmEvent event;
  if (!replies.sleep_prepare() || !events.sleep_prepare()) return false;
  commands.try_push(ipc::bytes_of(command));
  if (!pops(replies, reply) || !replies.sleep_prepare()) return false;
  command = {.sequence = 2, .call = ipc::CmCall::kResolveAddr, .id = reply.id, .destination = loopback(0)};
  command.timeout_ms = 1000;
  commands.try_push(ipc::bytes_of(command));
  if (!pops(replies, reply) || !pops(events, event)) return false;
  return write(report, "", 1) == 1 && pause() != 0;
}

bool add_loopback_address(std::uint32_t address) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo:1");
  auto* const own = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
  own->sin_family = AF_INET;
  own->sin_addr.s_addr = htonl(address);
  const bool added = ioctl(fd, SIOCSIFADDR, &request) == 0;
  close(fd);
  return added;
}

TEST_F(DaemonProcess, AnotherUsersProgramCannotMakeTheNodeWait) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t hostile = fork();
  if (hostile == 0) {
    if (setgroups(0, nullptr) != 0 || setresuid(kOtherUser, kOtherUser, kOtherUser) != 0) _exit(kNoOtherUser);
    _exit(hold_up_the_node(ends[1]) ? 0 : 1);
  }
  close(ends[1]);
  std::uint8_t done = 0;
  const bool held_up = read(ends[0], &done, 1) == 1;
  close(ends[0]);
  if (!held_up) {
    const int status = wait_status(hostile);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoOtherUser)
      GTEST_SKIP() << "a second user needs root: sudo make test";
    FAIL() << "the other program ended with " << status;
  }
  constexpr std::uint32_t kAddress = 0x7f000009;
  EXPECT_TRUE(add_loopback_address(kAddress));
  EXPECT_TRUE(eventually([] { return status_text().find("127.0.0.9") != std::string::npos; }));
  EXPECT_TRUE(succeeds([] { return listen_on_service_port(*Session::get().value()->open_cm_link().value()); }));
  kill(hostile, SIGKILL);
  wait_status(hostile);
}

TEST_F(DaemonProcess, AChildGetsASessionOfItsOwn) {
  EXPECT_TRUE(succeeds([] {
    const auto session = Session::get().value();
    const auto link = session->open_cm_link().value();
    const bool child_is_well = succeeds([&] {
      const auto own = Session::get().value();
      return own != session && session->lost() && listen_on_service_port(*own->open_cm_link().value());
    });
    std::uint32_t id = 0;
    return child_is_well && call(*link, ipc::CmCall::kCreateId, id) == 0;
  }));
}

TEST_F(DaemonProcess, QpnsOfTwoProgramsAreDifferent) {
  const auto session_in_child = [](int out) {
    const std::uint32_t qpn = Session::get().value()->allocate_qpn().value();
    return write(out, &qpn, sizeof qpn) == sizeof qpn;
  };
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_TRUE(succeeds([&] { return session_in_child(ends[1]); }));
  EXPECT_TRUE(succeeds([&] { return session_in_child(ends[1]); }));
  std::array<std::uint32_t, 2> qpns{};
  ASSERT_EQ(read(ends[0], qpns.data(), sizeof qpns), static_cast<ssize_t>(sizeof qpns));
  EXPECT_NE(qpns[0], qpns[1]);
}

}  // namespace
}  // namespace ucm
