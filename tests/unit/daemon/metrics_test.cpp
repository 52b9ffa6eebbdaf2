// HTTP as far as it goes, and clients of every kind.
#include "daemon/metrics.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "ipc/control_socket.h"

namespace ucm::daemon {
namespace {

const std::string kRequest = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

std::pair<ipc::FileDescriptor, ipc::FileDescriptor> stream_pair() {
  std::array<int, 2> fds{-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
  return {ipc::FileDescriptor(fds[0]), ipc::FileDescriptor(fds[1])};
}

// A loop turned by the test itself until something holds.
class Metrics : public testing::Test {
 protected:
  Metrics() : loop_(std::move(net::EventLoop::create().value())) {
    server_ = std::make_unique<MetricsServer>(*loop_, [this] {
      ++made_;
      return text_;
    });
    loop_->add_hook([this](TimeNs) {
      if (done_()) loop_->stop();
      return loop_->now() + kNanosecondsPerMillisecond;
    });
  }
  ipc::FileDescriptor connect() {
    auto [mine, theirs] = stream_pair();
    server_->adopt(std::move(theirs));
    return std::move(mine);
  }
  void turn_until(std::function<bool()> done) {
    done_ = std::move(done);
    loop_->run();
  }
  static void say(const ipc::FileDescriptor& client, std::string_view text) {
    EXPECT_EQ(send(client.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // All that comes until the server hangs up.
  std::string answer(const ipc::FileDescriptor& client) {
    std::string all;
    turn_until([&] {
      std::array<char, 65536> block;
      const ssize_t size = recv(client.get(), block.data(), block.size(), MSG_DONTWAIT);
      if (size > 0) all.append(block.data(), static_cast<std::size_t>(size));
      return size == 0 || (size < 0 && errno != EAGAIN);
    });
    return all;
  }
  std::string ask(std::string_view request) {
    const auto client = connect();
    say(client, request);
    return answer(client);
  }

  std::string text_ = "ucm_events_total 1\n";
  int made_ = 0;
  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<MetricsServer> server_;
  std::function<bool()> done_ = [] { return true; };
};

TEST_F(Metrics, AreTheAnswerToGet) {
  const std::string answered = ask(kRequest);
  EXPECT_TRUE(answered.starts_with("HTTP/1.1 200 OK\r\n")) << answered;
  EXPECT_NE(answered.find("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), std::string::npos);
  EXPECT_NE(answered.find("\r\nContent-Length: 19\r\n"), std::string::npos);
  EXPECT_TRUE(answered.ends_with("\r\n\r\nucm_events_total 1\n"));
  EXPECT_TRUE(ask("GET /metrics?x=1 HTTP/1.0\n\n").starts_with("HTTP/1.1 200 "));
}

TEST_F(Metrics, NothingElseIsAnswered) {
  for (const auto& [request, status] : {std::pair{"GET / HTTP/1.1\r\n\r\n", "404"},
                                        {"GET /metrics/../etc HTTP/1.1\r\n\r\n", "404"},
                                        {"POST /metrics HTTP/1.1\r\n\r\n", "405"},
                                        {"GET /metrics\r\n\r\n", "400"},
                                        {"\r\n\r\n", "400"},
                                        {"\x16\x03\x01 hello there\n\n", "400"}}) {
    EXPECT_TRUE(ask(request).starts_with(std::string("HTTP/1.1 ") + status)) << request;
  }
  EXPECT_EQ(made_, 0);
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\nX: " + std::string(MetricsServer::kRequestSizeMax, 'x'))
                  .starts_with("HTTP/1.1 431"));
}

TEST_F(Metrics, ComeAlsoToOneWhoAsksByteByByte) {
  const auto client = connect();
  std::size_t said = 0;
  turn_until([&] {
    say(client, std::string_view(kRequest).substr(said, 1));
    return ++said == kRequest.size();
  });
  EXPECT_TRUE(answer(client).starts_with("HTTP/1.1 200"));
}

TEST_F(Metrics, WhoSaysNothingOrReadsNothingIsHungUpOnAndHoldsUpNobody) {
  text_.assign(4u << 20, 'x');  // more than any socket takes
  const auto silent = connect();
  const auto deaf = connect();
  say(deaf, kRequest);
  const std::string answered = ask(kRequest);
  EXPECT_GT(answered.size(), text_.size());
  EXPECT_EQ(answer(silent), "");
  EXPECT_LT(answer(deaf).size(), text_.size());
}

TEST_F(Metrics, OfTooManyClientsTheOldestGoes) {
  std::vector<ipc::FileDescriptor> clients;
  for (std::size_t i = 0; i < MetricsServer::kClientsMax; ++i) clients.push_back(connect());
  EXPECT_TRUE(ask(kRequest).starts_with("HTTP/1.1 200"));
  EXPECT_EQ(answer(clients[0]), "");
  say(clients[1], kRequest);
  EXPECT_TRUE(answer(clients[1]).starts_with("HTTP/1.1 200"));
}

TEST_F(Metrics, AreNotMadeForEveryClient) {
  for (int i = 0; i < 20; ++i) ask(kRequest);
  EXPECT_LT(made_, 20);
}

TEST(MetricsAddress, IsAPortOrAnAddressWithOne) {
  const auto alone = parse_metrics_address("9477");
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->address, wire::IpAddress::ipv4(0x7f000001));
  EXPECT_EQ(alone->port, 9477);
  EXPECT_EQ(parse_metrics_address("10.0.0.1:1")->address, wire::IpAddress::ipv4(0x0a000001));
  EXPECT_TRUE(parse_metrics_address("[::1]:65535")->address.is_loopback());
  for (const char* wrong : {"", ":", "0", "65536", "9477x", "localhost:1", "::1:1", "[::1]", "[10.0.0.1]:1",
                            "1.2.3.4:", "1.2.3:4", "[]:1", "-1"}) {
    EXPECT_FALSE(parse_metrics_address(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace ucm::daemon
