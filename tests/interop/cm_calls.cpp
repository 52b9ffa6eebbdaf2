// cm_calls COMMAND…: makes rdma_cm calls one after the other and tells what each returns and what each event holds, in
// words that do not depend on the run, so that two implementations can be compared line by line. `cm_calls -` reads the
// commands from its standard input and answers each with one line.
//
//   id A [udp]                     a new ID with an event channel of its own
//   synchronous A                  a new ID without one
//   request A B                    rdma_get_request: B names the new ID
//   bind A ADDRESS PORT            addresses are numeric, with %interface where link-local
//   listen A BACKLOG
//   resolve A ADDRESS PORT [MS]    resolve_addr alone
//   route A [MS]                   resolve_route alone
//   resolved A ADDRESS PORT        both, with their events, silently when all goes well
//   option A LEVEL NAME VALUE SIZE
//   qp A                           rdma_create_qp
//   ownqp A                        a QP that only A's parameters name
//   connect|accept A [PARAM…]      null, data=N, rr=N, depth=N, retry=N, rnr=N, flow=N
//   reject|reject_ece A N          N bytes of private data
//   establish|disconnect|destroy A
//   notify A EVENT
//   attributes A STATE             of rdma_init_qp_attr: INIT, RTR, RTS
//   addresses A                    local and peer's
//   state A                        the QP's own state
//   query A                        the same and the QP's attributes
//   event A [B]                    the next event of A's channel; B names the ID of a request
//   serve A N                      accepts every request of listener A, answers disconnections; ends after N of these.
//   A
//                                  request whose client does not want it any more is forgotten
//   silence A MS                   no event of A's channel in so many milliseconds
//   migrate A B                    A's events go to B's channel from now on
//   every ADDRESS CALL             the call in every state that an ID can be in: every_state.h
//   user UID                       the process is this user's from now on
//   say TEXT, sleep MS, repeat N   (repeat: the commands after it, so many times)
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "clients/cm_client.h"
#include "interop/every_state.h"

using namespace ucm::test;

namespace {

// Long enough for anything but a lost message's repetition times the load of a busy machine.
constexpr int kEventPatienceMs = 120'000;

using Words = std::vector<std::string>;

int number(const std::string& word) { return static_cast<int>(std::stol(word, nullptr, 0)); }

// Length and content; zeros at the end are left out.
std::string data_text(const void* data, std::size_t size) {
  if (data == nullptr) return std::to_string(size) + ":null";
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::size_t used = size;
  while (used > 0 && bytes[used - 1] == 0) --used;
  std::string text = std::to_string(size) + ":";
  for (std::size_t i = 0; i < used; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", bytes[i]);
    text += hex;
  }
  return text;
}

std::vector<std::uint8_t> pattern(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i + 1);
  return bytes;
}

class Calls {
 public:
  // Returns the text of the command's result; empty when there is nothing to tell.
  std::string run(const Words& words);

 private:
  struct Named {
    rdma_event_channel* channel;
    rdma_cm_id* id;
    ibv_qp* own_qp = nullptr;
  };

  rdma_cm_id* id(const Words& words) { return named(words).id; }
  Named& named(const Words& words) {
    const auto found = ids_.find(words.at(1));
    require(found != ids_.end(), "no ID " + words.at(1));
    return found->second;
  }

  std::string create(const Words& words);
  std::string create_synchronous(const Words& words);
  std::string get_request(const Words& words);
  std::string resolved(const Words& words);
  std::string make_qp(rdma_cm_id* id);
  std::string make_own_qp(Named& who);
  std::string set_option(const Words& words);
  std::string with_parameters(const Words& words, int (*call)(rdma_cm_id*, rdma_conn_param*));
  std::string attributes(const Words& words);
  std::string qp_state(rdma_cm_id* id);
  std::string query(rdma_cm_id* id);
  std::string destroy(const Words& words);
  std::string event(const Words& words);
  std::string serve(const Named& listener, int disconnections);
  std::string event_text(const rdma_cm_event& event) const;
  bool readable(const Named& who, int timeout_ms) const;

