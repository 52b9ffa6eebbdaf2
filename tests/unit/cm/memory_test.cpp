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
