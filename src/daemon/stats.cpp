#include "daemon/stats.h"

#include <array>
#include <cinttypes>
#include <cstdio>

#include "wire/mad.h"

namespace ucm::daemon {
namespace {

using nlohmann::json;

json histogram_json(const node::Histogram& histogram) {
  json buckets = json::array();
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < node::Histogram::kBuckets; ++i) {
    below += histogram.counts[i];
    // The last one has no upper end.
    if (histogram.counts[i] != 0 && i + 1 < node::Histogram::kBuckets) {
      buckets.push_back({{"up_to_ns", node::Histogram::upper_end(i)}, {"count", below}});
    }
  }
  return {{"count", below}, {"sum_ns", histogram.sum}, {"buckets", buckets}};
}

std::string seconds(std::int64_t nanoseconds) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%" PRId64 ".%09" PRId64, nanoseconds / 1'000'000'000,
                nanoseconds % 1'000'000'000);
  return text.data();
}

std::string family(const char* name, const char* type, const char* help) {
  return std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void add_numbers(std::string& out, const std::string& metric, const char* label, const json& numbers) {
  for (const auto& [name, value] : numbers.items()) {
    out += metric + "{" + label + "=\"" + name + "\"} " + value.dump() + "\n";
  }
}

void add_histogram(std::string& out, const std::string& metric, const std::string& labels, const json& histogram) {
  const std::string comma = labels.empty() ? "" : ",";
  for (const json& bucket : histogram.at("buckets")) {
    out += metric + "_bucket{" + labels + comma + "le=\"" + seconds(bucket.at("up_to_ns")) + "\"} " +
           bucket.at("count").dump() + "\n";
  }
  const std::string count = histogram.at("count").dump();
  const std::string braces = labels.empty() ? "" : "{" + labels + "}";
  out += metric + "_bucket{" + labels + comma + "le=\"+Inf\"} " + count + "\n";
  out += metric + "_sum" + braces + " " + seconds(histogram.at("sum_ns")) + "\n";
  out += metric + "_count" + braces + " " + count + "\n";
}

}  // namespace

json recorder_stats(const node::FlightRecorder& recorder) {
  json messages = json::object();
  for (std::size_t i = 0; i < node::FlightRecorder::kMessages; ++i) {
    const std::string name(wire::name(static_cast<wire::Attribute>(i)));
    if (name.empty() && i != 0) continue;
    const node::MessageCounts& counts = recorder.messages()[i];
    messages[i != 0 ? name : "other"] = {{"sent", counts.sent},         {"repeated", counts.repeated},
                                         {"received", counts.received}, {"duplicate", counts.duplicates},
                                         {"refused", counts.refused},   {"dropped", counts.dropped}};
  }
  json states = json::object();
  json times = json::object();
  for (std::size_t i = 0; i < cm::kStateCount; ++i) {
    const auto state = static_cast<cm::State>(i);
    const std::string name(cm::name(state));
    states[name] = recorder.count_in(state);
    times[name] = histogram_json(recorder.time_in(state));
  }
  return {{"messages", messages},
          {"states", states},
          {"time_in_state", times},
          {"set_up_time", histogram_json(recorder.set_up_time())},
          {"records", recorder.total()}};
}

std::string prometheus_text(const json& stats) {
  std::string out = family("ucm_events_total", "counter", "What has been counted since the start of ucmd, by kind.");
  add_numbers(out, "ucm_events_total", "kind", stats.at("counters"));
  out += family("ucm_held", "gauge", "What is held at the moment, by kind.");
  add_numbers(out, "ucm_held", "kind", stats.at("held"));
  if (!stats.contains("messages")) return out;
  out += family("ucm_messages_total", "counter",
                "CM messages by type; repeated ones are among the sent, duplicate, refused and dropped ones among the "
                "received.");
  for (const auto& [message, counts] : stats.at("messages").items()) {
    for (const auto& [what, value] : counts.items()) {
      out += "ucm_messages_total{message=\"" + message + "\",what=\"" + what + "\"} " + value.dump() + "\n";
    }
  }
  out += family("ucm_connections", "gauge", "Connections by state.");
  add_numbers(out, "ucm_connections", "state", stats.at("states"));
  out += family("ucm_state_seconds", "histogram", "How long connections stay in a state.");
  for (const auto& [state, histogram] : stats.at("time_in_state").items()) {
    add_histogram(out, "ucm_state_seconds", "state=\"" + state + "\"", histogram);
  }
  out += family("ucm_set_up_seconds", "histogram", "From connect() or the request to the established connection.");
  add_histogram(out, "ucm_set_up_seconds", "", stats.at("set_up_time"));
  return out;
}

}  // namespace ucm::daemon
