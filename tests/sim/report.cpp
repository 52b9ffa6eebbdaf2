#include "sim/report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string_view>

namespace ucm::sim {

std::string time_text(TimeNs time) {
  const double us = static_cast<double>(time) / kNanosecondsPerMicrosecond;
  char text[32];
  if (us < 1000) {
    std::snprintf(text, sizeof(text), "%.0f µs", us);
  } else if (us < 1'000'000) {
    std::snprintf(text, sizeof(text), us < 100'000 ? "%.1f ms" : "%.0f ms", us / 1000);
  } else {
    std::snprintf(text, sizeof(text), "%.1f s", us / 1'000'000);
  }
  return text;
}

TimeNs percentile(std::vector<TimeNs>& times, std::size_t per_cent) {
  std::sort(times.begin(), times.end());
  return times.empty() ? 0 : times[(times.size() - 1) * per_cent / 100];
}

TimeNs mean(const std::vector<TimeNs>& times) {
  if (times.empty()) return 0;
  return std::accumulate(times.begin(), times.end(), TimeNs{0}) / static_cast<TimeNs>(times.size());
}

namespace {

// Line by line: what it was, and what it would be.
void print_differences(const std::string& before, const std::string& after) {
  std::istringstream lines_before(before), lines_after(after);
  std::string old_line, new_line;
  while (true) {
    const bool had = static_cast<bool>(std::getline(lines_before, old_line));
    const bool has = static_cast<bool>(std::getline(lines_after, new_line));
    if (!had && !has) return;
    if (had && has && old_line == new_line) continue;
    if (had) std::cerr << "- " << old_line << "\n";
    if (has) std::cerr << "+ " << new_line << "\n";
  }
}

}  // namespace

void Report::header(const std::vector<std::string>& columns) {
  row(columns);
  text_ += "|";
  for (std::size_t i = 0; i < columns.size(); ++i) text_ += "---|";
  text_ += "\n";
}

void Report::row(const std::vector<std::string>& cells) {
  text_ += "|";
  for (const std::string& cell : cells) text_ += " " + cell + " |";
  text_ += "\n";
}

int Report::publish(int argc, char** argv) const {
  constexpr std::string_view kUpdate = "--update=", kCheck = "--check=";
  const std::string_view argument = argc > 1 ? argv[1] : "";
  const bool updates = argument.starts_with(kUpdate);
  if (!updates && !argument.starts_with(kCheck)) {
    std::cout << text_;
    return 0;
  }
  const std::string path(argument.substr((updates ? kUpdate : kCheck).size()));
  std::stringstream before;
  before << std::ifstream(path).rdbuf();
  const std::string content = before.str();
  const auto mark = content.find("<!-- printed by");
  const auto line_end = content.find('\n', mark);
  if (mark == std::string::npos || line_end == std::string::npos) {
    std::cerr << path << " has no line that begins with <!-- printed by\n";
    return 1;
  }
  const std::string now =
      content.substr(0, line_end + 1) + "\n" + text_.substr(0, text_.find_last_not_of('\n') + 1) + "\n";
  if (updates) return std::ofstream(path) << now ? 0 : 1;
  if (now == content) return 0;
  std::cerr << path << " is not what it would be today; " << argv[0] << " " << kUpdate << path << " writes it anew:\n";
  print_differences(content, now);
  return 1;
}

}  // namespace ucm::sim
