// Datagram service: SIDR in both roles, every cell of its table included.
#include <cerrno>
#include <set>

#include "cm/sidr_state_machine.h"
#include "harness.h"

namespace ucm::cm {
namespace {

constexpr std::uint64_t kDatagramService = wire::ip_service_id(wire::PortSpace::kUdp, kPort);
constexpr std::uint32_t kQkey = 0x01234567;
constexpr std::uint32_t kRequestId = 0x785e0ec0;
constexpr TimeNs kInterval = 4096 * kMillisecond;
constexpr std::uint8_t kWord[] = {'w', 'o', 'r', 'd'};

class Sidr : public CmTest {
 protected:
  explicit Sidr(const Config& config = {.random_key = {1, 2}}) : CmTest(config) {}

  // ---- The application's side.
  static SidrConnectParams connect_params() {
    return {.path = {.local = kOwnAddress, .remote = kPeerAddress},
            .service_id = kDatagramService,
            .source_port = 49410,
            .qkey = kQkey,
            .user = kUser};
  }
  void listen(std::uint32_t backlog = 16) {
    const auto opened = engine.listen({.service_id = kDatagramService,
                                       .address = wire::IpAddress::ipv4_any(),
                                       .transport = std::nullopt,
                                       .backlog = backlog,
                                       .user = 5});
    ASSERT_TRUE(opened);
    listener = *opened;
  }
  wire::SidrReq ask() {
    const auto made = engine.sidr_connect(now, connect_params());
    EXPECT_TRUE(made);
    exchange = *made;
    return sent<wire::SidrReq>();
  }
  // The peer's request has been read.
  void be_asked() {
    if (listener == ListenerId{}) listen();
    deliver(sidr_req());
    exchange = sidr_event().exchange;
    engine.sidr_request_taken(exchange);
  }
  Result<void> accept() { return engine.sidr_accept(now, exchange, {.qpn = kOwnQpn, .qkey = kQkey}); }

  // ---- The peer's messages.
  static wire::SidrReq sidr_req(std::uint32_t request_id = kRequestId) {
    wire::SidrReq m;
    m.request_id = request_id;
    m.pkey = 0xFFFF;
    m.service_id = kDatagramService;
    set_addresses(m, {.ip_version = 4, .source_port = 40001, .source = kPeerAddress, .destination = kOwnAddress});
    return m;
  }
  static void set_addresses(wire::SidrReq& m, const wire::IpCmHeader& addresses) {
    addresses.emit(MutableBytes(m.private_data).first(wire::IpCmHeader::kSize));
  }
  static wire::SidrRep sidr_rep(std::uint32_t request_id, wire::SidrStatus status = wire::SidrStatus::kSuccess) {
    wire::SidrRep m;
    m.request_id = request_id;
    m.status = status;
    m.service_id = kDatagramService;
    m.qpn = kPeerQpn;
    m.qkey = kQkey;
    return m;
  }

  // ---- What came out.
  std::vector<SidrEvent> sidr_events() {
    std::vector<SidrEvent> list;
    while (auto event = engine.poll_sidr_event()) list.push_back(*event);
    return list;
  }
  SidrEvent sidr_event() {
    const auto list = sidr_events();
    EXPECT_EQ(list.size(), 1u);
    return list.empty() ? SidrEvent{} : list[0];
  }
  void expect_status(wire::SidrStatus status) {
    const auto rep = sent<wire::SidrRep>();
    EXPECT_EQ(rep.status, status);
    EXPECT_EQ(rep.request_id, kRequestId);
    EXPECT_EQ(rep.qpn, 0u);
    EXPECT_EQ(rep.qkey, 0u);
    EXPECT_TRUE(sidr_events().empty());
  }
  SidrState state() const { return engine.state(exchange).value_or(SidrState::kGone); }

