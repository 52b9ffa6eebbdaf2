// Text with tables for docs/, made by a program so that it can be made again.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/time.h"

namespace ucm::sim {

std::string time_text(TimeNs time);

// 0 for an empty list; sorts.
TimeNs percentile(std::vector<TimeNs>& times, std::size_t per_cent);
TimeNs mean(const std::vector<TimeNs>& times);

class Report {
 public:
  void text(const std::string& paragraph) { text_ += paragraph + "\n\n"; }
  void header(const std::vector<std::string>& columns);
  void row(const std::vector<std::string>& cells);
  void end_table() { text_ += "\n"; }

  // With --update=FILE, writes it there behind the line that begins with "<!-- printed by"; with --check=FILE, fails
  // unless it is there already; else to standard output. Returns what main() is to return.
  int publish(int argc, char** argv) const;

 private:
  std::string text_;
};

}  // namespace ucm::sim
