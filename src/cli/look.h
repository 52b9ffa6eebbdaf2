// `ucm list`, `show`, `diagram`, `stats`, `trace`, `capture`: what goes on in the daemon.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "cli/list_text.h"

namespace ucm::cli {

// The commands that look, and their options.
class LookCommands {
 public:
  explicit LookCommands(CLI::App& app);
  // One of them was given.
  bool parsed() const;
  // The exit code.
  int run();

 private:
  int list() const;
  int show() const;
  int diagram() const;
  int stats() const;
  int trace() const;
  int capture() const;

  CLI::App *list_, *show_, *diagram_, *stats_, *trace_, *capture_;
  ListFilter filter_;
  int pid_ = 0;
  bool as_json_ = false;
  bool short_ = false;
  double watch_s_ = 0;
  std::string id_;
  std::string story_;     // of diagram: an ID or a file
  std::string story_id_;  // in the file
  std::string prometheus_;
  std::string trace_id_;
  std::string peer_;
  bool messages_only_ = false;
  std::uint64_t count_ = 0;
  std::string file_;
};

}  // namespace ucm::cli