  SidrId exchange{};
};

// ---- Active.

TEST_F(Sidr, RequestCarriesServicePortAndData) {
  auto params = connect_params();
  params.private_data = kWord;
  ASSERT_TRUE(engine.sidr_connect(now, params));
  wire::MadHeader header;
  const auto req = sent<wire::SidrReq>(&header);
  EXPECT_EQ(req.service_id, 0x0000'0000'0111'1c06u);
  EXPECT_EQ(req.pkey, 0xFFFF);
  EXPECT_NE(req.request_id, 0u);
  // The request ID again, byte-swapped.  // Linux: same
  EXPECT_EQ(static_cast<std::uint32_t>(header.transaction_id), __builtin_bswap32(req.request_id));
  const auto addresses = *wire::IpCmHeader::parse(req.private_data);
  EXPECT_EQ(addresses.version, 0);
  EXPECT_EQ(addresses.ip_version, 4);
  EXPECT_EQ(addresses.source_port, 49410);
  EXPECT_EQ(addresses.source, kOwnAddress);
  EXPECT_EQ(addresses.destination, kPeerAddress);
  EXPECT_TRUE(std::ranges::equal(Bytes(req.private_data).subspan(36, 4), kWord));
}

TEST_F(Sidr, ReplyTellsQpAndQkey) {
  const auto req = ask();
  auto rep = sidr_rep(req.request_id);
  std::ranges::copy(kWord, rep.private_data.begin());
  deliver(rep);
  const auto event = sidr_event();
  EXPECT_EQ(event.type, SidrEventType::kReply);
  EXPECT_EQ(event.exchange, exchange);
  EXPECT_EQ(event.user, kUser);
  EXPECT_EQ(event.status, 0);
  EXPECT_EQ(event.qpn, kPeerQpn);
  EXPECT_EQ(event.qkey, kQkey);
  EXPECT_EQ(event.private_data.size(), 136u);
  EXPECT_TRUE(std::equal(std::begin(kWord), std::end(kWord), event.private_data.begin()));
  EXPECT_EQ(engine.next_deadline(), kNever);
  expect_silence();
}

TEST_F(Sidr, StatusOfTheReplyIsTheEventsStatus) {
  deliver(sidr_rep(ask().request_id, wire::SidrStatus::kNoQp));
  const auto event = sidr_event();
  EXPECT_EQ(event.type, SidrEventType::kRefused);
  EXPECT_EQ(event.status, 3);
  EXPECT_EQ(event.private_data.size(), 136u);
}

TEST_F(Sidr, AForeignQkeyOrNoneIsAnError) {
  for (const std::uint32_t qkey : {kQkey + 1, 0u}) {
    auto rep = sidr_rep(ask().request_id);
    rep.qkey = qkey;
    deliver(rep);
    const auto event = sidr_event();
    EXPECT_EQ(event.type, SidrEventType::kBadQkey);
    EXPECT_EQ(event.status, -EINVAL);
    EXPECT_EQ(event.private_data.size(), 136u);
  }
}

TEST_F(Sidr, WithoutAQkeyOfItsOwnAnyButZeroIsTaken) {
  auto params = connect_params();
  params.qkey = 0;
  ASSERT_TRUE(engine.sidr_connect(now, params));
  auto rep = sidr_rep(sent<wire::SidrReq>().request_id);
  rep.qkey = 0x77;
  deliver(rep);
  EXPECT_EQ(sidr_event().qkey, 0x77u);

  ASSERT_TRUE(engine.sidr_connect(now, params));
  rep = sidr_rep(sent<wire::SidrReq>().request_id);
  rep.qkey = 0;
  deliver(rep);
  EXPECT_EQ(sidr_event().type, SidrEventType::kBadQkey);
}

// At growing intervals that end with Linux' own.
TEST_F(Sidr, RequestIsRepeatedUntilTheBudgetOfLinuxEndsThenUnreachable) {
  ask();
  const TimeNs give_up_at = now + 16 * kInterval;
  TimeNs wait = 256 * kMillisecond;  // nothing is known of the peer
  int repetitions = 0;
  while (engine.next_deadline() < give_up_at) {
    const TimeNs waited = engine.next_deadline() - now;
    EXPECT_GE(waited, wait * 3 / 4);
    EXPECT_LE(waited, wait * 5 / 4);
    advance(waited);
    ASSERT_EQ(packets().size(), 1u);
    wait = std::min(2 * wait, kInterval);
    ++repetitions;
  }
  EXPECT_LE(repetitions, 20);
  EXPECT_TRUE(sidr_events().empty());
  EXPECT_EQ(engine.next_deadline(), give_up_at);
  advance(give_up_at - now);
  const auto event = sidr_event();
  EXPECT_EQ(event.type, SidrEventType::kUnreachable);
  EXPECT_EQ(event.status, -ETIMEDOUT);
  expect_silence();
  EXPECT_EQ(engine.next_deadline(), kNever);
}

// Linux takes a repetition that meets the answer for a new request.
TEST_F(Sidr, FirstRepetitionIsEarlyForAUcmAndThatOfLinuxForOthers) {
  const auto first_wait_after_an_answer_with = [&](std::uint16_t mark) {
    auto mad = mad_of(sidr_rep(ask().request_id));
    store_be16(&mad[18], mark);
    now += 100 * kNanosecondsPerMicrosecond;
    engine.on_packet(now, kFromPeer, mad);
    ask();
    const TimeNs wait = engine.next_deadline() - now;
    advance(20 * kInterval);
    packets();
    sidr_events();
    return wait;
  };
  EXPECT_LE(first_wait_after_an_answer_with(kUcmMark), 5 * kMillisecond);
  EXPECT_GE(first_wait_after_an_answer_with(0), kInterval * 3 / 4);
}

TEST_F(Sidr, RepetitionIsTheSameByteForByte) {
  auto params = connect_params();
  params.private_data = kWord;
  ASSERT_TRUE(engine.sidr_connect(now, params));
  const auto first = packets();
  advance(engine.next_deadline() - now);
  const auto second = packets();
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(first[0].mad, second[0].mad);
}

TEST_F(Sidr, ReplyFromAStrangerOrToAnotherRequestIsDropped) {
  const auto req = ask();
  deliver(sidr_rep(req.request_id), {.local = kOwnAddress, .remote = kStranger});
  EXPECT_EQ(engine.counters().wrong_source, 1u);
  deliver(sidr_rep(req.request_id + 1));
  EXPECT_EQ(engine.counters().unknown_connection, 1u);
  EXPECT_TRUE(sidr_events().empty());
  EXPECT_EQ(state(), SidrState::kReqSent);
}

TEST_F(Sidr, RequestIdsAndCommIdsAreOneSpaceWithTheShardOnTop) {
  engine = Engine({.random_key = {1, 2}, .shard = 9});
  std::set<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < 500; ++i) {
    ids.insert(ask().request_id);
    auto params = CmTest::connect_params();
    params.path.remote = wire::IpAddress::ipv4(0x0b000001 + i);
    ASSERT_TRUE(engine.connect(now, params));
    ids.insert(sent<wire::Req>().local_comm_id);
  }
  EXPECT_EQ(ids.size(), 1000u);
  for (const std::uint32_t number : ids) EXPECT_EQ(number >> 28, 9u);
}

TEST_F(Sidr, TooMuchPrivateDataIsRefused) {
  const std::array<std::uint8_t, 181> data{};
  auto params = connect_params();
  params.private_data = data;
  EXPECT_EQ(engine.sidr_connect(now, params).error().code, EINVAL);
  params.private_data = Bytes(data).first(180);
  EXPECT_TRUE(engine.sidr_connect(now, params));
}

// ---- Passive.

TEST_F(Sidr, ListenerGetsTheWholeRequest) {
  listen();
  auto req = sidr_req();
  std::ranges::copy(kWord, req.private_data.begin() + 36);
  deliver(req);
  const auto event = sidr_event();
  EXPECT_EQ(event.type, SidrEventType::kRequest);
  EXPECT_EQ(event.listener, listener);
  EXPECT_EQ(event.user, 5u);
  EXPECT_EQ(event.private_data.size(), 180u);
  EXPECT_TRUE(std::equal(std::begin(kWord), std::end(kWord), event.private_data.begin()));
  EXPECT_EQ(event.addresses.source, kPeerAddress);
  EXPECT_EQ(event.addresses.source_port, 40001);
  EXPECT_EQ(event.addresses.destination, kOwnAddress);
  EXPECT_EQ(event.path.remote, kPeerAddress);
  expect_silence();
}

TEST_F(Sidr, AcceptAnswersWithTheRequestsNumbers) {
  be_asked();
  ASSERT_TRUE(engine.sidr_accept(now, exchange, {.qpn = kOwnQpn, .qkey = kQkey, .private_data = kWord}));
  wire::MadHeader header;
  const auto rep = sent<wire::SidrRep>(&header);
  EXPECT_EQ(header.transaction_id, kPeerTid);
  EXPECT_EQ(rep.request_id, kRequestId);
  EXPECT_EQ(rep.status, wire::SidrStatus::kSuccess);
  EXPECT_EQ(rep.service_id, kDatagramService);
  EXPECT_EQ(rep.qpn, kOwnQpn);
  EXPECT_EQ(rep.qkey, kQkey);
  EXPECT_TRUE(std::ranges::equal(Bytes(rep.private_data).first(4), kWord));
  EXPECT_TRUE(sidr_events().empty());
}

TEST_F(Sidr, RejectAndDestroyAnswerWithStatusTwo) {
  be_asked();
  ASSERT_TRUE(engine.sidr_reject(now, exchange, kWord));
  const auto rep = sent<wire::SidrRep>();
  EXPECT_EQ(rep.status, wire::SidrStatus::kRejected);
  EXPECT_TRUE(std::ranges::equal(Bytes(rep.private_data).first(4), kWord));
  engine.sidr_destroy(now, exchange);
  expect_silence();

  be_asked();
  engine.sidr_destroy(now, exchange);
  expect_status(wire::SidrStatus::kRejected);
}

TEST_F(Sidr, NobodyListensIsStatusOne) {
  deliver(sidr_req());
  expect_status(wire::SidrStatus::kUnsupportedServiceId);
  EXPECT_EQ(engine.counters().sidr_no_listener, 1u);
}

TEST_F(Sidr, AConnectedListenerOfTheServiceIsStatusTwo) {
  ASSERT_TRUE(engine.listen({.service_id = kDatagramService, .address = wire::IpAddress::ipv4_any()}));
  deliver(sidr_req());
  expect_status(wire::SidrStatus::kRejected);
}

TEST_F(Sidr, AConnectionRequestToADatagramListenerIsRejected) {
  listen();
  auto m = req();
  m.service_id = kDatagramService;
  deliver(m);
  EXPECT_EQ(sent<wire::Rej>().reason, wire::RejReason::kConsumerDefined);
}

TEST_F(Sidr, RequestsNotForUsAreStatusTwo) {
  listen();
  const auto refused = [&](auto change) {
    auto m = sidr_req();
    change(m);
    deliver(m);
    expect_status(wire::SidrStatus::kRejected);
  };
  refused([](wire::SidrReq& m) { m.private_data[0] = 0x10; });  // header version
  refused([](wire::SidrReq& m) { m.private_data[1] = 0x50; });  // IP version
  refused([](wire::SidrReq& m) {
    set_addresses(m, {.ip_version = 4, .source = wire::IpAddress::ipv4(0xe0000001), .destination = kOwnAddress});
  });
  EXPECT_EQ(engine.counters().sidr_not_for_us, 3u);
}

TEST_F(Sidr, ThePkeyInsideARequestDoesNotMatter) {
  listen();
  auto m = sidr_req();
  m.pkey = 0x1234;
  deliver(m);
  EXPECT_EQ(sidr_event().type, SidrEventType::kRequest);
}

TEST_F(Sidr, AFullBacklogIsStatusTwoUntilARequestIsTaken) {
  listen(2);
  deliver(sidr_req(1));
  deliver(sidr_req(2));
  const auto waiting = sidr_events();
  ASSERT_EQ(waiting.size(), 2u);
  deliver(sidr_req());
  expect_status(wire::SidrStatus::kRejected);
  EXPECT_EQ(engine.counters().sidr_full, 1u);
  engine.sidr_request_taken(waiting[0].exchange);
  engine.sidr_request_taken(waiting[0].exchange);
  deliver(sidr_req());
  EXPECT_EQ(sidr_events().size(), 1u);
}

TEST_F(Sidr, ClosingTheListenerRefusesWhatNobodyHasTaken) {
  listen();
  deliver(sidr_req(1));
  deliver(sidr_req(2));
  const auto waiting = sidr_events();
  engine.sidr_request_taken(waiting[0].exchange);
  engine.close_listener(now, listener);
  EXPECT_EQ(sent<wire::SidrRep>().request_id, 2u);
  exchange = waiting[0].exchange;
  EXPECT_TRUE(accept());
}

TEST_F(Sidr, ARepetitionBeforeTheAnswerIsDropped) {
  be_asked();
  deliver(sidr_req());
  expect_silence();
  EXPECT_TRUE(sidr_events().empty());
  EXPECT_EQ(engine.counters().ignored, 1u);
}

// Linux takes equal request IDs of two hosts for one request.
TEST_F(Sidr, EqualRequestIdsOfTwoHostsAreTwoRequests) {
  be_asked();
  auto m = sidr_req();
  set_addresses(m, {.ip_version = 4, .source_port = 40001, .source = kStranger, .destination = kOwnAddress});
  deliver(m, {.local = kOwnAddress, .remote = kStranger});
  EXPECT_EQ(sidr_events().size(), 1u);
}

TEST_F(Sidr, ARepetitionAfterTheAnswerBringsTheAnswerAgain) {
  be_asked();
  ASSERT_TRUE(engine.sidr_accept(now, exchange, {.qpn = kOwnQpn, .qkey = kQkey, .private_data = kWord}));
  const auto answer = packets();
  for (int i = 1; i < 16; ++i) {
    advance(kInterval);
    deliver(sidr_req());
    const auto again = packets();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].mad, answer[0].mad);
  }
  EXPECT_TRUE(sidr_events().empty());
  EXPECT_EQ(engine.counters().duplicates_answered, 15u);
  // The peer's patience is over: the same ID is another request.
  advance(kInterval);
  deliver(sidr_req());
  EXPECT_EQ(sidr_event().type, SidrEventType::kRequest);
}