  std::map<std::string, Named> ids_;
};

std::string Calls::create(const Words& words) {
  const bool datagrams = words.size() > 2 && words[2] == "udp";
  rdma_event_channel* channel = rdma_create_event_channel();
  require(channel != nullptr, "rdma_create_event_channel");
  rdma_cm_id* made = nullptr;
  succeed(rdma_create_id(channel, &made, nullptr, datagrams ? RDMA_PS_UDP : RDMA_PS_TCP), "rdma_create_id");
  ids_[words.at(1)] = {channel, made};
  return "";
}

// Events of a synchronous ID are the library's affair.
std::string Calls::create_synchronous(const Words& words) {
  rdma_cm_id* made = nullptr;
  succeed(rdma_create_id(nullptr, &made, nullptr, RDMA_PS_TCP), "rdma_create_id");
  ids_[words.at(1)] = {nullptr, made};
  return "";
}

std::string Calls::get_request(const Words& words) {
  rdma_cm_id* made = nullptr;
  if (rdma_get_request(id(words), &made) != 0) return result_text(-1);
  ids_[words.at(2)] = {nullptr, made};
  return "0";
}

std::string Calls::resolved(const Words& words) {
  for (const auto& [call, expected] : {std::pair{"resolve", "ADDR_RESOLVED 0"}, {"route", "ROUTE_RESOLVED 0"}}) {
    Words command = words;
    command[0] = call;
    if (call == std::string_view("route")) command.resize(2);
    const std::string result = run(command);
    if (result != "0") return result;
    const std::string told = event({"event", words[1]});
    if (told != expected) return told;
  }
  return "";
}

std::string Calls::make_qp(rdma_cm_id* id) {
  ibv_qp_init_attr wanted{};
  wanted.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  wanted.qp_type = id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
  return result_text(rdma_create_qp(id, nullptr, &wanted));
}

std::string Calls::make_own_qp(Named& who) {
  ibv_pd* const domain = ibv_alloc_pd(who.id->verbs);
  ibv_cq* const queue = ibv_create_cq(who.id->verbs, 4, nullptr, nullptr, 0);
  require(domain != nullptr && queue != nullptr, "ibv_create_cq");
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue;
  wanted.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  wanted.qp_type = IBV_QPT_RC;
  who.own_qp = ibv_create_qp(domain, &wanted);
  return who.own_qp != nullptr ? "0" : result_text(-1);
}

std::string Calls::set_option(const Words& words) {
  int value = number(words.at(4));
  return result_text(rdma_set_option(id(words), number(words.at(2)), number(words.at(3)), &value,
                                     static_cast<std::size_t>(number(words.at(5)))));
}

std::string Calls::with_parameters(const Words& words, int (*call)(rdma_cm_id*, rdma_conn_param*)) {
  rdma_conn_param param{};
  if (const ibv_qp* const own = named(words).own_qp; own != nullptr) param.qp_num = own->qp_num;
  param.responder_resources = param.initiator_depth = 1;
  param.retry_count = param.rnr_retry_count = 7;
  std::vector<std::uint8_t> data;
  bool null = false;
  const std::map<std::string_view, std::function<void(int)>> set = {
      {"data", [&](int size) { data = pattern(static_cast<std::size_t>(size)); }},
      {"rr", [&](int value) { param.responder_resources = static_cast<std::uint8_t>(value); }},
      {"depth", [&](int value) { param.initiator_depth = static_cast<std::uint8_t>(value); }},
      {"retry", [&](int value) { param.retry_count = static_cast<std::uint8_t>(value); }},
      {"rnr", [&](int value) { param.rnr_retry_count = static_cast<std::uint8_t>(value); }},
      {"flow", [&](int value) { param.flow_control = static_cast<std::uint8_t>(value); }},
  };
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (words[i] == "null") {
      null = true;
    } else {
      set.at(std::string_view(words[i]).substr(0, equals))(number(words[i].substr(equals + 1)));
    }
  }
  param.private_data = data.empty() ? nullptr : data.data();
  param.private_data_len = static_cast<std::uint8_t>(data.size());
  return result_text(call(id(words), null ? nullptr : &param));
}

