// `ucm record` and `ucm replay`: what the daemon's engine was given, and the same once more.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "recording/player.h"

namespace ucm::cli {

class RecordingCommands {
 public:
  explicit RecordingCommands(CLI::App& app);
  // One of them was given.
  bool parsed() const { return record_->parsed() || replay_->parsed(); }
  // The exit code.
  int run() { return record_->parsed() ? record() : replay(); }

 private:
  int record() const;
  int replay() const;
  // Returns the inputs that led to the first difference, as text.
  std::string play(recording::Player& player) const;

  CLI::App *record_, *replay_;
  std::string file_;
  std::uint64_t limit_mib_ = 256;
  bool step_ = false;
  std::uint64_t from_ = 0;
  std::string write_;
};

}  // namespace ucm::cli