TEST_F(Sidr, ADestroyedExchangeIsForgottenAtOnce) {
  be_asked();
  ASSERT_TRUE(accept());
  engine.sidr_destroy(now, exchange);
  packets();
  deliver(sidr_req());
  EXPECT_EQ(sidr_event().type, SidrEventType::kRequest);
}

TEST_F(Sidr, AnAnswerWithTooMuchDataFailsAndRefuses) {
  const std::array<std::uint8_t, 137> data{};
  be_asked();
  EXPECT_EQ(engine.sidr_accept(now, exchange, {.qpn = kOwnQpn, .qkey = kQkey, .private_data = data}).error().code,
            EINVAL);
  expect_status(wire::SidrStatus::kRejected);
  EXPECT_EQ(engine.sidr_reject(now, exchange, data).error().code, EINVAL);
  expect_silence();
}

TEST_F(Sidr, ADestroyedRequestIsNotDelivered) {
  listen();
  deliver(sidr_req());
  engine.close_listener(now, listener);
  EXPECT_TRUE(sidr_events().empty());
}

class FewExchanges : public Sidr {
 protected:
  FewExchanges() : Sidr({.random_key = {1, 2}, .connections_max = 2}) {}
};

TEST_F(FewExchanges, MoreAreRefusedInBothRoles) {
  listen();
  ask();
  ask();
  EXPECT_EQ(engine.sidr_connect(now, connect_params()).error().code, ENOMEM);
  deliver(sidr_req());
  expect_status(wire::SidrStatus::kRejected);
}