// The attributes that the mask names.
std::string attributes_text(const ibv_qp_attr& attr, int mask) {
  std::ostringstream text;
  if (mask & IBV_QP_STATE) text << " state=" << attr.qp_state;
  if (mask & IBV_QP_ACCESS_FLAGS) text << " access=" << attr.qp_access_flags;
  if (mask & IBV_QP_PKEY_INDEX) text << " pkey_index=" << attr.pkey_index;
  if (mask & IBV_QP_PORT) text << " port=" << int{attr.port_num};
  if (mask & IBV_QP_QKEY) text << " qkey=0x" << std::hex << attr.qkey << std::dec;
  if (mask & IBV_QP_AV) {
    const ibv_ah_attr& ah = attr.ah_attr;
    char dgid[INET6_ADDRSTRLEN];
    text << " global=" << int{ah.is_global} << " dgid=" << inet_ntop(AF_INET6, &ah.grh.dgid, dgid, sizeof(dgid))
         << " sgid_index=" << int{ah.grh.sgid_index} << " flow_label=" << ah.grh.flow_label
         << " hop=" << int{ah.grh.hop_limit} << " tclass=" << int{ah.grh.traffic_class} << " sl=" << int{ah.sl}
         << " dlid=" << ah.dlid << " rate=" << int{ah.static_rate};
  }
  if (mask & IBV_QP_PATH_MTU) text << " mtu=" << (128 << attr.path_mtu);
  if (mask & IBV_QP_DEST_QPN) text << " dest_qpn=" << attr.dest_qp_num;
  if (mask & IBV_QP_RQ_PSN) text << " rq_psn=" << attr.rq_psn;
  if (mask & IBV_QP_SQ_PSN) text << " sq_psn=" << attr.sq_psn;
  if (mask & IBV_QP_MIN_RNR_TIMER) text << " min_rnr=" << int{attr.min_rnr_timer};
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) text << " dest_rd_atomic=" << int{attr.max_dest_rd_atomic};
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) text << " rd_atomic=" << int{attr.max_rd_atomic};
  if (mask & IBV_QP_TIMEOUT) text << " timeout=" << int{attr.timeout};
  if (mask & IBV_QP_RETRY_CNT) text << " retry=" << int{attr.retry_cnt};
  if (mask & IBV_QP_RNR_RETRY) text << " rnr=" << int{attr.rnr_retry};
  return text.str();
}

std::string Calls::attributes(const Words& words) {
  const std::map<std::string, ibv_qp_state> states = {
      {"INIT", IBV_QPS_INIT}, {"RTR", IBV_QPS_RTR}, {"RTS", IBV_QPS_RTS}, {"SQD", IBV_QPS_SQD}};
  ibv_qp_attr attr{};
  attr.qp_state = states.at(words.at(2));
  int mask = 0;
  if (rdma_init_qp_attr(id(words), &attr, &mask) != 0) return result_text(-1);
  std::ostringstream text;
  text << "mask=0x" << std::hex << mask << attributes_text(attr, mask);
  return text.str();
}

std::string address_text(sockaddr* address, const char* port_name) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int error = getnameinfo(address, sizeof(sockaddr_in6), host, sizeof(host), port, sizeof(port),
                                NI_NUMERICHOST | NI_NUMERICSERV);
  return error != 0 ? "none" : std::string(host) + " " + port_name + "=" + port;
}

std::string addresses_text(rdma_cm_id* id) {
  return "from " + address_text(rdma_get_local_addr(id), "local_port") + " to " +
         address_text(rdma_get_peer_addr(id), "peer_port");
}

std::string Calls::qp_state(rdma_cm_id* id) {
  if (id->qp == nullptr) return "no QP";
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int error = ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init);
  const char* const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return error != 0 ? strerrorname_np(error) : names[attr.qp_state];
}

