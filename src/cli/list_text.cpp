#include "cli/list_text.h"

#include <array>
#include <cinttypes>
#include <cstdio>

#include "cli/text.h"
#include "cli/trace_text.h"

namespace ucm::cli {
namespace {

using nlohmann::json;

std::string program_of(const json& entry) {
  if (!entry.contains("pid")) return "";
  return std::to_string(entry.value("pid", 0)) + " " + entry.value("program", "");
}

// "sent RTU 3.10 s ago"
std::string last_message(const json& entry, const char* key, const char* verb) {
  const auto it = entry.find(key);
  if (it == entry.end()) return "";
  return std::string("  ") + verb + " " + message_name(static_cast<std::uint8_t>(it->value("message", 0))) + " " +
         duration_text(it->value("ago_ns", std::int64_t{0})) + " ago";
}

std::string listener_text(const json& entry) {
  return "#" + std::to_string(entry.value("id", 0u)) + " listening  " + entry.value("local", "") + "  backlog " +
         std::to_string(entry.value("backlog", 0u)) + ", pending " + std::to_string(entry.value("pending", 0u)) + "  " +
         program_of(entry) + "\n";
}

std::string short_text(const json& entry) {
  return padded(std::to_string(entry.value("id", 0u)), 5) + " " + padded(entry.value("state", ""), 16) + " " +
         entry.value("local", "") + (entry.value("active", false) ? " > " : " < ") + entry.value("remote", "") + " " +
         program_of(entry) + "\n";
}

// Two parts in one line where they fit.
std::string joined(const std::string& one, const std::string& other) {
  constexpr std::size_t kColumns = 80;
  const bool fits = one.size() + other.size() <= kColumns;
  return one + (fits ? "" : "\n   ") + other + "\n";
}

std::string long_text(const json& entry) {
  std::string out = "#" + std::to_string(entry.value("id", 0u)) + " " + entry.value("state", "") +
                    (entry.value("active", false) ? ", active" : ", passive");
  if (entry.value("kind", "") == "datagram") out += ", datagrams";
  if (entry.contains("in_state_ns")) out += ", for " + duration_text(entry.value("in_state_ns", std::int64_t{0}));
  const std::string program = program_of(entry);
  out = joined(out, program.empty() ? "" : "  (" + program + ")");
  out += joined("    " + entry.value("local", ""), " - " + entry.value("remote", ""));
  std::string answer;
  if (entry.contains("answer_time_ns"))
    answer = "  answers in " + duration_text(entry.value("answer_time_ns", std::int64_t{0}));
  out += joined("    comm " + hex(entry.value("local_comm_id", 0u), 8) + " - " +
                    hex(entry.value("remote_comm_id", 0u), 8) + "  QP " + hex(entry.value("qpn", 0u), 6) + " - " +
                    hex(entry.value("peer_qpn", 0u), 6),
                answer);
  if (!entry.contains("age_ns")) return out;
  out += joined("    age " + duration_text(entry.value("age_ns", std::int64_t{0})) + "  retries " +
                    std::to_string(entry.value("retries", 0u)),
                last_message(entry, "last_sent", "sent") + last_message(entry, "last_received", "received"));
  return out;
}

// The smallest bucket's end that has `share` of all below it.
std::string quantile(const json& histogram, double share) {
  const double wanted = share * histogram.value("count", 0.0);
  for (const json& bucket : histogram.at("buckets")) {
    if (bucket.value("count", 0.0) >= wanted) return "<= " + duration_text(bucket.value("up_to_ns", std::int64_t{0}));
  }
  return "longer";
}

std::string histogram_line(const std::string& name, const json& histogram) {
  const auto count = histogram.value("count", std::int64_t{0});
  if (count == 0) return "";
  return "  " + padded(name, 18) + padded(std::to_string(count), 10) +
         padded(duration_text(histogram.value("sum_ns", std::int64_t{0}) / count), 12) +
         padded(quantile(histogram, 0.5), 14) + quantile(histogram, 0.99) + "\n";
}

bool begins_host(const std::string& endpoint, const std::string& address) {
  return endpoint.starts_with(address + ":") || endpoint.starts_with("[" + address + "]") ||
         endpoint.starts_with("[" + address + "%");
}

}  // namespace

std::string duration_text(std::int64_t nanoseconds) {
  std::array<char, 32> buffer{};
  const auto value = static_cast<double>(nanoseconds);
  if (nanoseconds < 1'000'000) {
    std::snprintf(buffer.data(), buffer.size(), "%.1f us", value / 1e3);
  } else if (nanoseconds < 1'000'000'000) {
    std::snprintf(buffer.data(), buffer.size(), "%.2f ms", value / 1e6);
  } else if (nanoseconds < 3600 * std::int64_t{1'000'000'000}) {
    std::snprintf(buffer.data(), buffer.size(), "%.2f s", value / 1e9);
  } else {
    std::snprintf(buffer.data(), buffer.size(), "%.1f h", value / 3600e9);
  }
  return buffer.data();
}

bool ListFilter::matches(const json& entry) const {
  if (!state.empty() && entry.value("state", "") != state) return false;
  if (pid && entry.value("pid", 0) != *pid) return false;
  return address.empty() || begins_host(entry.value("local", ""), address) ||
         begins_host(entry.value("remote", ""), address);
}

std::string entry_text(const json& entry, ListForm form) {
  if (entry.value("kind", "") == "listener") return listener_text(entry);
  return form == ListForm::kShort ? short_text(entry) : long_text(entry);
}

std::string stats_text(const json& stats) {
  std::string out;
  if (stats.contains("messages")) {
    out += "Messages    sent  repeated  received  duplicate  refused   dropped\n";
    for (const auto& [name, counts] : stats.at("messages").items()) {
      std::array<char, 128> line{};
      const auto count = [&](const char* key) { return counts.value(key, std::uint64_t{0}); };
      if (count("sent") + count("received") == 0) continue;
      std::snprintf(line.data(), line.size(),
                    "  %-9s%5" PRIu64 "%10" PRIu64 "%10" PRIu64 "%11" PRIu64 "%9" PRIu64 "%10" PRIu64 "\n",
                    name.c_str(), count("sent"), count("repeated"), count("received"), count("duplicate"),
                    count("refused"), count("dropped"));
      out += line.data();
    }
    out += "Connections\n";
    for (const auto& [state, count] : stats.at("states").items()) {
      if (count != 0) out += "  " + padded(state, 18) + count.dump() + "\n";
    }
    out += "Times               number    mean        half          99 of 100\n" +
           histogram_line("set-up", stats.at("set_up_time"));
    for (const auto& [state, histogram] : stats.at("time_in_state").items()) out += histogram_line(state, histogram);
  }
  for (const char* part : {"held", "counters"}) {
    out += part == std::string("held") ? "Held\n" : "Counted\n";
    for (const auto& [name, value] : stats.at(part).items()) {
      if (value != 0) out += "  " + padded(name, 28) + value.dump() + "\n";
    }
  }
  return out;
}

}  // namespace ucm::cli
