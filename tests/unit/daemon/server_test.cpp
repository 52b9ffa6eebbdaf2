// The server against clients that break the rules, byte by byte.
#include "daemon/server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <random>

#include "daemon/fake_node.h"
#include "ipc/control_messages.h"
#include "ipc/memfd.h"
#include "wire/headers.h"

namespace ucm::daemon {
namespace {

using ipc::ControlCall;

struct RawAnswer {
  ipc::ControlReply reply;
  ipc::Received received;
};

// A program that says exactly what the test wants.
class RawClient {
 public:
  explicit RawClient(ServerThread& server) : socket_(server.connect()) {}

  bool send(Bytes bytes, std::span<const int> descriptors = {}) {
    return ipc::send_message(socket_.get(), bytes, descriptors, ipc::SendMode::kWait).has_value();
  }
  // nullopt: the server has hung up.
  std::optional<RawAnswer> receive() {
    std::array<std::uint8_t, 512> buffer{};
    auto received = ipc::receive_message(socket_.get(), buffer, ipc::ReceiveMode::kWait);
    if (!received || received->size == 0) return std::nullopt;
    ipc::ControlReply reply;
    std::memcpy(&reply, buffer.data(), std::min(sizeof reply, received->size));
    return RawAnswer{reply, std::move(*received)};
  }
  std::optional<RawAnswer> ask(ControlCall call, ipc::Role role = ipc::Role::kTool) {
    auto request = ipc::make_request(call, 1);
    request.role = role;
    if (!send(ipc::bytes_of(request))) return std::nullopt;
    return receive();
  }
  // The answer's error; -1 when the server has hung up.
  int request(const ipc::ControlRequest& request) {
    if (!send(ipc::bytes_of(request))) return -1;
    const auto answer = receive();
    return answer ? answer->reply.error : -1;
  }
  void hang_up() { socket_.reset(); }

 private:
  ipc::FileDescriptor socket_;
};

TEST(Server, TellsWhoItIsInTheHello) {
  ServerThread server({.socket_name = "@test", .node_instance = 99, .log = {}});
  RawClient client(server);
  const auto answer = client.ask(ControlCall::kHello, ipc::Role::kProgram);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->reply.error, 0);
  EXPECT_EQ(answer->reply.daemon_pid, getpid());
  EXPECT_EQ(answer->reply.node_instance, 99u);
  EXPECT_EQ(answer->received.descriptor_count, 1u) << "the table of peers";
}

TEST(Server, HangsUpOnBytesThatAreNoRequest) {
  const auto request = ipc::make_request(ControlCall::kHello, 1);
  const Bytes bytes = ipc::bytes_of(request);
  std::vector<std::uint8_t> longer(bytes.begin(), bytes.end());
  longer.resize(5000);
  ServerThread server;
  for (const Bytes bad : {bytes.first(1), bytes.first(sizeof request - 1), Bytes(longer)}) {
    RawClient client(server);
    ASSERT_TRUE(client.send(bad));
    EXPECT_FALSE(client.receive()) << bad.size();
  }
  EXPECT_EQ(server.counters().sessions_violated, 3u);
}

TEST(Server, AnswersAnotherVersionWithItsOwnBeforeHangingUp) {
  ServerThread server;
  RawClient client(server);
  auto request = ipc::make_request(ControlCall::kHello, 1);
  request.header.version = 77;
  ASSERT_TRUE(client.send(ipc::bytes_of(request)));
  const auto answer = client.receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->reply.error, EPROTONOSUPPORT);
  EXPECT_NE(ipc::text_of(answer->reply.message).find("77"), std::string::npos);
  EXPECT_FALSE(client.receive());
}

TEST(Server, HelloComesFirstAndOnce) {
  ServerThread server;
  RawClient early(server);
  EXPECT_FALSE(early.ask(ControlCall::kListDevices));
  RawClient twice(server);
  EXPECT_TRUE(twice.ask(ControlCall::kHello));
  EXPECT_FALSE(twice.ask(ControlCall::kHello));
}

