// What `ucm list` and `ucm stats` print, from the node's JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace ucm::cli {

// All that is given must hold.
struct ListFilter {
  std::string state{};    // "established", "listening", …
  std::string address{};  // local or remote, without the port
  std::optional<int> pid{};
  bool matches(const nlohmann::json& entry) const;
};

// One listener or connection: a few lines of at most 80 columns, or one (which is longer with IPv6).
enum class ListForm { kLong, kShort };
std::string entry_text(const nlohmann::json& entry, ListForm form);

std::string stats_text(const nlohmann::json& stats);

// "1.23 ms"
std::string duration_text(std::int64_t nanoseconds);

}  // namespace ucm::cli
