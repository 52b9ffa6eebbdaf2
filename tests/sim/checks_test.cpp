// The checks of the random scenarios find what they are for: a fault is planted in every node, and some seed has to
// notice.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "sim/random_scenario.h"
#include "sim/wrapped.h"
#include "wire/mad.h"

namespace ucm::sim {
namespace {

class TellsDisconnectedTwice : public Wrapped {
  using Wrapped::Wrapped;
  bool poll_event(Event& event) override {
    if (again_) {
      event = *again_;
      again_.reset();
      return true;
    }
    if (!Wrapped::poll_event(event)) return false;
    if (event.type == EventType::kDisconnected) again_ = event;
    return true;
  }
  std::optional<Event> again_;
};

template <EventType kType>
class Forgets : public Wrapped {
  using Wrapped::Wrapped;
  bool poll_event(Event& event) override {
    do {
      if (!Wrapped::poll_event(event)) return false;
    } while (event.type == kType);
    return true;
  }
};

class LeaksEveryTenth : public Wrapped {
  using Wrapped::Wrapped;
  void destroy(TimeNs now, Handle connection) override {
    if (++destroyed_ % 10 != 0) Wrapped::destroy(now, connection);
  }
  int destroyed_ = 0;
};

class LosesItsTimers : public Wrapped {
  using Wrapped::Wrapped;
  TimeNs next_deadline() const override { return kNever; }
};

class ProgramsAnotherPsn : public Wrapped {
  using Wrapped::Wrapped;
  std::optional<QpNumbers> qp(Handle connection) const override {
    auto numbers = Wrapped::qp(connection);
    if (numbers) ++numbers->rq_psn;
    return numbers;
  }
};

class TakesItsOwnReplyForTheRtu : public Wrapped {
  using Wrapped::Wrapped;
  bool accept(TimeNs now, Handle connection, std::uint32_t qpn, std::uint64_t note) override {
    const bool accepted = Wrapped::accept(now, connection, qpn, note);
    if (accepted) early_ = Event{.type = EventType::kEstablished, .connection = connection, .user = note - 1};
    return accepted;
  }
  bool poll_event(Event& event) override {
    if (!early_) return Wrapped::poll_event(event);
    event = *early_;
    early_.reset();
    return true;
  }
  std::optional<Event> early_;
};

class DestroysInSilence : public Wrapped {
  using Wrapped::Wrapped;
  void destroy(TimeNs now, Handle connection) override {
    Packet dropped;
    while (Wrapped::poll_packet(dropped)) packets_.push_back(dropped);
    Wrapped::destroy(now, connection);
    while (Wrapped::poll_packet(dropped)) unsaid_.insert(dropped.mad);
  }
  bool poll_packet(Packet& packet) override {
    if (packets_.empty()) {
      while (Wrapped::poll_packet(packet)) {
        if (!unsaid_.contains(packet.mad)) return true;  // nor is it said later
      }
      return false;
    }
    packet = packets_.front();
    packets_.erase(packets_.begin());
    return true;
  }
  std::vector<Packet> packets_;
  std::set<std::array<std::uint8_t, wire::kMadSize>> unsaid_;
};

class SendsNoDrep : public Wrapped {
  using Wrapped::Wrapped;
  bool poll_packet(Packet& packet) override {
    do {
      if (!Wrapped::poll_packet(packet)) return false;
    } while (wire::MadHeader::parse(packet.mad)->attribute == wire::Attribute::kDrep);
    return true;
  }
};

// Its clock is slow.
class NeverGivesUp : public Wrapped {
  using Wrapped::Wrapped;
  void on_deadline(TimeNs now) override { Wrapped::on_deadline(slowed(now)); }
  void on_packet(TimeNs now, const wire::IpAddress& from, Bytes mad) override {
    Wrapped::on_packet(slowed(now), from, mad);
  }
  Handle connect(TimeNs now, const ConnectRequest& request) override { return Wrapped::connect(slowed(now), request); }
  TimeNs next_deadline() const override {
    const TimeNs next = Wrapped::next_deadline();
    return next == kNever ? kNever : next * 30;
  }
  static TimeNs slowed(TimeNs now) { return now / 30; }
};

template <class Fault>
std::unique_ptr<Node> plant(std::unique_ptr<Node> node) {
  return std::make_unique<Fault>(std::move(node));
}

struct Planted {
  const char* name;
  std::function<std::unique_ptr<Node>(std::unique_ptr<Node>)> wrap;
  const char* found_as;
};

std::ostream& operator<<(std::ostream& out, const Planted& planted) { return out << planted.name; }

class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsFound) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const auto result = run_random_scenario(seed, {.wrap = GetParam().wrap});
    if (result.violation.find(GetParam().found_as) != std::string::npos) return;
  }
  FAIL() << "no seed found it";
}

INSTANTIATE_TEST_SUITE_P(
    Of, PlantedFault,
    testing::Values(Planted{"EventTwice", plant<TellsDisconnectedTwice>, "out of order"},
                    Planted{"NoRejected", plant<Forgets<EventType::kRejected>>, "never ended"},
                    Planted{"NoDisconnected", plant<Forgets<EventType::kDisconnected>>, "out of order"},
                    Planted{"NoUnreachable", plant<Forgets<EventType::kUnreachable>>, "accept() never ended"},
                    Planted{"Leak", plant<LeaksEveryTenth>, "holds"},
                    Planted{"NoTimers", plant<LosesItsTimers>, "connect() never ended"},
                    Planted{"WrongPsns", plant<ProgramsAnotherPsn>, "QPs do not match"},
                    Planted{"TooEarly", plant<TakesItsOwnReplyForTheRtu>, "established before its peer"},
                    Planted{"Silence", plant<DestroysInSilence>, "open, and its peer is not"},
                    Planted{"NoDrep", plant<SendsNoDrep>, "DREQ was not answered"},
                    Planted{"NoEnd", plant<NeverGivesUp>, "took too long"}),
    [](const auto& planted) { return std::string(planted.param.name); });

TEST(RandomScenario, WithoutAFaultNothingIsFound) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_EQ(run_random_scenario(seed, {.wrap = [](auto node) { return node; }}).violation, "") << "seed " << seed;
  }
}

TEST(RandomScenario, SameSeedSamePackets) {
  EXPECT_EQ(run_random_scenario(5).hash, run_random_scenario(5).hash);
  EXPECT_NE(run_random_scenario(5).hash, run_random_scenario(6).hash);
}

}  // namespace
}  // namespace ucm::sim