TEST(Server, TakesNoDescriptorsFromAProgram) {
  ServerThread server;
  RawClient client(server);
  const auto request = ipc::make_request(ControlCall::kHello, 1);
  ASSERT_TRUE(client.send(ipc::bytes_of(request), std::array{STDIN_FILENO}));
  EXPECT_FALSE(client.receive());
}

TEST(Server, AToolGetsNoLinks) {
  ServerThread server;
  RawClient tool(server);
  ASSERT_TRUE(tool.ask(ControlCall::kHello, ipc::Role::kTool));
  for (const ControlCall call :
       {ControlCall::kOpenCmLink, ControlCall::kOpenDataLink, ControlCall::kAllocateQpns, ControlCall::kSendSockets,
        ControlCall::kCloseLink, ControlCall::kJoinGroup, ControlCall::kLeaveGroup}) {
    const auto answer = tool.ask(call);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->reply.error, EPERM);
  }
}

TEST(Server, FreesWhatAProgramHadWhenItHangsUp) {
  ServerThread server;
  RawClient program(server);
  ASSERT_TRUE(program.ask(ControlCall::kHello, ipc::Role::kProgram));
  ASSERT_TRUE(program.ask(ControlCall::kOpenCmLink));
  const auto block = program.ask(ControlCall::kAllocateQpns);
  ASSERT_TRUE(block);
  bool owned = false;
  server.run([&] { owned = server.callbacks.owns_qpn(1, block->reply.first_qpn); });
  EXPECT_TRUE(owned);
  program.hang_up();
  EXPECT_TRUE(server.eventually([&] { return server.node.removed_sessions == std::vector<node::SessionId>{1}; }));
  EXPECT_EQ(server.node.removed_links.size(), 1u);
  server.run([&] { owned = server.callbacks.owns_qpn(1, block->reply.first_qpn); });
  EXPECT_FALSE(owned);
}

TEST(Server, PassesAGroupsPacketsToItsMembersUntilTheyAreGone) {
  ServerThread server;
  RawClient one(server), two(server);
  const wire::MulticastGroup group{wire::IpAddress::ipv4(0xEF010203), 3};
  auto join = ipc::make_request(ControlCall::kJoinGroup, 1);
  join.group = group.address.bytes;
  join.ifindex = group.ifindex;
  for (RawClient* client : {&one, &two}) {
    ASSERT_TRUE(client->ask(ControlCall::kHello, ipc::Role::kProgram));
    ASSERT_TRUE(client->ask(ControlCall::kOpenDataLink));
    EXPECT_EQ(client->request(join), 0);
  }
  EXPECT_EQ(server.node.groups, std::set{group});
  const auto deliver = [&](const wire::MulticastGroup& to) {
    const std::array<std::uint8_t, 32> packet{};
    wire::DatagramInfo info{.source = wire::IpAddress::ipv4(0x0A000009), .destination = to.address};
    info.ifindex = to.ifindex;
    server.run([&] { server.callbacks.deliver_data(wire::kMulticastQpn, info, packet); });
  };
  deliver(group);
  EXPECT_EQ(server.counters().packets, 2u);
  deliver({group.address, group.ifindex + 1});
  EXPECT_EQ(server.counters().packets_no_owner, 1u);

  auto leave = join;
  leave.header.call = ControlCall::kLeaveGroup;
  EXPECT_EQ(one.request(leave), 0);
  deliver(group);
  EXPECT_EQ(server.counters().packets, 3u);
  two.hang_up();
  EXPECT_TRUE(server.eventually([&] { return server.node.groups.empty(); }));
  deliver(group);
  EXPECT_EQ(server.counters().packets_no_owner, 2u);
}