// ---- Both.

TEST_F(Sidr, NothingIsLeftAfterDestroy) {
  ask();
  engine.sidr_destroy(now, exchange);
  be_asked();
  ASSERT_TRUE(accept());
  engine.sidr_destroy(now, exchange);
  engine.close_listener(now, listener);
  EXPECT_EQ(engine.usage(), Engine::Usage{});
  EXPECT_EQ(engine.next_deadline(), kNever);
  EXPECT_EQ(accept().error().code, EINVAL);
}

TEST_F(Sidr, TimersAreHandledInBoundedPortions) {
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(engine.sidr_connect(now, connect_params()));
  packets();
  now += kInterval / 8;  // the first repetition of each is due
  engine.on_deadline(now);
  EXPECT_EQ(packets().size(), kTimersPerCall);
  EXPECT_LE(engine.next_deadline(), now);
}

class SidrCell : public Sidr {
 public:
  void TestBody() override {}

  // As for connections (matrix_test.cpp): false when the input cannot be made.
  bool exercise(SidrState from, bool active, SidrInput input) {
    const std::uint32_t request_id = reach(from, active);
    EXPECT_EQ(state(), from);
    const std::uint64_t ignored = engine.counters().ignored;
    if (!apply(from, active, request_id, input)) return false;
    const SidrTransition& cell = transition(from, input);
    EXPECT_EQ(state(), cell.next);
    EXPECT_EQ(engine.counters().ignored - ignored, cell.action == SidrAction::kIgnore ? 1u : 0u);
    EXPECT_EQ(error_, cell.action == SidrAction::kRefuse ? EINVAL : 0);
    const auto list = packets();
    const bool sends = cell.action == SidrAction::kSendRep || cell.action == SidrAction::kSendRefusal ||
                       cell.action == SidrAction::kResend || cell.action == SidrAction::kRetry;
    EXPECT_EQ(list.size(), sends ? 1u : 0u);
    if (!list.empty()) {
      EXPECT_EQ(header_of(list[0]).attribute, active ? wire::Attribute::kSidrReq : wire::Attribute::kSidrRep);
    }
    EXPECT_EQ(reported(), expected_report(cell.action));
    return true;
  }

