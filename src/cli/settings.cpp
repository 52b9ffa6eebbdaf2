#include "cli/settings.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <system_error>

#include "cm/limits.h"
#include "daemon/metrics.h"
#include "ipc/limits.h"

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace ucm::cli {
namespace {

// Takes a value; returns what is wrong with it, or nothing.
using Take = std::function<std::string(const toml::node&)>;
using Keys = std::map<std::string, Take>;

// One GiB.
constexpr std::int64_t kFlightRecordsMax = 1 << 24;
// Longer than any daemon has been running.
constexpr double kIdleExitMax = 1e9;
// A connection per nanosecond.
constexpr std::int64_t kConnectsPerSecondMax = 1'000'000'000;

// What a node has in all, by Resource.
constexpr std::array<std::int64_t, node::kResourceCount> kMostOfUser = {
    ipc::kSessionsPerUserMax, ipc::kLinksMax,    ipc::kQpnEnd,
    cm::kConnectionsMax,      cm::kListenersMax, cm::kConnectionsMax};

Take whole_number(std::uint32_t& value, std::int64_t most) {
  return [&value, most](const toml::node& node) -> std::string {
    const auto given = node.value_exact<std::int64_t>();
    if (!given || *given < 0 || *given > most) return "must be a whole number from 0 to " + std::to_string(most);
    value = static_cast<std::uint32_t>(*given);
    return "";
  };
}

Take one_of(std::string& value, const std::vector<std::string>& words) {
  return [&value, words](const toml::node& node) -> std::string {
    const auto given = node.value_exact<std::string>();
    if (given && std::ranges::find(words, *given) != words.end()) {
      value = *given;
      return "";
    }
    std::string choice;
    for (const std::string& word : words) choice += (choice.empty() ? "\"" : ", \"") + word + "\"";
    return "must be one of " + choice;
  };
}

Take path(std::string& value) {
  return [&value](const toml::node& node) -> std::string {
    const auto given = node.value_exact<std::string>();
    if (!given || (!given->empty() && given->front() != '/')) return "must be a path that begins with /, or empty";
    value = *given;
    return "";
  };
}

Take seconds(double& value) {
  return [&value](const toml::node& node) -> std::string {
    const auto given = node.value<double>();
    if (!node.is_number() || !given || !(*given >= 0 && *given <= kIdleExitMax)) {
      return "must be a number of seconds, 0 or more";
    }
    value = *given;
    return "";
  };
}

Take flight_records(std::uint32_t& value) {
  return [&value](const toml::node& node) -> std::string {
    const auto given = node.value_exact<std::int64_t>();
    const std::string wrong = check_flight_records(given.value_or(-1));
    if (wrong.empty()) value = static_cast<std::uint32_t>(*given);
    return wrong;
  };
}

Take metrics(std::string& value) {
  return [&value](const toml::node& node) -> std::string {
    const auto given = node.value_exact<std::string>();
    if (!given) return "must be a text, \"PORT\" or \"ADDRESS:PORT\"";
    const std::string wrong = check_metrics(*given);
    if (wrong.empty()) value = *given;
    return wrong;
  };
}

void add_share(Keys& keys, const std::string& table, node::Share& share) {
  for (std::size_t i = 0; i < node::kResourceCount; ++i) {
    keys[table + std::string(node::kResourceNames[i])] = whole_number(share.most[i], kMostOfUser[i]);
  }
  keys[table + "connects_per_second"] = whole_number(share.connects_per_s, kConnectsPerSecondMax);
}

Keys keys_of(Settings& settings) {
  Keys keys{{"node.flight_records", flight_records(settings.flight_records)},
            {"node.idle_exit_s", seconds(settings.idle_exit_s)},
            {"node.metrics", metrics(settings.metrics)},
            {"log.level", one_of(settings.log_level, {"debug", "info", "warning", "error", "off"})},
            {"log.format", one_of(settings.log_format, {"text", "json"})},
            {"log.file", path(settings.log_file)}};
  add_share(keys, "limits.program.", settings.limits.program);
  add_share(keys, "limits.user.", settings.limits.user);
  keys.erase("limits.program.programs");
  return keys;
}

tl::unexpected<Error> wrong_at(const std::string& path, const toml::source_region& place, const std::string& what) {
  return fail(EINVAL,
              path + ":" + std::to_string(place.begin.line) + ":" + std::to_string(place.begin.column) + ": " + what);
}

Result<void> take_table(const toml::table& table, const std::string& prefix, const Keys& keys,
                        const std::string& path) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const auto known = keys.find(name);
    const auto inside = keys.lower_bound(name + ".");
    if (known != keys.end()) {
      if (const std::string wrong = known->second(node); !wrong.empty()) {
        return wrong_at(path, node.source(), name + " " + wrong);
      }
    } else if (inside == keys.end() || !inside->first.starts_with(name + ".")) {
      return wrong_at(path, key.source(), "there is no setting " + name);
    } else if (const toml::table* const sub = node.as_table()) {
      if (auto taken = take_table(*sub, name + ".", keys, path); !taken) return taken;
    } else {
      return wrong_at(path, node.source(), name + " is a table: [" + name + "]");
    }
  }
  return {};
}

}  // namespace

std::string check_flight_records(std::int64_t value) {
  if (value == 0 ||
      (value > 0 && value <= kFlightRecordsMax && std::has_single_bit(static_cast<std::uint64_t>(value)))) {
    return "";
  }
  return "must be a power of two up to " + std::to_string(kFlightRecordsMax) + ", or 0";
}

std::string check_metrics(const std::string& address) {
  if (address.empty()) return "";
  const auto parsed = daemon::parse_metrics_address(address);
  return parsed ? "" : "must be PORT, ADDRESS:PORT or [ADDRESS]:PORT, or empty";
}

Result<Settings> parse_settings(std::string_view text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) return wrong_at(path, parsed.error().source(), std::string(parsed.error().description()));
  Settings settings;
  if (auto taken = take_table(parsed.table(), "", keys_of(settings), path); !taken) {
    return tl::unexpected(taken.error());
  }
  return settings;
}

Result<Settings> read_settings(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf()) || file.bad()) {
    // An empty file puts nothing into the stream, which is no fault.
    if (file && file.peek() == std::ifstream::traits_type::eof()) return Settings{};
    const int code = errno != 0 ? errno : EIO;
    return fail(code, path + ": cannot be read: " + std::generic_category().message(code));
  }
  return parse_settings(text.str(), path);
}

std::vector<std::string> setting_names() {
  Settings settings;
  std::vector<std::string> names;
  for (const auto& [name, take] : keys_of(settings)) names.push_back(name);
  return names;
}

}  // namespace ucm::cli
