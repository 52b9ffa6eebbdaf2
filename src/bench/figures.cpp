#include "bench/figures.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string_view>
#include <thread>

namespace ucm::bench {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr int kQuantiles = 100;

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// `sorted` is not empty.
double quantile_us(const std::vector<std::uint32_t>& sorted, double fraction) {
  const auto index = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(index, 1, sorted.size()) - 1] / 1e3;
}

json phase_figures(std::size_t phase, std::span<const Run> runs) {
  std::vector<std::uint32_t> all;
  for (const Run& run : runs) all.insert(all.end(), run.durations[phase].begin(), run.durations[phase].end());
  if (all.empty()) return nullptr;
  std::sort(all.begin(), all.end());
  json quantiles = json::array();
  for (int i = 0; i <= kQuantiles; ++i) quantiles.push_back(quantile_us(all, static_cast<double>(i) / kQuantiles));
  return {{"name", kPhaseNames[phase]},       {"count", all.size()},
          {"p50_us", quantile_us(all, 0.5)},  {"p90_us", quantile_us(all, 0.9)},
          {"p99_us", quantile_us(all, 0.99)}, {"p999_us", quantile_us(all, 0.999)},
          {"max_us", quantile_us(all, 1.0)},  {"quantiles_us", quantiles}};
}

json median_of(std::span<const Run> runs, const std::string& process, std::optional<double> Cost::* figure) {
  std::vector<double> values;
  for (const Run& run : runs) {
    const auto cost = run.costs.find(process);
    if (cost != run.costs.end() && cost->second.*figure) values.push_back(*(cost->second.*figure));
  }
  return values.empty() ? json() : json(median(values));
}

double rate(std::uint32_t connections, double seconds) { return seconds > 0 ? connections / seconds : 0; }

}  // namespace

json new_document() {
  utsname system{};
  uname(&system);
  return {{"ucm_bench", kVersion},
          {"machine",
           {{"processor", processor()},
            {"processors", std::thread::hardware_concurrency()},
            {"kernel", std::string(system.sysname) + " " + system.release}}},
          {"ways", json::object()},
          {"cases", json::array()}};
}

json figures_of(const Workload& workload, std::span<const Run> runs) {
  json figures = {{"way", workload.way},
                  {"connections", workload.connections},
                  {"live", workload.live},
                  {"in_flight", workload.in_flight},
                  {"threads", workload.threads},
                  {"qps", workload.qps},
                  {"data_bytes", workload.data_bytes},
                  {"phases", json::array()},
                  {"processes", json::object()}};
  std::vector<double> set_up;
  std::vector<double> take_down;
  std::uint32_t failed = 0;
  for (const Run& run : runs) {
    set_up.push_back(rate(run.connected, run.set_up_s));
    take_down.push_back(rate(workload.all(), run.take_down_s));
    failed += run.failed;
    for (const auto& [process, cost] : run.costs) figures["processes"][process] = nullptr;
  }
  figures["set_up_per_s"] = median(set_up);
  figures["take_down_per_s"] = median(take_down);
  figures["set_up_per_s_runs"] = set_up;
  figures["failed"] = failed;
  for (std::size_t phase = 0; phase < kPhaseCount; ++phase) {
    if (json of_phase = phase_figures(phase, runs); !of_phase.is_null()) figures["phases"].push_back(of_phase);
  }
  for (auto& [process, costs] : figures["processes"].items()) {
    costs = {{"cpu_us", median_of(runs, process, &Cost::cpu_us)},
             {"system_calls", median_of(runs, process, &Cost::system_calls)},
             {"memory_bytes", median_of(runs, process, &Cost::memory_bytes)}};
  }
  return figures;
}

Result<void> append(json& into, const json& from) {
  if (!from.is_object() || from.value("ucm_bench", 0) != kVersion || !from.contains("cases") ||
      !from.contains("ways") || !from.contains("machine")) {
    return fail(EINVAL, "these are no figures of this version of ucm bench");
  }
  into["ways"].update(from["ways"]);
  for (const json& one : from["cases"]) into["cases"].push_back(one);
  return {};
}

namespace {

std::string heading(const json& one) {
  std::string text = fmt::format("{} connections, {} in flight, {} thread{}", one["connections"].get<std::uint32_t>(),
                                 one["in_flight"].get<std::uint32_t>(), one["threads"].get<std::uint32_t>(),
                                 one["threads"] == 1 ? "" : "s");
  if (one["live"] != 0) text += fmt::format(", {} held", one["live"].get<std::uint32_t>());
  if (!one["qps"].get<bool>()) text += ", QPs made before";
  if (one["data_bytes"] != 0) text += fmt::format(", {} bytes there and back", one["data_bytes"].get<std::uint32_t>());
  return text;
}

// Those of one heading stand together.
std::vector<std::vector<const json*>> groups_of(const json& document) {
  std::vector<std::vector<const json*>> groups;
  for (const json& one : document["cases"]) {
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return heading(*group.front()) == heading(one); });
    if (same == groups.end()) {
      groups.push_back({&one});
    } else {
      same->push_back(&one);
    }
  }
  return groups;
}

std::string number_or_dash(const json& value, int width, int digits, double unit = 1) {
  if (!value.is_number()) return fmt::format("{:>{}}", "-", width);
  return fmt::format("{:>{}.{}f}", value.get<double>() / unit, width, digits);
}

std::string phase_table(const std::vector<const json*>& group) {
  std::string text = fmt::format("  {:<10}{:>11}{:>13}   {:<11}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "way", "set up/s",
                                 "take down/s", "phase, µs", "p50", "p90", "p99", "p99.9", "max");
  for (const json* one : group) {
    const json& take_down = (*one)["take_down_per_s"];
    std::string front = fmt::format("  {:<10}", (*one)["way"].get<std::string>()) +
                        number_or_dash((*one)["set_up_per_s"], 11, 0) +
                        number_or_dash(take_down == 0 ? json() : take_down, 13, 0);
    for (const json& phase : (*one)["phases"]) {
      text += fmt::format("{:<39}{:<11}", front, phase["name"].get<std::string>());
      for (const char* key : {"p50_us", "p90_us", "p99_us", "p999_us", "max_us"}) {
        text += number_or_dash(phase[key], 10, 1);
      }
      text += "\n";
      front.clear();
    }
    if ((*one)["failed"] != 0) text += fmt::format("  {} connections failed\n", (*one)["failed"].get<std::uint32_t>());
  }
  return text;
}

std::string cost_table(const std::vector<const json*>& group) {
  std::string text = fmt::format("  {:<10}{:<10}{:>22}{:>22}{:>16}\n", "way", "process", "CPU µs/connection",
                                 "calls/connection", "KB/connection");
  for (const json* one : group) {
    std::string name = (*one)["way"];
    for (const auto& [process, cost] : (*one)["processes"].items()) {
      text += fmt::format("  {:<10}{:<10}", name, process) + number_or_dash(cost["cpu_us"], 21, 1) +
              number_or_dash(cost["system_calls"], 22, 1) + number_or_dash(cost["memory_bytes"], 16, 1, 1024) + "\n";
      name.clear();
    }
  }
  return text;
}

}  // namespace

std::string tables_of(const json& document) {
  std::string text;
  for (const auto& group : groups_of(document)) {
    text += heading(*group.front()) + "\n" + phase_table(group) + "\n" + cost_table(group) + "\n";
  }
  return text;
}

}  // namespace ucm::bench