 private:
  std::uint32_t reach(SidrState target, bool active) {
    std::uint32_t request_id = kRequestId;
    if (active) {
      request_id = ask().request_id;
      if (target == SidrState::kIdle) deliver(sidr_rep(request_id));
    } else {
      be_asked();
      if (target != SidrState::kReqReceived) {
        EXPECT_TRUE(accept());
      }
      if (target == SidrState::kIdle) advance(16 * kInterval);
    }
    packets();
    sidr_events();
    return request_id;
  }
  bool apply(SidrState from, bool active, std::uint32_t request_id, SidrInput input) {
    switch (input) {
      case SidrInput::kReq:
        if (active || from == SidrState::kIdle) return false;  // would be a new one
        deliver(sidr_req());
        return true;
      case SidrInput::kRep:
      case SidrInput::kRepBadQkey:
      case SidrInput::kRepRefused: {
        if (!active) return false;
        auto m = sidr_rep(request_id,
                          input == SidrInput::kRepRefused ? wire::SidrStatus::kRejected : wire::SidrStatus::kSuccess);
        if (input == SidrInput::kRepBadQkey) m.qkey = 1;
        deliver(m);
        return true;
      }
      case SidrInput::kAccept:
        return command(accept());
      case SidrInput::kReject:
        return command(engine.sidr_reject(now, exchange, {}));
      case SidrInput::kDestroy:
        engine.sidr_destroy(now, exchange);
        return true;
      case SidrInput::kRetryDue:
        if (from != SidrState::kReqSent) return false;
        advance(engine.next_deadline() - now);
        return true;
      case SidrInput::kRetriesExhausted:
        if (from != SidrState::kReqSent) return false;
        for (const TimeNs end = now + 16 * kInterval; engine.next_deadline() < end;)
          advance(engine.next_deadline() - now);
        packets();
        advance(engine.next_deadline() - now);
        return true;
      case SidrInput::kPeerSatisfied:
        return from == SidrState::kRepSent && wait(16);
    }
    return false;
  }
  bool command(const Result<void>& result) {
    if (!result) error_ = result.error().code;
    return true;
  }
  bool wait(int intervals) {
    advance(intervals * kInterval);
    return true;
  }
  std::vector<SidrEventType> reported() {
    std::vector<SidrEventType> list;
    for (const auto& event : sidr_events()) list.push_back(event.type);
    return list;
  }
  static std::vector<SidrEventType> expected_report(SidrAction action) {
    switch (action) {
      case SidrAction::kReportReply:
        return {SidrEventType::kReply};
      case SidrAction::kReportBadQkey:
        return {SidrEventType::kBadQkey};
      case SidrAction::kReportRefused:
        return {SidrEventType::kRefused};
      case SidrAction::kReportUnreachable:
        return {SidrEventType::kUnreachable};
      default:
        return {};
    }
  }

