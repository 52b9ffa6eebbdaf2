// What ucmd.toml says (docs/man/ucmd.toml.5).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "node/node.h"

namespace ucm::cli {

struct Settings {
  std::uint32_t flight_records = 65536;
  double idle_exit_s = 0;  // 0 = never
  std::string metrics;     // as daemon::parse_metrics_address() wants it; empty = nowhere
  std::string log_level = "info";
  std::string log_format = "text";
  std::string log_file;  // empty = standard error
  node::Limits limits;
};

inline constexpr const char* kSettingsFile = "/etc/ucm/ucmd.toml";

// EINVAL; the message begins with "PATH:LINE:COLUMN: ". An unknown key is an error.
Result<Settings> parse_settings(std::string_view text, const std::string& path);
// As above, or why the file cannot be read.
Result<Settings> read_settings(const std::string& path);

// Every key with its tables: "limits.user.programs".
std::vector<std::string> setting_names();

// Empty, or what is wrong with it.
std::string check_flight_records(std::int64_t value);
std::string check_metrics(const std::string& address);

}  // namespace ucm::cli
