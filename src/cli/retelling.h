// Plays a recording with a flight recorder at its engine, so that what happens in it is told as of a running node.
#pragma once

#include <cstdint>
#include <vector>

#include "ipc/observe.h"
#include "node/flight_recorder.h"
#include "recording/player.h"

namespace ucm::cli {

struct ToldFrame {
  ipc::TraceFrame frame;
  std::vector<std::uint8_t> mad{};  // of a message
};

class Retelling {
 public:
  // `player` outlives it.
  explicit Retelling(recording::Player& player);
  Retelling(const Retelling&) = delete;
  Retelling& operator=(const Retelling&) = delete;

  // Plays the upcoming input, and tells what has happened.
  std::vector<ToldFrame> play();

 private:
  recording::Player& player_;
  node::FlightRecorder recorder_;
  std::vector<ToldFrame> told_;
};

}  // namespace ucm::cli
