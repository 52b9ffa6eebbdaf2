#include "ipc/token_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace ucm::ipc {
namespace {

bool readable(const TokenWriter& tokens) {
  pollfd event{.fd = tokens.get(), .events = POLLIN, .revents = 0};
  return poll(&event, 1, 0) == 1;
}

bool take(const TokenWriter& tokens) {
  std::uint64_t token = 0;
  return read(tokens.get(), &token, sizeof token) == sizeof token;
}

bool put_as_a_program_does(const TokenWriter& tokens, std::uint64_t token = 1) {
  return write(tokens.get(), &token, sizeof token) == sizeof token;
}

class Tokens : public testing::TestWithParam<TokenWriter::Reader> {
 protected:
  TokenWriter tokens = TokenWriter::create(GetParam(), TokenWriter::Reading::kReturns).value();
};

TEST_P(Tokens, ATokenMakesItReadableUntilItIsTaken) {
  EXPECT_FALSE(readable(tokens));
  tokens.put();
  EXPECT_TRUE(readable(tokens));
  EXPECT_TRUE(take(tokens));
  EXPECT_FALSE(readable(tokens));
  EXPECT_FALSE(take(tokens));
  EXPECT_EQ(errno, EAGAIN);
}

TEST_P(Tokens, AProgramMayPutOneItself) {
  EXPECT_TRUE(put_as_a_program_does(tokens));
  EXPECT_TRUE(readable(tokens));
  EXPECT_TRUE(take(tokens));
}

TEST_P(Tokens, IsClosedOnExec) { EXPECT_NE(fcntl(tokens.get(), F_GETFD) & FD_CLOEXEC, 0); }

INSTANTIATE_TEST_SUITE_P(, Tokens, testing::Values(TokenWriter::Reader::kTrusted, TokenWriter::Reader::kUntrusted),
                         [](const auto& reader) {
                           return reader.param == TokenWriter::Reader::kTrusted ? "Trusted" : "Untrusted";
                         });

TEST(UntrustedTokens, OneThatIsFullAndBlocksDoesNotMakeTheWriterWait) {
  const auto tokens = TokenWriter::create(TokenWriter::Reader::kUntrusted, TokenWriter::Reading::kReturns).value();
  while (put_as_a_program_does(tokens, UINT64_MAX - 1)) continue;
  ASSERT_EQ(errno, EAGAIN);
  ASSERT_EQ(fcntl(tokens.get(), F_SETFL, 0), 0);
  tokens.put();
  EXPECT_TRUE(take(tokens));
}

TEST(UntrustedTokens, NobodyElseCanPutOne) {
  const auto tokens = TokenWriter::create(TokenWriter::Reader::kUntrusted, TokenWriter::Reading::kReturns).value();
  sockaddr_un name{};
  socklen_t length = sizeof name;
  ASSERT_EQ(getsockname(tokens.get(), reinterpret_cast<sockaddr*>(&name), &length), 0);
  const FileDescriptor stranger(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(sendto(stranger.get(), "x", 1, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&name), length), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_FALSE(readable(tokens));
}

}  // namespace
}  // namespace ucm::ipc
