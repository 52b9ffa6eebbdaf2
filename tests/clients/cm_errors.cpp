// cm_errors LOCAL [SILENT]: what rdma_cm says when things go wrong.
//
// LOCAL is an address of this host, SILENT one in a connected network that nobody has.
#include <chrono>

#include "cm_client.h"

using namespace ucm::test;

namespace {

constexpr std::uint16_t kFreePort = 7999;
constexpr std::uint16_t kListenPort = 7998;

using Clock = std::chrono::steady_clock;

void nobody_listens(const std::string& local) {
  const Channel channel = open_channel();
  const IdPointer id = make_id(channel);
  resolve(channel, id.get(), Address(local, kFreePort));
  create_qp(id.get());
  const auto started = Clock::now();
  succeed(rdma_connect(id.get(), nullptr), "rdma_connect");
  expect_event(channel, RDMA_CM_EVENT_REJECTED, 8);  // invalid service ID
  require(Clock::now() - started < std::chrono::seconds(1), "REJECTED took longer than a second");
  expect_errno(rdma_connect(id.get(), nullptr), EINVAL, "connecting a rejected ID again");
}

void nobody_listens_synchronously(const std::string& local) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  require(rdma_getaddrinfo(local.c_str(), std::to_string(kFreePort).c_str(), &hints, &info) == 0, "rdma_getaddrinfo");
  ibv_qp_init_attr attributes{};
  attributes.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  rdma_cm_id* id = nullptr;
  succeed(rdma_create_ep(&id, info, nullptr, &attributes), "rdma_create_ep");
  rdma_freeaddrinfo(info);
  expect_errno(rdma_connect(id, nullptr), ECONNREFUSED, "synchronous connect where nobody listens");
  rdma_destroy_ep(id);
}

void no_neighbour(const std::string& silent) {
  const Channel channel = open_channel();
  const IdPointer id = make_id(channel);
  Address to(silent, kFreePort);
  const auto started = Clock::now();
  succeed(rdma_resolve_addr(id.get(), nullptr, to.get(), 500), "rdma_resolve_addr");
  expect_event(channel, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
  require(Clock::now() - started >= std::chrono::milliseconds(450), "ADDR_ERROR came before the time was over");
}

void addresses(const std::string& local) {
  const Channel channel = open_channel();
  const IdPointer first = make_id(channel);
  const IdPointer second = make_id(channel);
  Address taken(local, kListenPort);
  succeed(rdma_bind_addr(first.get(), taken.get()), "rdma_bind_addr");
  require(ntohs(rdma_get_src_port(first.get())) == kListenPort, "the port asked for");
  expect_errno(rdma_bind_addr(first.get(), taken.get()), EINVAL, "binding twice");
  expect_errno(rdma_bind_addr(second.get(), taken.get()), EADDRINUSE, "binding a port in use");
  Address foreign("192.0.2.77", 0);
  expect_errno(rdma_bind_addr(second.get(), foreign.get()), EADDRNOTAVAIL, "binding an address of nobody here");
  Address any_port(local, 0);
  succeed(rdma_bind_addr(second.get(), any_port.get()), "binding any port");
  require(rdma_get_src_port(second.get()) != 0, "a port for port 0");
  succeed(rdma_listen(second.get(), 0), "rdma_listen");
  expect_errno(rdma_resolve_route(second.get(), 100), EINVAL, "resolving the route of a listener");
}

void order_of_calls(const std::string& local) {
  const Channel channel = open_channel();
  const IdPointer id = make_id(channel);
  rdma_conn_param param{};
  expect_errno(rdma_connect(id.get(), &param), EINVAL, "connect before resolution");
  expect_errno(rdma_accept(id.get(), &param), EINVAL, "accept without request");
  expect_errno(rdma_resolve_route(id.get(), 100), EINVAL, "route before address");
  expect_errno(rdma_disconnect(id.get()), EINVAL, "disconnect before connect");
  resolve(channel, id.get(), Address(local, kFreePort));
  expect_errno(rdma_connect(id.get(), nullptr), EINVAL, "connect without QP and parameters");
  char data[57] = {};
  create_qp(id.get());
  param.private_data = data;
  param.private_data_len = sizeof(data);
  expect_errno(rdma_connect(id.get(), &param), EINVAL, "57 bytes of private data");
  param.private_data_len = 56;
  succeed(rdma_connect(id.get(), &param), "56 bytes of private data");
  expect_event(channel, RDMA_CM_EVENT_REJECTED, 8);
}

void rejected_by_the_program(const std::string& local) {
  const Channel channel = open_channel();
  const IdPointer listener = make_id(channel);
  Address at(local, kListenPort);
  succeed(rdma_bind_addr(listener.get(), at.get()), "rdma_bind_addr");
  succeed(rdma_listen(listener.get(), 4), "rdma_listen");
  const Channel client_channel = open_channel();
  const IdPointer client = make_id(client_channel);
  resolve(client_channel, client.get(), Address(local, kListenPort));
  create_qp(client.get());
  succeed(rdma_connect(client.get(), nullptr), "rdma_connect");
  const Told request = next_event(channel);
  require(request.type == RDMA_CM_EVENT_CONNECT_REQUEST, "CONNECT_REQUEST");
  const IdPointer server(request.id);
  char too_long[149] = {};
  expect_errno(rdma_reject(server.get(), too_long, sizeof(too_long)), EINVAL, "149 bytes of private data in a reject");
  succeed(rdma_reject(server.get(), "busy", 4), "rdma_reject");
  rdma_cm_event* event = nullptr;
  succeed(rdma_get_cm_event(client_channel.get(), &event), "rdma_get_cm_event");
  require(event->event == RDMA_CM_EVENT_REJECTED && event->status == 28, "REJECTED 28");
  require(event->param.conn.private_data_len == 148 && std::memcmp(event->param.conn.private_data, "busy", 5) == 0,
          "the reject's private data");
  rdma_ack_cm_event(event);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) die("usage: cm_errors LOCAL [SILENT]");
  const std::string local = argv[1];
  nobody_listens(local);
  nobody_listens_synchronously(local);
  addresses(local);
  order_of_calls(local);
  rejected_by_the_program(local);
  if (argc > 2) no_neighbour(argv[2]);
  std::puts("all errors as expected");
  return 0;
}
