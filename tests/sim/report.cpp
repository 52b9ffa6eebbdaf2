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
  constexpr std::string_view kOption = "--update=";
  const std::string_view argument = argc > 1 ? argv[1] : "";
  if (!argument.starts_with(kOption)) {
    std::cout << text_;
    return 0;
  }
  const std::string path(argument.substr(kOption.size()));
  std::stringstream before;
  before << std::ifstream(path).rdbuf();
  const std::string content = before.str();
  const auto mark = content.find("<!-- printed by");
  const auto line_end = content.find('\n', mark);
  if (mark == std::string::npos || line_end == std::string::npos) {
    std::cerr << path << " has no line that begins with <!-- printed by\n";
    return 1;
  }
  std::ofstream out(path);
  out << content.substr(0, line_end + 1) << "\n" << text_.substr(0, text_.find_last_not_of('\n') + 1) << "\n";
  return out ? 0 : 1;
}

}  // namespace ucm::sim