TEST(Server, RefusesGroupsThatCannotBe) {
  ServerThread server;
  RawClient client(server);
  ASSERT_TRUE(client.ask(ControlCall::kHello, ipc::Role::kProgram));
  auto join = ipc::make_request(ControlCall::kJoinGroup, 1);
  join.group = wire::IpAddress::ipv4(0x0A000001).bytes;
  EXPECT_EQ(client.request(join), EINVAL);
  join.group = wire::IpAddress::ipv4(0xEF010203).bytes;
  server.run([&] { server.node.group_error = ENOBUFS; });
  EXPECT_EQ(client.request(join), ENOBUFS);
  server.run([&] { server.node.group_error = 0; });
  for (std::uint32_t i = 0; i < ipc::kGroupJoinsPerSessionMax; ++i) ASSERT_EQ(client.request(join), 0);
  EXPECT_EQ(client.request(join), ENOMEM);
}

TEST(Server, ABrokenCommandRingEndsItsSessionOnly) {
  ServerThread server;
  RawClient good(server), bad(server);
  ASSERT_TRUE(good.ask(ControlCall::kHello, ipc::Role::kProgram));
  ASSERT_TRUE(bad.ask(ControlCall::kHello, ipc::Role::kProgram));
  auto link = bad.ask(ControlCall::kOpenCmLink);
  ASSERT_TRUE(link && link->received.descriptor_count == 4);
  const auto memory = ipc::SharedMemory::map(link->received.descriptors[0].get(), ipc::CmLinkLayout::kSize);
  ASSERT_TRUE(memory.has_value());
  reinterpret_cast<ipc::RingHeader*>(memory->at(ipc::CmLinkLayout::kCommands))->tail.store(12345);
  const std::uint64_t one = 1;
  ASSERT_EQ(write(link->received.descriptors[1].get(), &one, sizeof one), 8);
  EXPECT_FALSE(bad.receive());
  EXPECT_TRUE(good.ask(ControlCall::kOpenCmLink));
  EXPECT_EQ(server.counters().sessions_violated, 1u);
}

TEST(Server, GarbageInEveryRingIsNotNoticedByTheOthers) {
  ServerThread server;
  server.run([&] {
    server.node.on_execute = [](node::SessionId, node::LinkId, const ipc::CmCommand& command) {
      return ipc::CmReply{.id = command.id + 1};
    };
  });
  RawClient good(server);
  ASSERT_TRUE(good.ask(ControlCall::kHello, ipc::Role::kProgram));
  const auto own = good.ask(ControlCall::kOpenCmLink);
  ASSERT_TRUE(own && own->received.descriptor_count == 4);
  const auto own_memory = ipc::SharedMemory::map(own->received.descriptors[0].get(), ipc::CmLinkLayout::kSize);
  ipc::RingProducer commands(own_memory->at(ipc::CmLinkLayout::kCommands), ipc::kCommandRingSize);
  ipc::RingConsumer replies(own_memory->at(ipc::CmLinkLayout::kReplies), ipc::kReplyRingSize);
  const std::uint64_t one = 1;

  std::minstd_rand random(1);
  for (std::uint32_t round = 0; round < 100; ++round) {
    RawClient bad(server);
    ASSERT_TRUE(bad.ask(ControlCall::kHello, ipc::Role::kProgram));
    const auto link = bad.ask(ControlCall::kOpenCmLink);
    ASSERT_TRUE(link && link->received.descriptor_count == 4);
    const auto memory = ipc::SharedMemory::map(link->received.descriptors[0].get(), ipc::CmLinkLayout::kSize);
    auto* const bytes = static_cast<std::uint8_t*>(memory->data());
    for (int i = 0; i < 2000; ++i) {
      bytes[random() % ipc::CmLinkLayout::kSize] = static_cast<std::uint8_t>(random());
      // The positions are what hurts most, and few of the bytes.
      bytes[ipc::CmLinkLayout::kCommands + random() % sizeof(ipc::RingHeader)] = static_cast<std::uint8_t>(random());
      bytes[ipc::CmLinkLayout::kReplies + random() % sizeof(ipc::RingHeader)] = static_cast<std::uint8_t>(random());
      bytes[ipc::CmLinkLayout::kEvents + random() % sizeof(ipc::RingHeader)] = static_cast<std::uint8_t>(random());
      if (i % 100 == 0) {
        ASSERT_EQ(write(link->received.descriptors[1].get(), &one, sizeof one), 8);
      }
    }
    server.run([&] { server.callbacks.deliver_event(link->reply.link, {}); });

    ASSERT_EQ(write(own->received.descriptors[1].get(), &one, sizeof one), 8);
    ASSERT_NE(commands.try_push(ipc::bytes_of(ipc::CmCommand{.id = round})), ipc::RingProducer::Push::kFull);
    ASSERT_EQ(write(own->received.descriptors[1].get(), &one, sizeof one), 8);
    ipc::CmReply reply;
    std::size_t size = 0;
    ASSERT_TRUE(server.eventually([&] {
      const MutableBytes room(reinterpret_cast<std::uint8_t*>(&reply), sizeof reply);
      return replies.try_pop(room, size) == ipc::RingConsumer::Pop::kPopped;
    })) << round;
    EXPECT_EQ(reply.id, round + 1);
  }
  EXPECT_GT(server.counters().sessions_violated, 50u);
}

