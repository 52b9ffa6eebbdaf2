#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/markup.h"
#include "bench/figures.h"
#include "bench/plot.h"

namespace ucm::bench {
namespace {

using nlohmann::json;

constexpr const char* kStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; max-width: 800px; margin: 2em auto; padding: 0 1em; color: #222; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; margin: 1em 0; }
svg .title { font-weight: 600; font-size: 14px; }
svg .grid { stroke: #ddd; fill: none; }
svg .curve { fill: none; stroke-width: 2; }
pre { font-size: 12px; overflow-x: auto; background: #f6f6f6; padding: 1em; }
dt { font-weight: 600; float: left; clear: left; width: 6em; }
)";

std::vector<std::string> names_of(const std::vector<const json*>& cases) {
  std::vector<std::string> names;
  for (const json* one : cases) {
    const std::string name = (*one)["way"];
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::set<std::uint64_t> values_of(const json& document, const char* key) {
  std::set<std::uint64_t> values;
  for (const json& one : document["cases"]) values.insert(one[key].get<std::uint64_t>());
  return values;
}

// Those with all of these values.
using Wanted = std::map<std::string, std::uint64_t>;
std::vector<const json*> select(const json& document, const Wanted& wanted) {
  std::vector<const json*> cases;
  for (const json& one : document["cases"]) {
    const auto fits = [&](const auto& value) { return one[value.first] == value.second; };
    if (std::all_of(wanted.begin(), wanted.end(), fits)) cases.push_back(&one);
  }
  return cases;
}

// Comparisons are made with nothing held and one thread, where that was measured.
Wanted simplest(const json& document, std::uint64_t in_flight) {
  return {{"in_flight", in_flight},
          {"live", *values_of(document, "live").begin()},
          {"threads", *values_of(document, "threads").begin()}};
}

std::string rate_plot(const json& document, const char* key, const std::string& text) {
  if (values_of(document, key).size() < 2) return "";
  // With many in flight: that is where a rate is.
  Wanted wanted = simplest(document, *values_of(document, "in_flight").rbegin());
  wanted.erase(key);
  const std::vector<const json*> cases = select(document, wanted);
  std::vector<Curve> curves;
  for (const std::string& name : names_of(cases)) {
    Curve curve{.name = name, .points = {}};
    for (const json* one : cases) {
      if ((*one)["way"] == name)
        curve.points.emplace_back((*one)[key].get<double>(), (*one)["set_up_per_s"].get<double>());
    }
    std::sort(curve.points.begin(), curve.points.end());
    curves.push_back(std::move(curve));
  }
  const Scale scale = std::string_view(key) == "threads" ? Scale::kLinear : Scale::kLogarithmic;
  return line_plot("Connections set up per second against " + text, {.text = text, .scale = scale},
                   {.text = "connections per second", .scale = Scale::kLogarithmic}, curves);
}

std::string latency_plot(const json& document, std::uint64_t in_flight) {
  std::vector<Curve> curves;
  for (const json* one : select(document, simplest(document, in_flight))) {
    for (const json& phase : (*one)["phases"]) {
      if (phase["name"] != "connect") continue;
      Curve curve{.name = (*one)["way"], .points = {}};
      double percent = 0;
      for (const json& quantile : phase["quantiles_us"]) curve.points.emplace_back(quantile.get<double>(), percent++);
      curves.push_back(std::move(curve));
    }
  }
  return line_plot(fmt::format("How long connecting takes, {} in flight", in_flight),
                   {.text = "µs from the first message until data may be sent", .scale = Scale::kLogarithmic},
                   {.text = "% of connections"}, curves);
}

std::string phase_plot(const json& document, std::uint64_t in_flight) {
  std::vector<Bar> bars;
  for (const json* one : select(document, simplest(document, in_flight))) {
    Bar bar{.name = (*one)["way"], .parts = {}};
    for (const json& phase : (*one)["phases"]) {
      if (phase["name"] != "establish") bar.parts.emplace_back(phase["name"], phase["p50_us"].get<double>());
    }
    bars.push_back(std::move(bar));
  }
  return stacked_bars(
      fmt::format("Where the time of a connection goes, {} in flight (median of each phase)", in_flight), "µs", bars);
}

}  // namespace

std::string html_report(const json& document) {
  const json& machine = document["machine"];
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Setting up connections</title>";
  page += fmt::format("<style>{}</style></head><body>\n<h1>Setting up connections</h1>\n", kStyle);
  page +=
      fmt::format("<p>Measured on {} × {}, {}. Ratios within one run travel to other machines, times do not.</p>\n<dl>",
                  machine["processors"].get<unsigned>(), escaped_markup(machine["processor"].get<std::string>()),
                  escaped_markup(machine["kernel"].get<std::string>()));
  for (const auto& [way, text] : document["ways"].items()) {
    page += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped_markup(way), escaped_markup(text.get<std::string>()));
  }
  page += "</dl>\n" + rate_plot(document, "in_flight", "connections in flight") +
          rate_plot(document, "live", "connections held meanwhile") + rate_plot(document, "threads", "threads");
  const std::set<std::uint64_t> in_flight = values_of(document, "in_flight");
  for (const std::uint64_t value : std::set{*in_flight.begin(), *in_flight.rbegin()}) {
    page += latency_plot(document, value) + phase_plot(document, value);
  }
  return page + "<h2>All figures</h2>\n<pre>" + escaped_markup(tables_of(document)) + "</pre>\n</body></html>\n";
}

}  // namespace ucm::bench
