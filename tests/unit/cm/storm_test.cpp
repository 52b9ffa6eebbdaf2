// Many requests at once: how many are under way, who is next, and what the withdrawn ones cost.
#include <map>
#include <set>

#include "harness.h"

namespace ucm::cm {
namespace {

class Pacing : public CmTest {
 protected:
  ConnectionId start(wire::IpAddress remote, std::uint32_t qpn) {
    auto params = connect_params();
    params.path.remote = remote;
    params.params.qpn = qpn;
    const auto connection = engine.connect(now, params);
    EXPECT_TRUE(connection);
    return *connection;
  }
  // The requests sent since the last call.
  std::vector<wire::Req> requests() {
    std::vector<wire::Req> list;
    for (const auto& packet : packets()) {
      if (header_of(packet).attribute == wire::Attribute::kReq) {
        list.push_back(*wire::Req::parse(Bytes(packet.mad).subspan(wire::MadHeader::kSize)));
      }
    }
    return list;
  }
  void answer_with_rep(const wire::Req& request) {
    auto m = rep();
    m.remote_comm_id = request.local_comm_id;
    m.local_comm_id = ++replies_;
    m.local_qpn = replies_;
    deliver(m);
    events();
  }

  std::uint32_t replies_ = 0;
};

TEST_F(Pacing, WindowOfAPeerOpensWithItsAnswers) {
  constexpr std::uint32_t kAll = 1000;
  for (std::uint32_t i = 1; i <= kAll; ++i) start(kPeerAddress, i);
  auto sent = requests();
  EXPECT_EQ(sent.size(), 32u);
  std::size_t round_trips = 1, total = sent.size();
  while (total < kAll && round_trips < 20) {
    now += kMillisecond;
    for (const auto& request : sent) answer_with_rep(request);
    sent = requests();
    total += sent.size();
    ++round_trips;
  }
  EXPECT_EQ(total, kAll);
  EXPECT_LE(round_trips, 7u);  // 32, 64, 128, then 256 each
  EXPECT_EQ(engine.usage().requests_in_flight, sent.size());
}

// The first wait is over before a slow program has answered, which looks like a loss; MRA then says that there was
// none.
TEST_F(Pacing, SlowProgramsAreNotTakenForAFullHost) {
  constexpr std::uint32_t kAll = 1000;
  for (std::uint32_t i = 1; i <= kAll; ++i) start(kPeerAddress, i);
  const TimeNs start_time = now;
  std::set<std::uint32_t> known, has_patience;
  while (known.size() < kAll && now < start_time + 10 * kSecond) {
    for (const auto& request : requests()) {
      if (known.insert(request.local_comm_id).second || !has_patience.insert(request.local_comm_id).second) continue;
      auto m = mra(wire::MessageKind::kReq, 24);
      m.remote_comm_id = request.local_comm_id;
      deliver(m);
    }
    now = engine.next_deadline();
    engine.on_deadline(now);
  }
  EXPECT_EQ(known.size(), kAll);
  EXPECT_LE(now - start_time, kSecond);
}

TEST_F(Pacing, DeadPeerGetsFewRequestsAndEachIsGivenUpInItsOwnTime) {  // Field cases 2.03, 2.16
  constexpr std::uint32_t kAll = 20'000;
  const TimeNs start_time = now;
  for (std::uint32_t i = 1; i <= kAll; ++i) start(kPeerAddress, i);
  std::size_t sent = requests().size();
  std::size_t given_up = 0;
  const TimeNs give_up_at = start_time + 16 * 4608 * kMillisecond;
  while (engine.next_deadline() != kNever) {
    now = engine.next_deadline();
    engine.on_deadline(now);
    const std::size_t portion = requests().size();
    EXPECT_LE(portion, 2 * kTimersPerCall);
    sent += portion;
    const auto over = events();
    given_up += over.size();
    for (const auto& e : over) {
      EXPECT_EQ(e.type, EventType::kUnreachable);
      EXPECT_EQ(now, give_up_at);
    }
  }
  EXPECT_EQ(given_up, kAll);
  EXPECT_LT(sent, 10u * kAll);  // Linux: 16
}

TEST_F(Pacing, DeadPeerDoesNotHoldUpAnotherOne) {
  for (std::uint32_t i = 1; i <= 20'000; ++i) start(kPeerAddress, i);
  advance(kSecond);
  packets();
  start(kStranger, 1);
  EXPECT_EQ(requests().size(), 1u);
}

TEST_F(Pacing, PeersTakeTurnsWhenTheTotalIsTheLimit) {
  // 100 peers could have 3200 under way, all together kRequestsInFlightMax.
  for (std::uint32_t i = 0; i < 100; ++i) {
    for (std::uint32_t qpn = 1; qpn <= 40; ++qpn) start(wire::IpAddress::ipv4(0x0b000001 + i), qpn);
  }
  auto sent = requests();
  EXPECT_EQ(sent.size(), kRequestsInFlightMax);
  EXPECT_EQ(engine.usage().requests_in_flight, kRequestsInFlightMax);
  std::size_t total = sent.size();
  for (int round = 0; round < 20 && total < 4000; ++round) {
    now += kMillisecond;
    std::map<std::array<std::uint8_t, 16>, int> per_peer;
    for (const auto& request : sent) {
      auto m = rep();
      m.remote_comm_id = request.local_comm_id;
      m.local_comm_id = ++replies_;
      m.local_qpn = replies_;
      deliver(m, {.local = kOwnAddress, .remote = request.primary.remote_gid});
    }
    events();
    sent = requests();
    for (const auto& request : sent) ++per_peer[request.primary.remote_gid.bytes];
    // Nobody gets a second helping of a window before the others' first.
    for (const auto& [peer, count] : per_peer) EXPECT_LE(count, 40);
    total += sent.size();
  }
  EXPECT_EQ(total, 4000u);
}

TEST_F(Pacing, HeldRequestLeavesNoTraceWhenDestroyed) {
  reach(State::kReqHeld, true);
  engine.destroy(now, id);
  expect_silence();
  for (const auto other : others) engine.destroy(now, other);
  EXPECT_EQ(requests().size(), 0u);
  advance(kSecond);  // their withdrawals are repeated
  EXPECT_EQ(engine.usage(), Engine::Usage{});
}

TEST_F(Pacing, OnlySoManyWithdrawalsAreSentAgain) {
  std::vector<ConnectionId> all;
  for (std::uint32_t i = 0; i < 2 * kLastWordsMax; ++i) all.push_back(start(wire::IpAddress::ipv4(0x0b000001 + i), 1));
  advance(20 * kSecond);  // every one of them has been sent
  packets();
  for (const auto connection : all) engine.destroy(now, connection);
  EXPECT_EQ(packets().size(), 2 * kLastWordsMax);
  EXPECT_EQ(engine.usage(), Engine::Usage{.last_words = kLastWordsMax});
  std::size_t again = 0;
  while (engine.next_deadline() != kNever) {
    now = engine.next_deadline();
    engine.on_deadline(now);
    again += packets().size();
  }
  EXPECT_EQ(again, kWithdrawalRepetitions * kLastWordsMax);
  EXPECT_EQ(engine.usage(), Engine::Usage{});
}

TEST_F(Pacing, RepeatedRequestIsNotInFlightAnyMore) {
  for (std::uint32_t i = 1; i <= 40; ++i) start(kPeerAddress, i);
  EXPECT_EQ(requests().size(), 32u);
  advance(60 * kMillisecond);  // every first wait is over
  std::set<std::uint32_t> distinct;
  for (const auto& request : requests()) distinct.insert(request.local_comm_id);
  EXPECT_EQ(distinct.size(), 40u);  // one service that does not answer keeps nobody from another one at the host
}

// Of every kind of timer more are due than one call handles.
TEST_F(Pacing, AllKindsOfTimersDueAtOnceAreHandledInBoundedCalls) {
  constexpr std::uint32_t kEach = 150;
  const auto host = [](std::uint32_t kind, std::uint32_t i) {
    return wire::IpAddress::ipv4(0x0b000000 + kind * 1000 + i);
  };
  listen(kEach);
  for (std::uint32_t i = 1; i <= 2 * kEach; ++i) {  // half of them in timewait, half of them orphans
    auto m = req();
    m.local_comm_id = i;
    m.local_qpn = i;
    deliver(m);
    id = event().connection;
    engine.request_taken(now, id);
    accept();
    deliver(answer<wire::Rtu>(i));
    drain();
    engine.disconnect(now, id);
    if (i > kEach) {
      engine.destroy(now, id);
    } else {
      deliver(answer<wire::Drep>(i));
    }
    drain();
  }
  std::vector<ConnectionId> withdrawn;
  for (std::uint32_t i = 0; i < kEach; ++i) {
    withdrawn.push_back(start(host(1, i), i));
    start(host(2, i), i);
    ASSERT_TRUE(engine.sidr_connect(now, {.path = {.local = kOwnAddress, .remote = host(3, i)}}));
    start(kPeerAddress, 5000 + i);  // most of these are held back
  }
  for (const auto connection : withdrawn) engine.destroy(now, connection);
  drain();
  const auto before = engine.usage();
  ASSERT_EQ(before.timers, 5 * kEach);
  ASSERT_EQ(before.orphans, kEach);
  ASSERT_EQ(before.last_words, kEach);
  ASSERT_LT(before.requests_in_flight, 2 * kEach);

  now += 3600 * kSecond;  // every wait and every budget is over
  std::size_t calls = 0;
  for (auto usage = before; engine.next_deadline() <= now; ++calls) {
    ASSERT_LT(calls, 5 * kEach / kTimersPerCall + 2);
    engine.on_deadline(now);
    const auto after = engine.usage();
    EXPECT_LE(usage.timers - after.timers, 2 * kTimersPerCall);
    EXPECT_LE(packets().size(), 2 * kTimersPerCall);
    while (engine.poll_sidr_event()) {
    }
    usage = after;
    if (calls == 0) {
      // Nobody waits behind the others: of each heap so many went.
      EXPECT_EQ(before.timers - usage.timers, 2 * kTimersPerCall);
      EXPECT_EQ(engine.counters().sidr_unreachable, kTimersPerCall);
    }
  }
  EXPECT_EQ(engine.usage().timers, 0u);
  EXPECT_EQ(engine.usage().orphans, 0u);
  EXPECT_EQ(engine.usage().exchanges, 0u);
  EXPECT_EQ(engine.usage().requests_in_flight, 0u);
  EXPECT_EQ(engine.counters().orphans_given_up, kEach);
  EXPECT_EQ(engine.counters().unreachable, 2 * kEach);
  EXPECT_EQ(engine.counters().sidr_unreachable, kEach);
  EXPECT_EQ(events().size(), 3 * kEach);  // 2 * kEach kUnreachable, kEach kTimewaitExit
  // The withdrawals have been said once more, and will be said again.
  EXPECT_EQ(engine.counters().retries, kEach);
  EXPECT_EQ(engine.usage().last_words, kEach);
  advance(kSecond);
  EXPECT_EQ(engine.counters().retries, kWithdrawalRepetitions * kEach);
  EXPECT_EQ(engine.next_deadline(), kNever);
}

class Queueing : public CmTest {
 protected:
  static Path from(std::uint32_t host) {
    return {.local = kOwnAddress, .remote = wire::IpAddress::ipv4(0x0b000000 + host)};
  }
  void ask(std::uint32_t host, std::uint32_t number) {
    auto m = req();
    m.local_comm_id = number;
    m.local_qpn = number;
    deliver(m, from(host));
  }
  void withdraw(std::uint32_t host, std::uint32_t number) { deliver(withdrawal(number), from(host)); }
  // Reads the next request as an application does; 0 when there is none.
  std::uint32_t read() {
    const auto e = engine.poll_event();
    if (!e) return 0;
    EXPECT_EQ(e->type, EventType::kConnectRequest);
    engine.request_taken(now, e->connection);
    last = e->connection;
    return e->peer.qpn;
  }
  ConnectionId last{};
};

TEST_F(Queueing, ApplicationGetsAFewAtATimeInOrder) {
  listen(1000);
  for (std::uint32_t i = 1; i <= 100; ++i) ask(1, i);
  EXPECT_EQ(engine.usage().requests, 100u);
  const auto first = events();
  EXPECT_EQ(first.size(), kDeliveredMax);
  for (const auto& e : first) engine.request_taken(now, e.connection);
  EXPECT_EQ(engine.usage().requests, 100 - kDeliveredMax);
  for (std::uint32_t i = kDeliveredMax + 1; i <= 100; ++i) EXPECT_EQ(read(), i);
  EXPECT_EQ(read(), 0u);
  EXPECT_EQ(engine.usage().requests, 0u);
}

TEST_F(Queueing, EveryRequestOfABurstIsAConnectionOfItsOwn) {  // Field case 1.13
  listen(128);
  for (std::uint32_t i = 1; i <= 128; ++i) ask(1, i);
  std::set<ConnectionId> connections;
  while (read() != 0) {
    connections.insert(last);
    EXPECT_TRUE(engine.accept(now, last, accept_params()));
  }
  EXPECT_EQ(connections.size(), 128u);
  EXPECT_EQ(packets().size(), 128u);
}

TEST_F(Queueing, HostsTakeTurnsAndAClientThatWasStartedIsFinishedFirst) {
  listen(4096);
  // What fills the application's share, so that all the rest waits.
  for (std::uint32_t i = 0; i < kDeliveredMax; ++i) ask(9, 90'000 + i);
  for (std::uint32_t i = 0; i < 100; ++i) ask(1, 10'000 + i);
  for (std::uint32_t i = 0; i < 16; ++i) ask(2, 20'000 + i);
  for (std::uint32_t i = 0; i < 16; ++i) ask(3, 30'000 + i);
  std::vector<std::uint32_t> hosts;
  while (const std::uint32_t number = read()) {
    if (hosts.empty() || hosts.back() != number / 10'000) hosts.push_back(number / 10'000);
  }
  // 64 of host 1, all of the small ones, the other 36.
  EXPECT_EQ(hosts, (std::vector<std::uint32_t>{9, 1, 2, 3, 1}));
}

TEST_F(Queueing, WithdrawnRequestsNeverReachTheApplication) {  // Field case 2.04
  listen(1000);
  for (std::uint32_t i = 1; i <= 100; ++i) ask(1, i);
  for (std::uint32_t i = 50; i <= 99; ++i) withdraw(1, i);
  EXPECT_EQ(engine.counters().withdrawn, 50u);
  EXPECT_EQ(engine.usage().requests, 50u);
  for (std::uint32_t i = 1; i <= 49; ++i) EXPECT_EQ(read(), i);
  EXPECT_EQ(read(), 100u);
  EXPECT_EQ(read(), 0u);
}

TEST_F(Queueing, RequestThatWaitsAsksForPatience) {
  reach(State::kReqQueued, false);
  deliver(req());
  EXPECT_EQ(sent<wire::Mra>().message, wire::MessageKind::kReq);
}

TEST_F(Queueing, OneHostLeavesRoomForTheOthers) {  // Field case 6.06
  listen(1024);
  for (std::uint32_t i = 1; i <= 5000; ++i) ask(1, i);
  EXPECT_EQ(engine.usage().requests, 512u + kDeliveredMax / 2);
  EXPECT_EQ(engine.counters().backlog_full, 5000 - 512 - kDeliveredMax / 2);
  const std::size_t before = engine.usage().requests;
  for (std::uint32_t i = 1; i <= 128; ++i) ask(2, i);
  EXPECT_EQ(engine.usage().requests, before + 128);
}

TEST_F(Queueing, CrowdIsClosedToFurtherUcmsUntilSomebodyIsServed) {  // Field case 2.04
  listen(256);
  for (std::uint32_t host = 1; host <= kSourcesMax + kDeliveredMax / 3 + 1; ++host) {
    for (std::uint32_t i = 1; i <= 3; ++i) ask(host, i);
  }
  const std::size_t before = engine.usage().requests;
  ASSERT_GE(before, 128u);
  const auto ask_as_ucm = [&](std::uint32_t host, std::uint32_t number) {
    auto m = req();
    m.local_comm_id = m.local_qpn = number;
    deliver_as_ucm(m, from(host));
    return engine.usage().requests;
  };
  EXPECT_EQ(ask_as_ucm(100, 1), before);              // comes again in a moment
  EXPECT_EQ(ask_as_ucm(kSourcesMax, 9), before + 1);  // has something waiting: all of its queues
  ask(101, 1);                                        // Linux: would come again after seconds
  EXPECT_EQ(engine.usage().requests, before + 2);
  while (read() != 0) {
  }
  EXPECT_EQ(ask_as_ucm(100, 1), 1u);
}

// Who is next is a part of the state.
TEST_F(Queueing, OrderOfTheRequestsThatWaitIsHashed) {
  const auto hash_of_order = [](std::initializer_list<std::uint32_t> hosts) {
    Requests requests({1, 2});
    Requests::Queue queue;
    for (std::uint32_t i = 0; i < kDeliveredMax; ++i) requests.add(queue, 0, i, from(100));
    for (const std::uint32_t host : hosts) requests.add(queue, 0, 1000 + host, from(host));
    StateHash hash;
    requests.add_to(hash, queue);
    return hash.value();
  };
  EXPECT_EQ(hash_of_order({1, 2, 3}), hash_of_order({1, 2, 3}));
  EXPECT_NE(hash_of_order({1, 2, 3}), hash_of_order({1, 3, 2}));
  EXPECT_NE(hash_of_order({1, 2, 3}), hash_of_order({3, 2, 1}));
}

TEST_F(Queueing, SmallBacklogIsAllOfOneHostsIfItComesFirst) {
  listen(100);
  for (std::uint32_t i = 1; i <= 200; ++i) ask(1, i);
  EXPECT_EQ(engine.usage().requests, 100u);
  ask(2, 1);
  EXPECT_EQ(engine.usage().requests, 100u);
  EXPECT_EQ(engine.counters().backlog_full, 101u);
}

TEST_F(Queueing, ClosedListenerRejectsAllThatWait) {  // Field case 3.14
  listen(1000);
  for (std::uint32_t i = 1; i <= 100; ++i) ask(1, i);
  engine.close_listener(now, listener);
  EXPECT_EQ(packets().size(), 100u);
  EXPECT_TRUE(events().empty());
  EXPECT_EQ(engine.usage(), Engine::Usage{});
}

}  // namespace
}  // namespace ucm::cm
