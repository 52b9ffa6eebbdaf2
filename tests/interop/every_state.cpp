#include "interop/every_state.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "clients/cm_client.h"

namespace ucm::test {

std::string result_text(int result) {
  if (result == 0) return "0";
  const char* name = strerrorname_np(errno);
  return result == -1 ? (name != nullptr ? name : std::to_string(errno)) : "returned " + std::to_string(result);
}

namespace {

constexpr int kEventPatienceMs = 120'000;
// A call that has not returned by then waits for something that will not come.
constexpr int kCallPatienceMs = 3'000;
constexpr int kResolveMs = 5'000;

// --- IDs ------------------------------------------------------------------------------------------------------------

// The ID in question, and whatever it needs.
class Scene {
 public:
  explicit Scene(std::string own_address) : address(std::move(own_address)) {}
  ~Scene() {
    if (own_qp != nullptr) ibv_destroy_qp(own_qp);
    if (id != nullptr) rdma_destroy_ep(id);
    for (rdma_cm_id* other : others) rdma_destroy_ep(other);
    if (own_cq != nullptr) ibv_destroy_cq(own_cq);
    if (own_pd != nullptr) ibv_dealloc_pd(own_pd);
    for (rdma_event_channel* channel : channels) rdma_destroy_event_channel(channel);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  rdma_event_channel* new_channel() {
    channels.push_back(rdma_create_event_channel());
    require(channels.back() != nullptr, "rdma_create_event_channel");
    return channels.back();
  }

  rdma_cm_id* new_id(rdma_event_channel* channel) {
    rdma_cm_id* made = nullptr;
    succeed(rdma_create_id(channel, &made, nullptr, space), "rdma_create_id");
    return made;
  }

  const std::string address;
  rdma_port_space space = RDMA_PS_TCP;
  rdma_cm_id* id = nullptr;
  std::vector<rdma_cm_id*> others;  // destroyed in this order
  std::vector<rdma_event_channel*> channels;
  ibv_pd* own_pd = nullptr;
  ibv_cq* own_cq = nullptr;
  ibv_qp* own_qp = nullptr;
};

// The next event of the channel, which must be this one; returns its ID.
rdma_cm_id* await(rdma_event_channel* channel, rdma_cm_event_type type) {
  pollfd ready{channel->fd, POLLIN, 0};
  require(poll(&ready, 1, kEventPatienceMs) > 0, std::string("no event; awaited: ") + rdma_event_str(type));
  const Told told = next_event_of(channel);
  require(told.type == type, std::string(rdma_event_str(told.type)) + " instead of " + rdma_event_str(type));
  return told.id;
}

void bind_to(rdma_cm_id* id, const std::string& address) {
  Address local(address, 0);
  succeed(rdma_bind_addr(id, local.get()), "rdma_bind_addr");
}

rdma_cm_id* listener(Scene& scene, rdma_event_channel* channel) {
  rdma_cm_id* const made = scene.new_id(channel);
  bind_to(made, scene.address);
  succeed(rdma_listen(made, 4), "rdma_listen");
  return made;
}

void resolve_to(rdma_cm_id* id, const std::string& address, std::uint16_t port) {
  Address to(address, port);
  succeed(rdma_resolve_addr(id, nullptr, to.get(), kResolveMs), "rdma_resolve_addr");
}

// An ID that has resolved the way to a listener, and has its QP.
rdma_cm_id* ready(Scene& scene, rdma_event_channel* channel, rdma_cm_id* to) {
  rdma_cm_id* const made = scene.new_id(channel);
  resolve_to(made, scene.address, ntohs(rdma_get_src_port(to)));
  await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  succeed(rdma_resolve_route(made, kResolveMs), "rdma_resolve_route");
  await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  create_qp(made);
  return made;
}

int connect_plainly(rdma_cm_id* id) {
  rdma_conn_param param{};
  param.responder_resources = param.initiator_depth = 1;
  param.retry_count = param.rnr_retry_count = 7;
  return rdma_connect(id, &param);
}

void accept_plainly(rdma_cm_id* id) {
  rdma_conn_param param{};
  param.responder_resources = param.initiator_depth = 1;
  param.rnr_retry_count = 7;
  succeed(rdma_accept(id, &param), "rdma_accept");
}

enum class Until { kReady, kRequested, kAccepted, kEstablished };

// Two IDs on the way to a connection; `first` asks, `second` is asked.
struct Couple {
  rdma_event_channel* first_channel = nullptr;
  rdma_event_channel* second_channel = nullptr;
  rdma_cm_id* first = nullptr;
  rdma_cm_id* second = nullptr;
};

Couple couple(Scene& scene, Until until) {
  Couple two;
  two.first_channel = scene.new_channel();
  two.second_channel = scene.new_channel();
  rdma_cm_id* const listening = listener(scene, two.second_channel);
  two.first = ready(scene, two.first_channel, listening);
  if (until >= Until::kRequested) {
    succeed(connect_plainly(two.first), "rdma_connect");
    two.second = await(two.second_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    create_qp(two.second);
  }
  if (until >= Until::kAccepted) accept_plainly(two.second);
  if (until >= Until::kEstablished) {
    await(two.first_channel, RDMA_CM_EVENT_ESTABLISHED);
    if (scene.space == RDMA_PS_TCP) await(two.second_channel, RDMA_CM_EVENT_ESTABLISHED);
  }
  scene.others.push_back(listening);
  return two;
}

void take_first(Scene& scene, const Couple& two) {
  scene.id = two.first;
  if (two.second != nullptr) scene.others.insert(scene.others.begin(), two.second);
}

void take_second(Scene& scene, const Couple& two) {
  scene.id = two.second;
  scene.others.insert(scene.others.begin(), two.first);
}

void make_idle(Scene& scene) { scene.id = scene.new_id(scene.new_channel()); }

void make_bound(Scene& scene) {
  make_idle(scene);
  bind_to(scene.id, scene.address);
}

void make_bound_anywhere(Scene& scene) {
  make_idle(scene);
  bind_to(scene.id, "0.0.0.0");
}

void make_listening(Scene& scene) { scene.id = listener(scene, scene.new_channel()); }

void make_address_resolved(Scene& scene) {
  make_idle(scene);
  resolve_to(scene.id, scene.address, 7999);
  await(scene.id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
}

void make_route_resolved(Scene& scene) {
  make_address_resolved(scene);
  succeed(rdma_resolve_route(scene.id, kResolveMs), "rdma_resolve_route");
  await(scene.id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void make_ready(Scene& scene) { take_first(scene, couple(scene, Until::kReady)); }
void make_connecting(Scene& scene) { take_first(scene, couple(scene, Until::kRequested)); }
void make_requested(Scene& scene) { take_second(scene, couple(scene, Until::kRequested)); }
void make_accepted(Scene& scene) { take_second(scene, couple(scene, Until::kAccepted)); }
void make_established(Scene& scene) { take_first(scene, couple(scene, Until::kEstablished)); }
void make_established_passive(Scene& scene) { take_second(scene, couple(scene, Until::kEstablished)); }

// Answered, with a QP that the program brings up by itself.
void make_answered(Scene& scene) {
  rdma_event_channel* const passive = scene.new_channel();
  rdma_cm_id* const listening = listener(scene, passive);
  make_idle(scene);
  resolve_to(scene.id, scene.address, ntohs(rdma_get_src_port(listening)));
  await(scene.id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  succeed(rdma_resolve_route(scene.id, kResolveMs), "rdma_resolve_route");
  await(scene.id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  scene.own_pd = ibv_alloc_pd(scene.id->verbs);
  scene.own_cq = ibv_create_cq(scene.id->verbs, 4, nullptr, nullptr, 0);
  require(scene.own_pd != nullptr && scene.own_cq != nullptr, "ibv_create_cq");
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = scene.own_cq;
  wanted.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  wanted.qp_type = IBV_QPT_RC;
  scene.own_qp = ibv_create_qp(scene.own_pd, &wanted);
  require(scene.own_qp != nullptr, "ibv_create_qp");
  rdma_conn_param param{};
  param.qp_num = scene.own_qp->qp_num;
  succeed(rdma_connect(scene.id, &param), "rdma_connect");
  rdma_cm_id* const second = await(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
  create_qp(second);
  accept_plainly(second);
  await(scene.id->channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
  scene.others = {second, listening};
}

void make_disconnecting(Scene& scene) {
  make_established(scene);
  succeed(rdma_disconnect(scene.id), "rdma_disconnect");
}

void make_asked_to_disconnect(Scene& scene) {
  make_established(scene);
  succeed(rdma_disconnect(scene.others.front()), "rdma_disconnect");
  await(scene.id->channel, RDMA_CM_EVENT_DISCONNECTED);
}

void make_disconnected(Scene& scene) {
  make_established(scene);
  const Couple two{scene.channels[0], scene.channels[1], scene.id, scene.others.front()};
  succeed(rdma_disconnect(two.first), "rdma_disconnect");
  await(two.second_channel, RDMA_CM_EVENT_DISCONNECTED);
  succeed(rdma_disconnect(two.second), "rdma_disconnect");
  await(two.first_channel, RDMA_CM_EVENT_DISCONNECTED);
}

void make_rejected(Scene& scene) {
  make_connecting(scene);
  succeed(rdma_reject(scene.others.front(), nullptr, 0), "rdma_reject");
  await(scene.id->channel, scene.space == RDMA_PS_TCP ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE);
}

void make_synchronous(Scene& scene) { scene.id = scene.new_id(nullptr); }

void make_synchronous_bound(Scene& scene) {
  make_synchronous(scene);
  bind_to(scene.id, scene.address);
}

void make_synchronous_listening(Scene& scene) {
  make_synchronous_bound(scene);
  succeed(rdma_listen(scene.id, 4), "rdma_listen");
}

void make_synchronous_ready(Scene& scene) {
  scene.others.push_back(listener(scene, scene.new_channel()));
  make_synchronous(scene);
  resolve_to(scene.id, scene.address, ntohs(rdma_get_src_port(scene.others.front())));
  succeed(rdma_resolve_route(scene.id, kResolveMs), "rdma_resolve_route");
  create_qp(scene.id);
}

void make_synchronous_established(Scene& scene) {
  make_synchronous_ready(scene);
  std::thread connecting([&] { succeed(connect_plainly(scene.id), "rdma_connect"); });
  rdma_cm_id* const second = await(scene.channels.front(), RDMA_CM_EVENT_CONNECT_REQUEST);
  create_qp(second);
  accept_plainly(second);
  connecting.join();
  await(scene.channels.front(), RDMA_CM_EVENT_ESTABLISHED);
  scene.others.insert(scene.others.begin(), second);
}

struct State {
  const char* name;
  void (*make)(Scene& scene);
  rdma_port_space space = RDMA_PS_TCP;
};

constexpr std::array kStates{
    State{"idle", make_idle},
    State{"bound", make_bound},
    State{"bound to any", make_bound_anywhere},
    State{"listening", make_listening},
    State{"address resolved", make_address_resolved},
    State{"route resolved", make_route_resolved},
    State{"ready", make_ready},
    State{"connecting", make_connecting},
    State{"answered", make_answered},
    State{"requested", make_requested},
    State{"accepted", make_accepted},
    State{"established", make_established},
    State{"established (passive)", make_established_passive},
    State{"disconnecting", make_disconnecting},
    State{"asked to disconnect", make_asked_to_disconnect},
    State{"disconnected", make_disconnected},
    State{"rejected", make_rejected},
    State{"synchronous", make_synchronous},
    State{"synchronous bound", make_synchronous_bound},
    State{"synchronous listening", make_synchronous_listening},
    State{"synchronous ready", make_synchronous_ready},
    State{"synchronous established", make_synchronous_established},
    State{"UDP", make_idle, RDMA_PS_UDP},
    State{"UDP bound", make_bound, RDMA_PS_UDP},
    State{"UDP listening", make_listening, RDMA_PS_UDP},
    State{"UDP route resolved", make_route_resolved, RDMA_PS_UDP},
    State{"UDP ready", make_ready, RDMA_PS_UDP},
    State{"UDP connecting", make_connecting, RDMA_PS_UDP},
    State{"UDP requested", make_requested, RDMA_PS_UDP},
    State{"UDP accepted", make_accepted, RDMA_PS_UDP},
    State{"UDP established", make_established, RDMA_PS_UDP},
    State{"UDP rejected", make_rejected, RDMA_PS_UDP},
};

// Of calls in which rdma-core's library takes the device of an ID without asking whether it has one.
constexpr const char* kNoDevice = "no device";

std::string with_device(const Scene& scene, const std::function<int()>& call) {
  return scene.id->verbs == nullptr ? kNoDevice : result_text(call());
}

template <class Value>
std::string set_option(Scene& scene, int name, Value value) {
  return result_text(rdma_set_option(scene.id, RDMA_OPTION_ID, name, &value, sizeof(value)));
}

std::string attributes(Scene& scene, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  int mask = 0;
  return result_text(rdma_init_qp_attr(scene.id, &attr, &mask));
}

std::string join(Scene& scene, bool extended) {
  Address group("224.1.2.3", 0);
  if (!extended) return result_text(rdma_join_multicast(scene.id, group.get(), nullptr));
  rdma_cm_join_mc_attr_ex wanted{};
  wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  wanted.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
  wanted.addr = group.get();
  return result_text(rdma_join_multicast_ex(scene.id, &wanted, nullptr));
}

std::string make_qp(Scene& scene, bool extended) {
  if (scene.id->verbs == nullptr) return kNoDevice;
  ibv_qp_cap cap{.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  if (extended) {
    ibv_qp_init_attr_ex wanted{};
    wanted.cap = cap;
    wanted.qp_type = scene.id->qp_type;
    return result_text(rdma_create_qp_ex(scene.id, &wanted));
  }
  ibv_qp_init_attr wanted{};
  wanted.cap = cap;
  wanted.qp_type = scene.id->qp_type;
  return result_text(rdma_create_qp(scene.id, nullptr, &wanted));
}

std::string make_srq(Scene& scene, bool extended) {
  if (scene.id->verbs == nullptr) return kNoDevice;
  if (extended) {
    ibv_srq_init_attr_ex wanted{};
    wanted.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    return result_text(rdma_create_srq_ex(scene.id, &wanted));
  }
  ibv_srq_init_attr wanted{};
  wanted.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  return result_text(rdma_create_srq(scene.id, nullptr, &wanted));
}

std::string migrate(Scene& scene) { return result_text(rdma_migrate_id(scene.id, scene.new_channel())); }

std::string next_event_now(Scene& scene) {
  fcntl(scene.id->channel->fd, F_SETFL, O_NONBLOCK);
  rdma_cm_event* event = nullptr;
  const int result = rdma_get_cm_event(scene.id->channel, &event);
  if (result != 0) return result_text(result);
  const std::string text = rdma_event_str(event->event) + 14;
  rdma_ack_cm_event(event);
  return text;
}

std::string destroy(Scene& scene) {
  if (scene.id->qp != nullptr) rdma_destroy_qp(scene.id);
  return result_text(rdma_destroy_id(std::exchange(scene.id, nullptr)));
}

std::string request(Scene& scene) {
  rdma_cm_id* made = nullptr;
  const int result = rdma_get_request(scene.id, &made);
  if (made != nullptr) scene.others.insert(scene.others.begin(), made);
  return result_text(result);
}

std::string ece(Scene& scene, int (*call)(rdma_cm_id*, ibv_ece*)) {
  ibv_ece value{.vendor_id = 0x1234, .options = 1, .comp_mask = 0};
  return result_text(call(scene.id, &value));
}

// With a registered buffer; what rdma_verbs.h has in line needs a QP.
std::string with_memory(Scene& scene, const std::function<int(void*, std::size_t, ibv_mr*)>& use) {
  if (scene.id->qp == nullptr || scene.id->qp->qp_type != IBV_QPT_RC) return "no QP";
  std::vector<std::uint8_t> bytes(64);
  ibv_mr* const region = rdma_reg_msgs(scene.id, bytes.data(), bytes.size());
  if (region == nullptr) return result_text(-1);
  const std::string text = result_text(use(bytes.data(), bytes.size(), region));
  if (scene.id->qp != nullptr) rdma_destroy_qp(scene.id);
  rdma_dereg_mr(region);
  return text;
}

std::string region(Scene& scene, ibv_mr* (*call)(rdma_cm_id*, void*, std::size_t)) {
  if (scene.id->pd == nullptr) return "no PD";
  std::vector<std::uint8_t> bytes(64);
  ibv_mr* const made = call(scene.id, bytes.data(), bytes.size());
  return made == nullptr ? result_text(-1) : result_text(rdma_dereg_mr(made));
}

std::string set(__be16 port) { return port != 0 ? "a port" : "0"; }

using Call = std::function<std::string(Scene&)>;

const std::map<std::string, Call>& calls_of_ids() {
  static const std::map<std::string, Call> calls = {
      {"bind_addr",
       [](Scene& s) {
         Address local(s.address, 0);
         return result_text(rdma_bind_addr(s.id, local.get()));
       }},
      {"bind_addr null", [](Scene& s) { return result_text(rdma_bind_addr(s.id, nullptr)); }},
      {"resolve_addr",
       [](Scene& s) {
         Address to(s.address, 7999);
         return result_text(rdma_resolve_addr(s.id, nullptr, to.get(), kResolveMs));
       }},
      {"resolve_addr null",
       [](Scene& s) { return result_text(rdma_resolve_addr(s.id, nullptr, nullptr, kResolveMs)); }},
      {"resolve_route", [](Scene& s) { return with_device(s, [&] { return rdma_resolve_route(s.id, kResolveMs); }); }},
      {"listen", [](Scene& s) { return result_text(rdma_listen(s.id, 4)); }},
      {"get_request", request},
      {"connect", [](Scene& s) { return with_device(s, [&] { return connect_plainly(s.id); }); }},
      {"connect null", [](Scene& s) { return with_device(s, [&] { return rdma_connect(s.id, nullptr); }); }},
      {"accept",
       [](Scene& s) {
         rdma_conn_param param{};
         param.responder_resources = param.initiator_depth = 1;
         return with_device(s, [&] { return rdma_accept(s.id, &param); });
       }},
      {"reject", [](Scene& s) { return result_text(rdma_reject(s.id, nullptr, 0)); }},
      {"reject_ece", [](Scene& s) { return result_text(rdma_reject_ece(s.id, nullptr, 0)); }},
      {"establish", [](Scene& s) { return result_text(rdma_establish(s.id)); }},
      {"notify", [](Scene& s) { return result_text(rdma_notify(s.id, IBV_EVENT_COMM_EST)); }},
      {"notify other", [](Scene& s) { return result_text(rdma_notify(s.id, IBV_EVENT_QP_LAST_WQE_REACHED)); }},
      {"disconnect", [](Scene& s) { return result_text(rdma_disconnect(s.id)); }},
      {"set_option TOS", [](Scene& s) { return set_option(s, RDMA_OPTION_ID_TOS, std::uint8_t{8}); }},
      {"set_option REUSEADDR", [](Scene& s) { return set_option(s, RDMA_OPTION_ID_REUSEADDR, 1); }},
      {"set_option AFONLY", [](Scene& s) { return set_option(s, RDMA_OPTION_ID_AFONLY, 1); }},
      {"set_option ACK_TIMEOUT", [](Scene& s) { return set_option(s, RDMA_OPTION_ID_ACK_TIMEOUT, std::uint8_t{14}); }},
      {"migrate_id", migrate},
      {"create_qp", [](Scene& s) { return make_qp(s, false); }},
      {"create_qp_ex", [](Scene& s) { return make_qp(s, true); }},
      {"destroy_qp",
       [](Scene& s) -> std::string {
         if (s.id->qp == nullptr) return "no QP";
         rdma_destroy_qp(s.id);
         return s.id->qp == nullptr ? "0" : "still there";
       }},
      {"init_qp_attr INIT", [](Scene& s) { return attributes(s, IBV_QPS_INIT); }},
      {"init_qp_attr RTR", [](Scene& s) { return attributes(s, IBV_QPS_RTR); }},
      {"init_qp_attr RTS", [](Scene& s) { return attributes(s, IBV_QPS_RTS); }},
      {"create_srq", [](Scene& s) { return make_srq(s, false); }},
      {"create_srq_ex", [](Scene& s) { return make_srq(s, true); }},
      {"destroy_srq",
       [](Scene& s) -> std::string {
         if (const std::string made = make_srq(s, false); made != "0") return made;
         rdma_destroy_srq(s.id);
         return s.id->srq == nullptr ? "0" : "still there";
       }},
      {"join_multicast", [](Scene& s) { return join(s, false); }},
      {"join_multicast_ex", [](Scene& s) { return join(s, true); }},
      {"leave_multicast",
       [](Scene& s) {
         Address group("224.1.2.3", 0);
         return result_text(rdma_leave_multicast(s.id, group.get()));
       }},
      {"get_src_port", [](Scene& s) { return set(rdma_get_src_port(s.id)); }},
      {"get_dst_port", [](Scene& s) { return set(rdma_get_dst_port(s.id)); }},
      {"set_local_ece", [](Scene& s) { return ece(s, rdma_set_local_ece); }},
      {"get_remote_ece", [](Scene& s) { return ece(s, rdma_get_remote_ece); }},
      {"get_cm_event", next_event_now},
      {"destroy_id", destroy},
      {"destroy_ep",
       [](Scene& s) -> std::string {
         rdma_destroy_ep(std::exchange(s.id, nullptr));
         return "0";
       }},
      {"reg_msgs", [](Scene& s) { return region(s, rdma_reg_msgs); }},
      {"reg_read", [](Scene& s) { return region(s, rdma_reg_read); }},
      {"reg_write", [](Scene& s) { return region(s, rdma_reg_write); }},
      {"post_recv",
       [](Scene& s) {
         return with_memory(
             s, [&](void* at, std::size_t size, ibv_mr* mr) { return rdma_post_recv(s.id, nullptr, at, size, mr); });
       }},
      {"post_send",
       [](Scene& s) {
         return with_memory(s, [&](void* at, std::size_t size, ibv_mr* mr) {
           return rdma_post_send(s.id, nullptr, at, size, mr, IBV_SEND_SIGNALED);
         });
       }},
      {"post_read",
       [](Scene& s) {
         return with_memory(s, [&](void* at, std::size_t size, ibv_mr* mr) {
           return rdma_post_read(s.id, nullptr, at, size, mr, 0, 0, 0);
         });
       }},
      {"post_write",
       [](Scene& s) {
         return with_memory(s, [&](void* at, std::size_t size, ibv_mr* mr) {
           return rdma_post_write(s.id, nullptr, at, size, mr, 0, 0, 0);
         });
       }},
  };
  return calls;
}

// A signal without SA_RESTART ends a call that waits.
void interrupt_long_calls(int milliseconds) {
  struct sigaction action{};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);
  const timeval period{milliseconds / 1000, milliseconds % 1000 * 1000};
  const itimerval timer{period, period};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

template <class Make>
std::string without_waiting(Make&& call) {
  interrupt_long_calls(kCallPatienceMs);
  std::string result = call();
  interrupt_long_calls(0);
  return result == "EINTR" ? "waits" : result;
}

// --- The results of all states in one line
// ----------------------------------------------------------------------------

using Results = std::vector<std::pair<std::string, std::string>>;  // state, result

std::string grouped(const Results& results) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const auto& [state, result] : results) {
    auto group = std::ranges::find_if(groups, [&](const auto& known) { return known.first == result; });
    if (group == groups.end()) group = groups.insert(groups.end(), {result, {}});
    group->second.push_back(state);
  }
  const auto most = std::ranges::max_element(groups, {}, [](const auto& group) { return group.second.size(); });
  std::string text;
  for (const auto& group : groups) {
    if (&group == &*most) continue;
    text += group.first + ":";
    for (const std::string& state : group.second) text += (&state == &group.second.front() ? " " : ", ") + state;
    text += "; ";
  }
  return text + (groups.size() > 1 ? "otherwise " : "") + most->first;
}

}  // namespace

std::string in_every_state(const std::string& call, const std::string& address) {
  const auto found = calls_of_ids().find(call);
  require(found != calls_of_ids().end(), "no call " + call);
  Results results;
  // A program of Linux that refuses its own request is not let go of by the kernel any more.
  for (const State& state : kStates) {
    if (call.starts_with("reject") && state.make == make_connecting && state.space == RDMA_PS_TCP) continue;
    Scene scene(address);
    scene.space = state.space;
    state.make(scene);
    results.emplace_back(state.name, without_waiting([&] { return found->second(scene); }));
  }
  return grouped(results);
}

}  // namespace ucm::test