TEST(Server, ACommandOfAnotherSizeEndsItsSession) {
  ServerThread server;
  RawClient bad(server);
  ASSERT_TRUE(bad.ask(ControlCall::kHello, ipc::Role::kProgram));
  auto link = bad.ask(ControlCall::kOpenCmLink);
  ASSERT_TRUE(link && link->received.descriptor_count == 4);
  const auto memory = ipc::SharedMemory::map(link->received.descriptors[0].get(), ipc::CmLinkLayout::kSize);
  ASSERT_TRUE(memory.has_value());
  ipc::RingProducer commands(memory->at(ipc::CmLinkLayout::kCommands), ipc::kCommandRingSize);
  commands.try_push(ipc::bytes_of(std::uint64_t{5}));
  const std::uint64_t one = 1;
  ASSERT_EQ(write(link->received.descriptors[1].get(), &one, sizeof one), 8);
  EXPECT_FALSE(bad.receive());
}

TEST(Server, CommandsWithoutReadingRepliesEndTheSession) {
  ServerThread server;
  RawClient bad(server);
  ASSERT_TRUE(bad.ask(ControlCall::kHello, ipc::Role::kProgram));
  auto link = bad.ask(ControlCall::kOpenCmLink);
  ASSERT_TRUE(link && link->received.descriptor_count == 4);
  const auto memory = ipc::SharedMemory::map(link->received.descriptors[0].get(), ipc::CmLinkLayout::kSize);
  ASSERT_TRUE(memory.has_value());
  ipc::RingProducer commands(memory->at(ipc::CmLinkLayout::kCommands), ipc::kCommandRingSize);
  const std::uint64_t one = 1;
  for (int sent = 0; sent < 100;) {
    if (commands.try_push(ipc::bytes_of(ipc::CmCommand{})) != ipc::RingProducer::Push::kFull) ++sent;
    if (write(link->received.descriptors[1].get(), &one, sizeof one) != 8) break;
    if (server.counters().sessions_violated != 0) break;
  }
  EXPECT_FALSE(bad.receive());
}

TEST(Server, LimitsTheQpnsOfOneProgram) {
  ServerThread server;
  RawClient greedy(server);
  ASSERT_TRUE(greedy.ask(ControlCall::kHello, ipc::Role::kProgram));
  for (std::uint32_t i = 0; i < ipc::kQpnBlocksPerSessionMax; ++i) {
    const auto answer = greedy.ask(ControlCall::kAllocateQpns);
    ASSERT_TRUE(answer && answer->reply.error == 0);
    ASSERT_EQ(answer->reply.table_index, i * ipc::kQpnBlockSize);
  }
  EXPECT_EQ(greedy.ask(ControlCall::kAllocateQpns)->reply.error, ENOMEM);
}