// With the last of a channel's IDs goes the channel.
std::string Calls::destroy(const Words& words) {
  const Named gone = named(words);
  ids_.erase(words.at(1));
  if (gone.id->qp != nullptr) rdma_destroy_qp(gone.id);
  std::string text = result_text(rdma_destroy_id(gone.id));
  const auto has_channel = [&](const auto& entry) { return entry.second.channel == gone.channel; };
  if (gone.channel != nullptr && std::none_of(ids_.begin(), ids_.end(), has_channel))
    rdma_destroy_event_channel(gone.channel);
  return text;
}

// What the QP of a connection was brought up with, as the device tells.
std::string Calls::query(rdma_cm_id* id) {
  if (id->qp == nullptr) return "no QP";
  constexpr int kMask = IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_SQ_PSN | IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MAX_QP_RD_ATOMIC |
                        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int error = ibv_query_qp(id->qp, &attr, kMask | IBV_QP_STATE, &init);
  return error != 0 ? strerrorname_np(error) : qp_state(id) + attributes_text(attr, kMask);
}

bool Calls::readable(const Named& who, int timeout_ms) const {
  pollfd ready{who.channel->fd, POLLIN, 0};
  return poll(&ready, 1, timeout_ms) > 0;
}

std::string Calls::event_text(const rdma_cm_event& event) const {
  std::string_view name = rdma_event_str(event.event);
  name.remove_prefix(std::string_view("RDMA_CM_EVENT_").size());
  std::string text = std::string(name) + " " + std::to_string(event.status);
  const rdma_conn_param& conn = event.param.conn;
  if (event.event == RDMA_CM_EVENT_ADDR_RESOLVED || event.event == RDMA_CM_EVENT_ROUTE_RESOLVED) return text;
  if (event.id->ps == RDMA_PS_UDP) {
    const rdma_ud_param& ud = event.param.ud;
    if (ud.private_data_len > 0) text += " data=" + data_text(ud.private_data, ud.private_data_len);
    if (ud.qkey != 0) text += " qkey=" + std::to_string(ud.qkey);
    return text;
  }
  if (conn.private_data_len > 0) text += " data=" + data_text(conn.private_data, conn.private_data_len);
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST || conn.qp_num != 0) {
    std::ostringstream more;
    more << " rr=" << int{conn.responder_resources} << " depth=" << int{conn.initiator_depth}
         << " flow=" << int{conn.flow_control} << " retry=" << int{conn.retry_count}
         << " rnr=" << int{conn.rnr_retry_count} << " srq=" << int{conn.srq} << " qpn=" << conn.qp_num;
    text += more.str();
  }
  return text;
}

std::string Calls::event(const Words& words) {
  const Named who = named(words);
  if (!readable(who, kEventPatienceMs)) return "no event";
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(who.channel, &event) != 0) return "rdma_get_cm_event: " + result_text(-1);
  std::string text = event_text(*event);
  if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    const std::string name = words.size() > 2 ? words[2] : "?";
    ids_[name] = {who.channel, event->id};
  }
  rdma_ack_cm_event(event);
  return text;
}

std::string Calls::serve(const Named& listener, int disconnections) {
  int accepted = 0;
  int established = 0;
  for (int gone = 0; gone < disconnections;) {
    if (!readable(listener, kEventPatienceMs)) break;
    const Told told = next_event_of(listener.channel);
    if (told.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      create_qp(told.id);
      succeed(rdma_accept(told.id, nullptr), "rdma_accept");
      ++accepted;
    } else if (told.type == RDMA_CM_EVENT_ESTABLISHED) {
      ++established;
    } else if (told.type == RDMA_CM_EVENT_DISCONNECTED) {
      succeed(rdma_disconnect(told.id), "rdma_disconnect");
      rdma_destroy_qp(told.id);
      succeed(rdma_destroy_id(told.id), "rdma_destroy_id");
      ++gone;
    } else if (told.type == RDMA_CM_EVENT_REJECTED) {
      rdma_destroy_qp(told.id);
      succeed(rdma_destroy_id(told.id), "rdma_destroy_id");
    } else {
      return rdma_event_str(told.type);
    }
  }
  return std::to_string(accepted) + " accepted, " + std::to_string(established) + " established";
}

