#include "ipc/peer_process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "support/sanitizer.h"

namespace ucm::ipc {
namespace {

// What is said of a child that has done `first` and waits.
bool allowed_after(const std::function<bool()>& first, uid_t uid) {
  int ready[2];
  int done[2];
  EXPECT_EQ(pipe(ready), 0);
  EXPECT_EQ(pipe(done), 0);
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    close(done[1]);
    byte = first() ? '+' : '-';
    const bool told = write(ready[1], &byte, 1) == 1;
    _exit(told && read(done[0], &byte, 1) == 0 ? 0 : 1);
  }
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, '+') << "the child could not do it";
  const bool allowed = may_bind_low_ports({.pid = child, .uid = uid, .gid = 0});
  close(done[1]);
  waitpid(child, nullptr, 0);
  for (const int fd : {ready[0], ready[1], done[0]}) close(fd);
  return allowed;
}

struct LowPorts : testing::Test {
  void SetUp() override {
    if (getuid() != 0) GTEST_SKIP() << "changing users needs root";
  }
};

TEST_F(LowPorts, RootMayUnlessItHasGivenUpTheCapability) {
  EXPECT_TRUE(allowed_after([] { return true; }, 0));
  EXPECT_FALSE(allowed_after([] { return prctl(PR_SET_SECUREBITS, 0) == 0 && setuid(64123) == 0; }, 64123));
}

TEST_F(LowPorts, AUserNamespaceOfItsOwnGivesNobodyThePorts) {
  if (ucm::test::kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer's own thread forbids a new user namespace";
  EXPECT_FALSE(allowed_after([] { return setuid(64123) == 0 && unshare(CLONE_NEWUSER) == 0; }, 64123));
}

TEST_F(LowPorts, AnotherUserThanTheSocketsDoesNotCount) {
  EXPECT_FALSE(allowed_after([] { return true; }, 64123));
}

TEST_F(LowPorts, AProcessThatHasEndedMayNothing) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  EXPECT_FALSE(may_bind_low_ports({.pid = child, .uid = 0, .gid = 0})) << "not reaped yet";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(may_bind_low_ports({.pid = child, .uid = 0, .gid = 0}));
}

}  // namespace
}  // namespace ucm::ipc
