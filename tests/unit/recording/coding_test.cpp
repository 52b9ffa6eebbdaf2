// Records as bytes, and files that are none.
#include "recording/coding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "support/random_bytes.h"
#include "support/recorded.h"

namespace ucm::recording {
namespace {

constexpr std::uint8_t kSome[] = {1, 2, 3};

// One record of each kind, with values of their own in its fields.
std::vector<Record> one_of_each() {
  const cm::Path path{.local = wire::IpAddress::ipv4(0x0a000001),
                      .remote = wire::IpAddress::ipv4(0x0a000002),
                      .ifindex = 3,
                      .traffic_class = 4,
                      .hop_limit = 5};
  const cm::ConnectionId connection{0x1'00000002};
  const cm::SidrId exchange{0x3'00000004};
  const cm::ListenerId listener{0x5'00000006};
  cm::Event event{.type = cm::EventType::kRejected, .connection = connection, .status = -110, .path = path};
  event.private_data.assign(kSome);
  cm::SidrEvent sidr_event{.type = cm::SidrEventType::kReply, .exchange = exchange, .qpn = 7};
  sidr_event.private_data.assign(kSome);
  Sent sent{.path = path};
  sent.mad[255] = 9;
  return {Start{.now = 1, .config = {.random_key = {1, 2}, .shard = 3}},
          Listen{.params = {.service_id = 4, .transport = std::nullopt, .user = 5}, .error = EADDRINUSE},
          CloseListener{.now = 2, .listener = listener},
          Connect{.now = 3,
                  .params = {.path = path, .transport = wire::TransportService::kExtended, .private_data = kSome},
                  .connection = connection},
          SetUser{.connection = connection, .user = 6},
          Accept{.now = 4, .connection = connection, .params = {.params = {.qpn = 8, .srq = true}}},
          Reject{.now = 5, .connection = connection, .params = {.private_data = kSome}},
          RequestTaken{.now = 6, .connection = connection},
          Establish{.now = 7, .connection = connection, .error = EINVAL},
          Notify{.now = 8, .connection = connection, .error = EISCONN},
          Disconnect{.now = 9, .connection = connection},
          Destroy{.now = 10, .connection = connection},
          SidrConnect{.now = 11, .params = {.path = path, .private_data = kSome}, .exchange = exchange},
          SidrRequestTaken{.exchange = exchange},
          SidrSetUser{.exchange = exchange, .user = 9},
          SidrAccept{.now = 12, .exchange = exchange, .params = {.qpn = 10, .private_data = kSome}},
          SidrReject{.now = 13, .exchange = exchange, .private_data = kSome},
          SidrDestroy{.now = 14, .exchange = exchange},
          Received{.now = 15, .path = path, .mad = kSome},
          Deadline{.now = 16},
          sent,
          Told{.event = event},
          SidrTold{.event = sidr_event},
          End{}};
}

std::vector<std::uint8_t> a_file() {
  test::Recorded recorded;
  for (const Record& record : one_of_each()) {
    std::vector<std::uint8_t> bytes;
    emit(record, output_kind(record) == 0 ? kPackets | kEvents : 0, bytes);
    if (!std::holds_alternative<End>(record)) recorded.append(bytes);
  }
  return recorded.file();
}

// Why it cannot be read to its end.
std::string complaint(Bytes file) {
  if (const auto header = parse_header(file); !header) return header.error().message;
  Reader reader(file);
  while (true) {
    const auto item = reader.next();
    if (!item) return item.error().message;
    if (std::holds_alternative<End>(item->record)) return "";
  }
}

TEST(Records, EachKindIsReadAsItWasWritten) {
  const auto records = one_of_each();
  ASSERT_EQ(records.size(), std::variant_size_v<Record>);
  for (std::size_t kind = 0; kind < records.size(); ++kind) {
    EXPECT_EQ(records[kind].index(), kind);
    std::vector<std::uint8_t> bytes;
    emit(records[kind], kSidrEvents, bytes);
    const auto item = parse(bytes);
    ASSERT_TRUE(item) << kRecordNames[kind] << ": " << item.error().message;
    EXPECT_EQ(item->record.index(), kind);
    EXPECT_EQ(item->drained, kSidrEvents);
    EXPECT_EQ(time_of(item->record), time_of(records[kind]));
    std::vector<std::uint8_t> again;
    emit(item->record, item->drained, again);
    EXPECT_EQ(again, bytes) << kRecordNames[kind];
  }
}

TEST(Records, KeepTheirFields) {
  std::vector<std::uint8_t> bytes;
  emit(one_of_each()[3], 0, bytes);
  const auto item = parse(bytes);
  ASSERT_TRUE(item);
  const auto& connect = std::get<Connect>(item->record);
  EXPECT_EQ(connect.params.path.remote, wire::IpAddress::ipv4(0x0a000002));
  EXPECT_EQ(connect.params.transport, wire::TransportService::kExtended);
  EXPECT_TRUE(std::ranges::equal(connect.params.private_data, kSome));
  EXPECT_EQ(connect.connection, cm::ConnectionId{0x1'00000002});
}

// A change of the file's layout is a new version (records.h).
TEST(Records, HaveTheLayoutOfVersionOne) {
  std::vector<std::uint8_t> bytes;
  emit(Establish{.now = 0x0102030405060708, .connection = cm::ConnectionId{0x11}, .error = 22}, kEvents, bytes);
  const std::vector<std::uint8_t> expected{0, 0, 0, 22, 0xb3, 0xca, 0x2a, 0xad, 8, 2, 1,    2, 3, 4, 5,
                                           6, 7, 8, 0,  0,    0,    0,    0,    0, 0, 0x11, 0, 0, 0, 22};
  EXPECT_EQ(bytes, expected);
  std::vector<std::uint8_t> event;
  emit(Told{}, 0, event);
  EXPECT_EQ(event.size(), 133u);
  std::vector<std::uint8_t> start;
  emit(Start{}, 0, start);
  EXPECT_EQ(start.size(), 108u);
}

TEST(RecordingFile, OfEveryLengthButTheWholeIsRefused) {
  const auto file = a_file();
  EXPECT_EQ(complaint(file), "");
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(complaint(Bytes(file).first(size)), "") << size;
  }
}

TEST(RecordingFile, SaysWhatIsWrongAndWhere) {
  const auto file = a_file();
  EXPECT_EQ(complaint({}), "it is no recording of `ucm record`");
  EXPECT_EQ(complaint(Bytes(file).first(file.size() - 3)),
            "it is cut off in the middle of a record, at byte " + std::to_string(file.size() - 10));
  EXPECT_EQ(complaint(Bytes(file).first(file.size() - 10)),
            "it is cut off: there is no end, at byte " + std::to_string(file.size() - 10));
  auto damaged = file;
  damaged[kHeaderSize + kFrameSize + 4] ^= 1;
  EXPECT_EQ(complaint(damaged), "it is damaged: a checksum is wrong, at byte 48");
  damaged = file;
  damaged[kHeaderSize] = 1;
  EXPECT_EQ(complaint(damaged), "it is damaged: no record has this size, at byte 48");
  auto newer = file;
  newer[7] = 2;
  EXPECT_EQ(complaint(newer), "it is a recording of version 2, and this ucm knows version 1");
}

TEST(RecordingFile, WithAnyByteChangedBehindTheHeaderIsRefused) {
  const auto file = a_file();
  for (std::size_t i = kHeaderSize; i < file.size(); ++i) {
    for (const int change : {0x01, 0x80, 0xff}) {
      auto damaged = file;
      damaged[i] ^= static_cast<std::uint8_t>(change);
      EXPECT_NE(complaint(damaged), "") << i;
    }
  }
}

TEST(RecordingFile, OfRandomBytesIsRefused) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto bytes = test::random_bytes(random, random.below(300));
    EXPECT_NE(complaint(bytes), "");
    test::Recorded recorded;
    recorded.append(bytes);
    EXPECT_TRUE(bytes.empty() || !complaint(recorded.file()).empty());
  }
}

TEST(RecordingFile, HasNoValuesThatAnEngineTakesForGranted) {
  std::vector<Record> impossible;
  const auto with = [&](auto change) {
    Start start;
    change(start.config);
    impossible.emplace_back(start);
  };
  with([](cm::Config& c) { c.shard = 16; });
  with([](cm::Config& c) { c.cm_response_timeout = 32; });
  with([](cm::Config& c) { c.max_cm_retries = 16; });
  with([](cm::Config& c) { c.mra_service_timeout = 32; });
  with([](cm::Config& c) { c.target_ack_delay = 32; });
  with([](cm::Config& c) { c.recovery.jitter_percent = 101; });
  with([](cm::Config& c) { c.recovery.longest = -1; });
  with([](cm::Config& c) { c.recovery.longest_backoff = INT64_MAX; });
  impossible.emplace_back(Connect{.params = {.transport = wire::TransportService{4}}});
  impossible.emplace_back(Listen{.params = {.transport = wire::TransportService{4}}});
  impossible.emplace_back(SidrAccept{.params = {.qpn = 1u << 24}});
  const cm::Path two_families{.local = wire::IpAddress::ipv4(0x7F000001)};
  impossible.emplace_back(Connect{.params = {.path = two_families}});
  impossible.emplace_back(SidrConnect{.params = {.path = two_families}});
  for (const Record& record : impossible) {
    std::vector<std::uint8_t> bytes;
    emit(record, 0, bytes);
    EXPECT_FALSE(parse(bytes)) << kRecordNames[record.index()];
  }
}

TEST(RecordingFile, HasNoTimeThatGoesBackOrTooFar) {
  for (const TimeNs second : {TimeNs{99}, TimeNs{-1}, INT64_MAX}) {
    test::Recorded recorded;
    for (const TimeNs now : {TimeNs{100}, second}) {
      std::vector<std::uint8_t> bytes;
      emit(Deadline{.now = now}, 0, bytes);
      recorded.append(bytes);
    }
    EXPECT_EQ(complaint(recorded.file()), "its time goes back, or too far, at byte 66");
  }
}

TEST(RecordingHeader, IsReadAsItWasWritten) {
  const auto header = emit_header({.wall_offset_ns = -7, .writer = std::string(40, 'x')});
  const auto read = parse_header(header);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->wall_offset_ns, -7);
  EXPECT_EQ(read->writer, std::string(32, 'x'));
}

}  // namespace
}  // namespace ucm::recording
