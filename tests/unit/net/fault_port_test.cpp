#include "net/fault_port.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cerrno>

#include "net/memory_port.h"
#include "wire/headers.h"
#include "wire/mad.h"

namespace ucm::net {
namespace {

const wire::IpAddress kA = wire::IpAddress::ipv4(0x0a000001);
const wire::IpAddress kB = wire::IpAddress::ipv4(0x0a000002);

TEST(FaultSpec, ParsesEveryNameInAnyOrder) {
  const auto spec = FaultSpec::parse("seed=9,loss=5,corrupt=1,reorder=3,duplicate=100");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(*spec, (FaultSpec{.loss = 5, .duplicate = 100, .reorder = 3, .corrupt = 1, .seed = 9}));
  EXPECT_EQ(FaultSpec::parse("loss=5").value(), FaultSpec{.loss = 5});
  EXPECT_EQ(FaultSpec::parse("loss=5,spare-unreliable").value(), (FaultSpec{.loss = 5, .spare_unreliable = true}));
}

TEST(FaultSpec, NamesThePartThatIsWrong) {
  const auto message = [](const char* text) {
    const auto spec = FaultSpec::parse(text);
    if (spec) return std::string("parsed: ") + text;
    EXPECT_EQ(spec.error().code, EINVAL);
    return spec.error().message;
  };
  EXPECT_EQ(message("loss"), "fault \"loss\" is not of the form name=number");
  EXPECT_EQ(message("loss=5,"), "fault \"\" is not of the form name=number");
  EXPECT_EQ(message("lost=5"),
            "unknown fault \"lost\"; known are loss, duplicate, reorder, corrupt, seed, spare-unreliable");
  EXPECT_EQ(message("loss=101"), "fault \"loss\" is a percentage: 0 to 100, not 101");
  EXPECT_EQ(message("loss=5%"), "fault \"loss\" needs a whole number, not \"5%\"");
  EXPECT_EQ(message("loss=-1"), "fault \"loss\" needs a whole number, not \"-1\"");
  EXPECT_EQ(message("seed="), "fault \"seed\" needs a whole number, not \"\"");
}

// Sends the numbers 0..count-1 as payloads and returns what arrives, in order.
std::vector<std::uint8_t> pass(const FaultSpec& spec, std::uint8_t count, std::size_t batch = 32) {
  MemoryNetwork network;
  const auto sender = network.attach({kA}, 0xC001);
  FaultPort port(network.attach({kB}, 0xC002), spec);
  std::vector<std::uint8_t> arrived;
  const auto sink = [&](const Datagram& d) { arrived.push_back(d.payload[0]); };
  for (std::uint8_t i = 0; i < count; ++i) {
    const Datagram datagram{{.source = kA, .destination = kB}, Bytes(&i, 1)};
    sender->send({&datagram, 1});
    if (i % batch == 0) port.receive(sink, batch);
  }
  for (int i = 0; i < 1000 && (port.receive(sink, batch) != 0 || port.holds_datagrams()); ++i) {
  }
  EXPECT_FALSE(port.holds_datagrams());
  return arrived;
}

TEST(FaultPort, WithoutFaultsPassesEverythingInOrder) {
  const auto arrived = pass({}, 200);
  ASSERT_EQ(arrived.size(), 200u);
  EXPECT_TRUE(std::is_sorted(arrived.begin(), arrived.end()));
}

TEST(FaultPort, LosesAboutAsManyAsAskedFor) {
  const auto arrived = pass({.loss = 20}, 250);
  EXPECT_GT(arrived.size(), 170u);
  EXPECT_LT(arrived.size(), 230u);
  EXPECT_TRUE(pass({.loss = 100}, 100).empty());
}

TEST(FaultPort, RepeatsEveryDatagramWhenDuplicateIsAHundred) { EXPECT_EQ(pass({.duplicate = 100}, 50).size(), 100u); }

TEST(FaultPort, ReordersWithoutLosing) {
  auto arrived = pass({.reorder = 20}, 200);
  EXPECT_FALSE(std::is_sorted(arrived.begin(), arrived.end()));
  std::sort(arrived.begin(), arrived.end());
  ASSERT_EQ(arrived.size(), 200u);
  for (std::size_t i = 0; i < arrived.size(); ++i) EXPECT_EQ(arrived[i], i);
}

TEST(FaultPort, EvenTheLastDatagramComesOutWhenAllAreHeldBack) { EXPECT_EQ(pass({.reorder = 100}, 10).size(), 10u); }

TEST(FaultPort, FlipsOneBit) {
  const auto arrived = pass({.corrupt = 100}, 1);
  ASSERT_EQ(arrived.size(), 1u);
  EXPECT_TRUE(std::has_single_bit(arrived[0]));
}

TEST(FaultPort, SparesWhatNobodyWouldRepeat) {
  const auto passes = [](wire::Opcode opcode, std::uint32_t destination_qpn) {
    MemoryNetwork network;
    const auto sender = network.attach({kA}, 0xC001);
    FaultPort port(network.attach({kB}, 0xC002), {.loss = 100, .spare_unreliable = true});
    std::array<std::uint8_t, wire::Bth::kSize> packet{};
    wire::Bth{.opcode = opcode, .destination_qpn = destination_qpn}.emit(packet);
    const Datagram datagram{{.source = kA, .destination = kB}, packet};
    sender->send({&datagram, 1});
    bool arrived = false;
    port.receive([&](const Datagram&) { arrived = true; }, 1);
    return arrived;
  };
  const auto uc_send = wire::in_service(wire::Service::kUc, wire::Opcode::kRcSendOnly);
  const auto xrc_send = wire::in_service(wire::Service::kXrc, wire::Opcode::kRcSendOnly);
  EXPECT_TRUE(passes(wire::Opcode::kUdSendOnly, 77));
  EXPECT_TRUE(passes(wire::Opcode::kUdSendOnly, wire::kMulticastQpn));
  EXPECT_TRUE(passes(uc_send, 77));
  EXPECT_FALSE(passes(wire::Opcode::kUdSendOnly, wire::kGsiQpn));
  EXPECT_FALSE(passes(wire::Opcode::kRcSendOnly, 77));
  EXPECT_FALSE(passes(wire::Opcode::kRcAck, 77));
  EXPECT_FALSE(passes(xrc_send, 77));
}

TEST(FaultPort, SameSeedSameFaults) {
  const FaultSpec spec{.loss = 10, .duplicate = 10, .reorder = 10, .seed = 4};
  EXPECT_EQ(pass(spec, 200), pass(spec, 200));
  FaultSpec other = spec;
  other.seed = 5;
  EXPECT_NE(pass(spec, 200), pass(other, 200));
}

}  // namespace
}  // namespace ucm::net
