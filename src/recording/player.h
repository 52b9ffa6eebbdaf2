// Plays a recording: an engine of this program gets the recorded inputs, one after the other, and what it returns and
// gives out is compared with what is recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "recording/coding.h"
#include "recording/recorded_engine.h"

namespace ucm::recording {

class Player {
 public:
  // `copy` gets each record as the engine of this program has made it; together they are a recording again. With it a
  // difference does not end the play. `file` outlives the player. EPROTO, EPROTONOSUPPORT: as parse_header() and
  // Reader::next().
  static Result<std::unique_ptr<Player>> open(Bytes file, std::function<void(Bytes record)> copy = nullptr);
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  const Header& header() const { return header_; }
  TimeNs started_at() const { return started_at_; }
  // To observe it.
  cm::Engine& engine() { return engine_; }

  // The input that play() plays; nullptr: there is none, because all are played, or of a difference, or of an error.
  const Item* upcoming() const { return upcoming_ ? &*upcoming_ : nullptr; }
  // How many inputs were played.
  std::uint64_t played() const { return played_; }
  // Gives the engine its input, and takes the outputs that the recording has of it.
  void play();

  // The first record that is not as recorded.
  struct Difference {
    std::uint64_t input = 0;           // after so many inputs, the last one included
    std::optional<Item> recorded;      // nullopt: the engine gives out more
    std::vector<std::uint8_t> played;  // empty: the engine gives out less
  };
  const std::optional<Difference>& difference() const { return difference_; }
  // Where the file cannot be read any more.
  const std::optional<Error>& error() const { return error_; }

  // Called with each packet that the engine gives out, and with each event.
  std::function<void(const cm::Packet&)> on_sent;
  std::function<void(const cm::Event&)> on_told;
  std::function<void(const cm::SidrEvent&)> on_sidr_told;

 private:
  Player(Bytes file, std::function<void(Bytes record)> copy)
      : reader_(file), copy_(std::move(copy)), engine_(cm::Config{}) {}

  void start(const Start& start);
  void give(const Record& input);
  bool goes_on() const { return !difference_ || copy_ != nullptr; }
  void differ(std::optional<Item> recorded);
  // Takes the outputs that the recording has up to its next input, which is upcoming then.
  void take_outputs();
  // Takes one output of the kind; false when there is none.
  bool take(std::uint8_t kind);
  // The engine's newest record is what the recording has.
  void compare(const Item& recorded);
  // Takes what is left of these kinds: the recording has no more of them.
  void drain(std::uint8_t kinds);

  Header header_;
  TimeNs started_at_ = 0;
  Reader reader_;
  std::function<void(Bytes record)> copy_;
  RecordedEngine engine_;
  std::optional<Item> upcoming_;
  std::vector<std::uint8_t> made_;  // the engine's newest record
  std::uint64_t played_ = 0;
  std::optional<Difference> difference_;
  std::optional<Error> error_;
};

}  // namespace ucm::recording