std::string Calls::run(const Words& words) {
  const std::string& call = words.at(0);
  const auto rest = [&](std::size_t index, int otherwise) {
    return words.size() > index ? number(words[index]) : otherwise;
  };
  if (call == "id") return create(words);
  if (call == "synchronous") return create_synchronous(words);
  if (call == "request") return get_request(words);
  if (call == "every") {
    std::string name = words.at(2);
    for (std::size_t i = 3; i < words.size(); ++i) name += " " + words[i];
    return in_every_state(name, words.at(1));
  }
  if (call == "say") return words.at(1);
  if (call == "user") {
    const auto user = static_cast<uid_t>(number(words.at(1)));
    return result_text(setresuid(user, user, user));
  }
  if (call == "sleep") {
    std::this_thread::sleep_for(std::chrono::milliseconds(number(words.at(1))));
    return "";
  }
  if (call == "bind") {
    Address address(words.at(2), static_cast<std::uint16_t>(number(words.at(3))));
    return result_text(rdma_bind_addr(id(words), address.get()));
  }
  if (call == "resolve") {
    Address address(words.at(2), static_cast<std::uint16_t>(number(words.at(3))));
    return result_text(rdma_resolve_addr(id(words), nullptr, address.get(), rest(4, 5000)));
  }
  if (call == "listen") return result_text(rdma_listen(id(words), number(words.at(2))));
  if (call == "route") return result_text(rdma_resolve_route(id(words), rest(2, 5000)));
  if (call == "resolved") return resolved(words);
  if (call == "option") return set_option(words);
  if (call == "qp") return make_qp(id(words));
  if (call == "ownqp") return make_own_qp(named(words));
  if (call == "connect") return with_parameters(words, rdma_connect);
  if (call == "accept") return with_parameters(words, rdma_accept);
  if (call == "reject" || call == "reject_ece") {
    const auto data = pattern(static_cast<std::size_t>(number(words.at(2))));
    const auto refuse = call == "reject" ? rdma_reject : rdma_reject_ece;
    return result_text(refuse(id(words), data.data(), static_cast<std::uint8_t>(data.size())));
  }
  if (call == "establish") return result_text(rdma_establish(id(words)));
  if (call == "disconnect") return result_text(rdma_disconnect(id(words)));
  if (call == "notify") return result_text(rdma_notify(id(words), static_cast<ibv_event_type>(number(words.at(2)))));
  if (call == "attributes") return attributes(words);
  if (call == "state") return qp_state(id(words));
  if (call == "addresses") return addresses_text(id(words));
  if (call == "query") return query(id(words));
  if (call == "event") return event(words);
  if (call == "serve") return serve(named(words), number(words.at(2)));
  if (call == "silence") return readable(named(words), number(words.at(2))) ? event(words) : "";
  if (call == "migrate") {
    Named& who = named(words);
    who.channel = ids_.at(words.at(2)).channel;
    return result_text(rdma_migrate_id(who.id, who.channel));
  }
  if (call == "destroy") return destroy(words);
  die("no call " + call);
}

Words split(const std::string& command) {
  std::istringstream stream(command);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// A line of output for every line of input.
void run_input(Calls& calls) {
  for (std::string line; std::getline(std::cin, line);) std::printf("%s\n", calls.run(split(line)).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Calls calls;
  if (argc == 2 && argv[1] == std::string_view("-")) {
    run_input(calls);
    return 0;
  }
  std::vector<Words> commands;
  for (int i = 1; i < argc; ++i) commands.push_back(split(argv[i]));
  int rounds = 1;
  std::size_t again = 0;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = again; i < commands.size(); ++i) {
      if (commands[i].at(0) == "repeat") {
        rounds = number(commands[i].at(1));
        again = i + 1;
        continue;
      }
      const std::string text = calls.run(commands[i]);
      if (!text.empty()) std::printf("%s: %s\n", argv[i + 1], text.c_str());
    }
  }
  return 0;
}
