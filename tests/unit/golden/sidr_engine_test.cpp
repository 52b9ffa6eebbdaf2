// The engine's SIDR messages beside those of a Linux kernel, byte for byte.
#include "captured.h"
#include "cm/engine.h"
#include "wire/cm_messages.h"
#include "wire/ip_cm.h"

namespace ucm {
namespace {

using namespace test;
using wire::SidrRep;
using wire::SidrReq;

constexpr std::uint64_t kService = wire::ip_service_id(wire::PortSpace::kUdp, 7174);

class SidrEngine : public testing::Test {
 protected:
  // The way back of the captured request.
  static cm::Path path_of(const SidrReq& request) {
    const auto addresses = *wire::IpCmHeader::parse(request.private_data);
    return {.local = addresses.destination, .remote = addresses.source};
  }
  void receive(const Mad& mad, const cm::Path& path) {
    std::array<std::uint8_t, wire::kMadSize> bytes{};
    mad.header.emit(MutableBytes(bytes).first(wire::MadHeader::kSize));
    std::copy(mad.payload.begin(), mad.payload.end(), bytes.begin() + wire::MadHeader::kSize);
    engine.on_packet(0, path, bytes);
  }
  std::vector<std::uint8_t> payload_sent() {
    const auto packet = engine.poll_packet();
    if (!packet) return {};
    return {packet->mad.begin() + wire::MadHeader::kSize, packet->mad.end()};
  }

  cm::Engine engine{{.random_key = {1, 2}}};
};

TEST_F(SidrEngine, AnswersACapturedRequestAsLinuxDid) {
  for (const std::string name : {"sidr", "sidr6"}) {
    const auto mads = captured_mads(name);
    ASSERT_GE(mads.size(), 2u);
    const auto request = expect_message<SidrReq>(mads[0]);
    const auto reply = expect_message<SidrRep>(mads[1]);
    const cm::Path path = path_of(request);
    ASSERT_TRUE(engine.listen({.service_id = request.service_id, .address = path.local, .transport = std::nullopt}));
    receive(mads[0], path);
    const auto event = engine.poll_sidr_event();
    ASSERT_TRUE(event) << name;
    ASSERT_TRUE(engine.sidr_accept(0, event->exchange,
                                   {.qpn = reply.qpn, .qkey = reply.qkey, .private_data = Bytes(reply.private_data)}));
    EXPECT_EQ(payload_sent(), mads[1].payload) << name;
  }
}

TEST_F(SidrEngine, RefusesACapturedRequestAsLinuxDid) {
  const auto mads = captured_mads("sidrrej");
  ASSERT_GE(mads.size(), 2u);
  receive(mads[0], path_of(expect_message<SidrReq>(mads[0])));
  EXPECT_EQ(payload_sent(), mads[1].payload);
}

TEST_F(SidrEngine, AsksAsLinuxDidAndTakesTheCapturedReply) {
  const auto mads = captured_mads("sidr");
  ASSERT_GE(mads.size(), 2u);
  auto request = expect_message<SidrReq>(mads[0]);
  const auto addresses = *wire::IpCmHeader::parse(request.private_data);
  ASSERT_TRUE(engine.sidr_connect(0, {.path = {.local = addresses.source, .remote = addresses.destination},
                                      .service_id = kService,
                                      .source_port = addresses.source_port,
                                      .private_data = Bytes(request.private_data).subspan(wire::IpCmHeader::kSize)}));
  const auto payload = payload_sent();
  const auto asked = SidrReq::parse(payload);
  ASSERT_TRUE(asked);
  // The request ID is random; everything else is not.
  request.request_id = asked->request_id;
  std::vector<std::uint8_t> expected(payload.size());
  request.emit(expected);
  EXPECT_EQ(payload, expected);

  auto reply = mads[1];
  store_be32(reply.payload.data(), asked->request_id);
  receive(reply, {.local = addresses.source, .remote = addresses.destination});
  const auto event = engine.poll_sidr_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, cm::SidrEventType::kReply);
  EXPECT_EQ(event->qpn, 0x12u);
  EXPECT_EQ(event->qkey, 0x01234567u);
}

}  // namespace
}  // namespace ucm