  int error_ = 0;
};

TEST(SidrStateMachine, EveryCellDoesWhatTheTableSaysOrIsImpossible) {
  struct Start {
    SidrState state;
    bool active;
  };
  constexpr Start kStarts[] = {{SidrState::kReqSent, true},
                               {SidrState::kReqReceived, false},
                               {SidrState::kRepSent, false},
                               {SidrState::kIdle, true},
                               {SidrState::kIdle, false}};
  std::set<std::pair<SidrState, SidrInput>> exercised;
  for (const Start& start : kStarts) {
    for (std::size_t i = 0; i < kSidrInputCount; ++i) {
      const auto input = static_cast<SidrInput>(i);
      SCOPED_TRACE(std::string(name(start.state)) + " x " + std::string(name(input)));
      SidrCell cell;
      if (cell.exercise(start.state, start.active, input)) exercised.insert({start.state, input});
    }
  }
  for (std::size_t s = 0; s < kSidrStateCount; ++s) {
    for (std::size_t i = 0; i < kSidrInputCount; ++i) {
      const auto state = static_cast<SidrState>(s);
      const auto input = static_cast<SidrInput>(i);
      const bool possible = transition(state, input).action != SidrAction::kImpossible;
      EXPECT_EQ(exercised.contains({state, input}), possible) << name(state) << " x " << name(input);
    }
  }
}

TEST(SidrStateMachine, NamesAreDistinct) {
  std::set<std::string_view> states, inputs, actions;
  for (std::size_t i = 0; i <= kSidrStateCount; ++i) states.insert(name(static_cast<SidrState>(i)));
  for (std::size_t i = 0; i < kSidrInputCount; ++i) inputs.insert(name(static_cast<SidrInput>(i)));
  for (std::size_t i = 0; i < kSidrActionCount; ++i) actions.insert(name(static_cast<SidrAction>(i)));
  EXPECT_EQ(states.size(), kSidrStateCount + 1);
  EXPECT_EQ(inputs.size(), kSidrInputCount);
  EXPECT_EQ(actions.size(), kSidrActionCount);
}

}  // namespace
}  // namespace ucm::cm
