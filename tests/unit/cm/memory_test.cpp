// What the engine allocates: nothing per message once it has reached its size, little per connection. A program of its
// own, because it counts every allocation of the process.
#include "allocation_counter.h"
#include "harness.h"

namespace ucm::cm {
namespace {

using test::allocations;
using test::bytes_held;

// Both ends in two engines, a microsecond apart.
class Lives {
 public:
  Lives() : client_({.random_key = {1, 2}}), server_({.random_key = {3, 4}}) {
    (void)server_.listen({.service_id = kServiceId, .address = wire::IpAddress::ipv4_any()});
  }
  // From connect() to ESTABLISHED on both sides.
  std::pair<ConnectionId, ConnectionId> connect() {
    const std::uint32_t qpn = ++last_qpn_ & wire::kMask24;
    const auto client = client_.connect(now_, {.path = {.local = kPeerAddress, .remote = kOwnAddress},
                                               .ca_guid = kPeerGuid,
                                               .service_id = kServiceId,
                                               .params = {.qpn = qpn}});
    pump();
    const ConnectionId server = server_.poll_event()->connection;
    server_.request_taken(now_, server);
    (void)server_.accept(now_, server, {.ca_guid = kOwnGuid, .params = {.qpn = qpn}});
    pump();
    (void)client_.poll_event();
    (void)client_.establish(now_, *client);
    pump();
    (void)server_.poll_event();
    return {*client, server};
  }
  void disconnect(std::pair<ConnectionId, ConnectionId> ends) {
    client_.disconnect(now_, ends.first);
    pump();
    (void)server_.poll_event();
    server_.disconnect(now_, ends.second);
    pump();
    (void)client_.poll_event();
    client_.destroy(now_, ends.first);
    server_.destroy(now_, ends.second);
  }
  std::size_t established() const { return static_cast<std::size_t>(server_.counters().established); }

 private:
  void pump() {
    now_ += kNanosecondsPerMicrosecond;
    while (const auto packet = client_.poll_packet()) server_.on_packet(now_, kFromPeer, packet->mad);
    while (const auto packet = server_.poll_packet()) {
      client_.on_packet(now_, {.local = kPeerAddress, .remote = kOwnAddress}, packet->mad);
    }
  }

  Engine client_, server_;
  TimeNs now_ = 0;
  std::uint32_t last_qpn_ = 0;
};

TEST(Memory, ConnectionsComeAndGoWithoutAllocation) {
  Lives lives;
  for (int i = 0; i < 100; ++i) lives.disconnect(lives.connect());
  const std::size_t before = allocations();
  for (int i = 0; i < 1000; ++i) lives.disconnect(lives.connect());
  EXPECT_EQ(allocations() - before, 0u);
  EXPECT_EQ(lives.established(), 1100u);
}

TEST(Memory, AnEstablishedConnectionTakesAtMost256BytesPerSide) {
  constexpr std::size_t kConnections = 100'000;
  const std::size_t before = bytes_held();
  Lives lives;
  for (std::size_t i = 0; i < kConnections; ++i) lives.connect();
  EXPECT_EQ(lives.established(), kConnections);
  const std::size_t per_side = (bytes_held() - before) / kConnections / 2;
  RecordProperty("bytes_per_side", static_cast<int>(per_side));
  EXPECT_LE(per_side, 256u);
}

// The limit is the backlog's, wherever the requests say they are from; a connection next to them notices nothing, and
// those who do not exist get no answer that would make it a flood for somebody else.
TEST(Memory, FloodFromSpoofedSourcesTakesThePlaceOfTheBacklogAlone) {  // Field case 6.06
  Engine engine({.random_key = {1, 2}});
  ASSERT_TRUE(engine.listen({.service_id = kServiceId, .address = wire::IpAddress::ipv4_any(), .backlog = 100}));
  const auto flood = [&](std::uint32_t first) {
    for (std::uint32_t i = first; i < first + 20'000; ++i) {
      const auto source = wire::IpAddress::ipv4(0x0b000000 + i);
      wire::Req m;
      m.local_comm_id = i;
      m.service_id = kServiceId;
      m.local_ca_guid = i;
      m.local_qpn = i;
      m.pkey = 0xFFFF;
      m.path_mtu = 3;
      m.primary.remote_gid = kOwnAddress;
      const wire::IpCmHeader addresses{.ip_version = 4, .source = source, .destination = kOwnAddress};
      addresses.emit(MutableBytes(m.private_data).first(wire::IpCmHeader::kSize));
      engine.on_packet(0, {.local = kOwnAddress, .remote = source}, mad_of(m));
    }
  };
  const std::size_t before = bytes_held();
  flood(1);
  const std::size_t full = bytes_held();
  EXPECT_LE(full - before, 128u << 10);
  const std::size_t allocated = allocations();
  flood(100'000);
  EXPECT_EQ(allocations(), allocated);
  EXPECT_EQ(engine.usage().connections, 100u);
  EXPECT_EQ(engine.counters().packets_sent, 0u);
}

TEST(Memory, ABacklogCostsNothingUntilItIsUsed) {  // Field case 2.15
  const auto held_by = [](std::uint32_t backlog) {
    Engine engine({.random_key = {1, 2}});
    const std::size_t before = bytes_held();
    EXPECT_TRUE(engine.listen({.service_id = kServiceId, .backlog = backlog}));
    return bytes_held() - before;
  };
  EXPECT_EQ(held_by(65'535), held_by(1));
}

}  // namespace
}  // namespace ucm::cm
