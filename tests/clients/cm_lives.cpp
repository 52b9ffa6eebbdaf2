// cm_lives LOCAL [no-fork]: what programs do with themselves beside using rdma_cm: become daemons, give up privileges,
// start threads with tiny stacks. LOCAL is an address of this host.
#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <vector>

#include "cm_client.h"
#include "support/sanitizer.h"

using namespace ucm::test;

namespace {

constexpr uid_t kOrdinaryUser = 64123;  // which no account has
// Sanitizers fill stacks.
constexpr std::size_t kStackBytes = kSanitized ? 1 << 20 : 32 << 10;

// One connection of this program with itself, a message over it, and its end.
void whole_life(const std::string& local) {
  const Channel channel = open_channel();
  const IdPointer listener = make_id(channel);
  succeed(rdma_bind_addr(listener.get(), Address(local, 0).get()), "rdma_bind_addr");
  succeed(rdma_listen(listener.get(), 1), "rdma_listen");
  const IdPointer active = make_id(channel);
  resolve(channel, active.get(), Address(local, ntohs(rdma_get_src_port(listener.get()))));
  create_qp(active.get());
  rdma_conn_param parameters{};
  succeed(rdma_connect(active.get(), &parameters), "rdma_connect");
  const Told request = next_event(channel);
  require(request.type == RDMA_CM_EVENT_CONNECT_REQUEST, "no request");
  const IdPointer passive(request.id);
  create_qp(passive.get());
  std::uint64_t received = 0;
  ibv_mr* const into = rdma_reg_msgs(passive.get(), &received, sizeof received);
  require(into != nullptr, "rdma_reg_msgs");
  succeed(rdma_post_recv(passive.get(), nullptr, &received, sizeof received, into), "rdma_post_recv");
  succeed(rdma_accept(passive.get(), &parameters), "rdma_accept");
  expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
  expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);

  std::uint64_t sent = 0x1234567890;
  ibv_mr* const from = rdma_reg_msgs(active.get(), &sent, sizeof sent);
  require(from != nullptr, "rdma_reg_msgs");
  succeed(rdma_post_send(active.get(), nullptr, &sent, sizeof sent, from, 0), "rdma_post_send");
  ibv_wc completion{};
  require(rdma_get_recv_comp(passive.get(), &completion) == 1 && completion.status == IBV_WC_SUCCESS, "no message");
  require(received == sent, "another message");
  require(rdma_get_send_comp(active.get(), &completion) == 1 && completion.status == IBV_WC_SUCCESS, "no completion");
  rdma_dereg_mr(from);
  rdma_dereg_mr(into);
  succeed(rdma_disconnect(active.get()), "rdma_disconnect");
  expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
  succeed(rdma_disconnect(passive.get()), "rdma_disconnect");
  expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
}

// Runs `body` in a child; whatever becomes of it is this process' business.
void in_child(const char* what, const std::function<void()>& body) {
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child == 0) {
    body();
    std::exit(0);
  }
  int status = 0;
  require(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, what);
}

// The parent ends by exit(), with all that it does to the library; what goes on has inherited it, and starts anew.
void daemonized(const std::string& local) {
  int told[2];
  succeed(pipe(told), "pipe");
  in_child("the program that becomes a daemon", [&] {
    whole_life(local);
    const Channel inherited = open_channel();
    if (fork() != 0) std::exit(0);
    setsid();
    whole_life(local);
    require(write(told[1], "d", 1) == 1, "write");
    std::exit(0);
  });
  close(told[1]);
  char done = 0;
  require(read(told[0], &done, 1) == 1 && done == 'd', "the daemon did not come to its end");
  close(told[0]);
}

// Opened by root, used by somebody else, as servers do.
void unprivileged(const std::string& local) {
  in_child("the program that gives up its privileges", [&] {
    const Channel channel = open_channel();
    const IdPointer id = make_id(channel);
    succeed(rdma_bind_addr(id.get(), Address(local, 0).get()), "rdma_bind_addr");
    succeed(setgroups(0, nullptr), "setgroups");
    succeed(setgid(kOrdinaryUser), "setgid");
    succeed(setuid(kOrdinaryUser), "setuid");
    succeed(rdma_listen(id.get(), 1), "rdma_listen");
    whole_life(local);
  });
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