TEST(Server, AProgramOverALimitIsToldCountedAndLogged) {
  std::vector<std::string> lines;
  node::Limits limits;
  limits.program.most = {1, 1, ipc::kQpnBlockSize, 0, 0, 0};
  limits.user.most = {2, 100, 2 * ipc::kQpnBlockSize, 0, 0, 0};
  ServerThread server({.socket_name = "@test", .limits = limits, .log = [&](LogLevel level, const std::string& text) {
                         if (level == LogLevel::kWarning) lines.push_back(text);
                       }});
  RawClient one(server), two(server), three(server);
  ASSERT_EQ(one.ask(ControlCall::kHello, ipc::Role::kProgram)->reply.error, 0);
  const auto link = one.ask(ControlCall::kOpenCmLink);
  ASSERT_EQ(link->reply.error, 0);
  EXPECT_EQ(one.ask(ControlCall::kOpenCmLink)->reply.error, ENOMEM);
  EXPECT_EQ(one.ask(ControlCall::kAllocateQpns)->reply.error, 0);
  EXPECT_EQ(one.ask(ControlCall::kAllocateQpns)->reply.error, ENOMEM);
  auto close = ipc::make_request(ControlCall::kCloseLink, 1);
  close.link = link->reply.link;
  EXPECT_EQ(one.request(close), 0);
  EXPECT_EQ(one.ask(ControlCall::kOpenCmLink)->reply.error, 0) << "after the first was closed";

  ASSERT_EQ(two.ask(ControlCall::kHello, ipc::Role::kProgram)->reply.error, 0);
  EXPECT_EQ(three.ask(ControlCall::kHello, ipc::Role::kProgram)->reply.error, EAGAIN);
  one.hang_up();
  EXPECT_TRUE(server.eventually([&] { return !server.node.removed_sessions.empty(); }));
  EXPECT_EQ(three.ask(ControlCall::kHello, ipc::Role::kProgram)->reply.error, 0) << "in the place of the first";

  const auto counters = nlohmann::json::parse(server.status())["counters"];
  EXPECT_EQ(counters["refused_event_channels"], 1);
  EXPECT_EQ(counters["refused_queue_pairs"], 1);
  EXPECT_EQ(counters["refused_programs"], 1);
  server.stop();
  ASSERT_EQ(lines.size(), 2u) << "the second refusal of one program comes too soon to be told";
  for (const std::string& line : lines) {
    EXPECT_NE(line.find("process " + std::to_string(getpid())), std::string::npos) << line;
    EXPECT_NE(line.find("user " + std::to_string(getuid())), std::string::npos) << line;
  }
}

TEST(Server, StatusIsJsonThatNamesItsPrograms) {
  ServerThread server({.socket_name = "@test", .log = {}});
  server.node.device_list = {
      {.ifindex = 1, .interface_name = "lo", .mtu = 65536, .guid = 1, .loopback = true, .addresses = {}}};
  RawClient program(server);
  ASSERT_TRUE(program.ask(ControlCall::kHello, ipc::Role::kProgram));
  const auto status = nlohmann::json::parse(server.status());
  EXPECT_EQ(status["daemon"]["socket"], "@test");
  ASSERT_EQ(status["sessions"].size(), 1u);
  EXPECT_EQ(status["sessions"][0]["pid"], getpid());
  EXPECT_EQ(status["devices"][0]["name"], "ucm_lo");
  EXPECT_EQ(status["held"]["connections"], 3);
  EXPECT_EQ(status["counters"]["node_received"], 7);
  EXPECT_TRUE(nlohmann::json::parse(server.status({.user = getuid() + 1}))["sessions"].empty());
}

TEST(Server, StopRequestEndsEverySessionAndTheLoop) {
  ServerThread server;
  RawClient program(server), tool(server);
  ASSERT_TRUE(program.ask(ControlCall::kHello, ipc::Role::kProgram));
  ASSERT_TRUE(tool.ask(ControlCall::kHello));
  const auto answer = tool.ask(ControlCall::kStop);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->reply.error, 0);
  EXPECT_FALSE(program.receive());
  server.wait_stopped();
}

}  // namespace
}  // namespace ucm::daemon
