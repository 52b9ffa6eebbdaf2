// cm_lives LOCAL [no-fork]: what programs do with themselves beside using rdma_cm: become daemons, give up privileges,
// start threads with tiny stacks. LOCAL is an address of this host.
#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "cm_client.h"
#include "support/sanitizer.h"

using namespace ucm::test;

namespace {

constexpr uid_t kOrdinaryUser = 64123;  // which no account has
// Sanitizers fill stacks.
constexpr std::size_t kStackBytes = kSanitized ? 1 << 20 : 32 << 10;

// The parent ends by exit(), with all that it does to the library; what goes on has inherited it, and starts anew.
void daemonized(const std::string& local) {
  int told[2];
  succeed(pipe(told), "pipe");
  const pid_t program = in_child([&] {
    whole_life(local);
    const Channel inherited = open_channel();
    if (fork() != 0) std::exit(0);
    setsid();
    whole_life(local);
    require(write(told[1], "d", 1) == 1, "write");
    std::exit(0);
  });
  expect_success(program, "the program that becomes a daemon");
  close(told[1]);
  char done = 0;
  require(read(told[0], &done, 1) == 1 && done == 'd', "the daemon did not come to its end");
  close(told[0]);
}

// Opened by root, used by somebody else, as servers do.
void unprivileged(const std::string& local) {
  const pid_t program = in_child([&] {
    const Channel channel = open_channel();
    const IdPointer id = make_id(channel);
    succeed(rdma_bind_addr(id.get(), Address(local, 0).get()), "rdma_bind_addr");
    succeed(setgroups(0, nullptr), "setgroups");
    succeed(setgid(kOrdinaryUser), "setgid");
    succeed(setuid(kOrdinaryUser), "setuid");
    succeed(rdma_listen(id.get(), 1), "rdma_listen");
    whole_life(local);
    std::exit(0);
  });
  expect_success(program, "the program that gives up its privileges");
}

void tiny_stacks(const std::string& local) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  require(pthread_attr_setstacksize(&attributes, kStackBytes) == 0, "pthread_attr_setstacksize");
  std::vector<pthread_t> threads(4);
  const auto body = [](void* address) -> void* {
    whole_life(*static_cast<const std::string*>(address));
    return nullptr;
  };
  std::string address = local;
  for (pthread_t& thread : threads) {
    require(pthread_create(&thread, &attributes, body, &address) == 0, "pthread_create");
  }
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace

int main(int argc, char** argv) {
  require(argc >= 2, "cm_lives LOCAL [no-fork]");
  const std::string local = argv[1];
  if (argc == 2) {
    daemonized(local);
    if (geteuid() == 0) unprivileged(local);
  }
  whole_life(local);
  tiny_stacks(local);
  std::puts("all as it should be");
  return 0;
}
