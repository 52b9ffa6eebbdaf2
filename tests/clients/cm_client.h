// What our own client programs share: calls that end the program with a message when they fail, and RAII for rdma_cm.
#pragma once

#include <arpa/inet.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace ucm::test {

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "failed: %s\n", what.c_str());
  std::exit(1);
}

inline void require(bool condition, const std::string& what) {
  if (!condition) die(what);
}

// For calls of the -1-and-errno kind.
inline void succeed(int result, const char* what) {
  if (result != 0) die(std::string(what) + ": " + std::strerror(errno));
}

// The end of a child that hangs.
inline constexpr unsigned kHangs_s = 30;

// Runs `body` in a child, which ends without the program's exit handlers unless it calls them.
template <class Body>
pid_t in_child(Body&& body) {
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child != 0) return child;
  alarm(kHangs_s);
  body();
  _exit(0);
}

inline void expect_success(pid_t child, const std::string& what) {
  int status = 0;
  require(waitpid(child, &status, 0) == child, "waitpid");
  require(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM, what + " hangs");
  require(status == 0, what + " failed");
}

inline void expect_errno(int result, int error, const char* what) {
  if (result == -1 && errno == error) return;
  const std::string got = result == -1 ? std::strerror(errno) : "success";
  die(std::string(what) + ": " + got + " instead of " + std::strerror(error));
}

using Channel = std::unique_ptr<rdma_event_channel, decltype(&rdma_destroy_event_channel)>;

inline Channel open_channel() {
  Channel channel(rdma_create_event_channel(), rdma_destroy_event_channel);
  if (channel == nullptr) die(std::string("rdma_create_event_channel: ") + std::strerror(errno));
  return channel;
}

struct DestroyId {
  void operator()(rdma_cm_id* id) const { rdma_destroy_ep(id); }
};
using IdPointer = std::unique_ptr<rdma_cm_id, DestroyId>;

inline IdPointer make_id(const Channel& channel, rdma_port_space port_space = RDMA_PS_TCP) {
  rdma_cm_id* id = nullptr;
  succeed(rdma_create_id(channel.get(), &id, nullptr, port_space), "rdma_create_id");
  return IdPointer(id);
}

// A numeric address, with %interface where it is link-local.
class Address {
 public:
  Address(const std::string& host, std::uint16_t port) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) die(host + ": " + gai_strerror(error));
    std::memcpy(&storage_, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return storage_.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }

 private:
  sockaddr_storage storage_{};
};

// The next event of the channel, acknowledged: its type and status.
struct Told {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;
};

inline Told next_event_of(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  succeed(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  const Told told{event->event, event->status, event->id};
  rdma_ack_cm_event(event);
  return told;
}

inline Told next_event(const Channel& channel) { return next_event_of(channel.get()); }

inline void expect_event(const Channel& channel, rdma_cm_event_type type, int status = 0) {
  const Told told = next_event(channel);
  if (told.type == type && told.status == status) return;
  die(std::string(rdma_event_str(told.type)) + " with status " + std::to_string(told.status) + " instead of " +
      rdma_event_str(type) + " with " + std::to_string(status));
}

inline void resolve(const Channel& channel, rdma_cm_id* id, Address to) {
  succeed(rdma_resolve_addr(id, nullptr, to.get(), 2000), "rdma_resolve_addr");
  expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  succeed(rdma_resolve_route(id, 2000), "rdma_resolve_route");
  expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

// Without a queue the ID gets its own.
inline void create_qp(rdma_cm_id* id, ibv_cq* queue = nullptr) {
  ibv_qp_init_attr attributes{};
  attributes.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attributes.qp_type = id->qp_type;
  attributes.send_cq = attributes.recv_cq = queue;
  attributes.sq_sig_all = 1;
  succeed(rdma_create_qp(id, nullptr, &attributes), "rdma_create_qp");
}

// One connection of this program with itself, a message over it, and its end.
inline void whole_life(const std::string& local) {
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

}  // namespace ucm::test
