// What `ucm bench` makes of what it has measured.
#include "bench/figures.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "bench/plot.h"
#include "bench/report.h"

namespace ucm::bench {
namespace {

constexpr auto kConnect = static_cast<std::size_t>(Phase::kConnect);

Workload workload(const char* way, std::uint32_t in_flight) {
  return {.way = way, .address = "127.0.0.1", .service_port = 1, .connections = 100, .in_flight = in_flight};
}

// A hundred connections in `seconds`, connecting took 1, 2, … 100 µs.
Run run_of(double seconds) {
  Run run;
  run.set_up_s = seconds;
  run.take_down_s = seconds / 2;
  run.connected = 100;
  for (std::uint32_t i = 1; i <= 100; ++i) run.durations[kConnect].push_back(i * 1000);
  run.costs["client"] = {.cpu_us = 10 * seconds, .system_calls = std::nullopt, .memory_bytes = 2048};
  return run;
}

TEST(Figures, RatesAreTheMedianOfTheRunsAndDurationsArePutTogether) {
  const auto figures = figures_of(workload("rdma_cm", 4), std::vector{run_of(1), run_of(4), run_of(2)});
  EXPECT_EQ(figures["set_up_per_s"], 50.0);
  EXPECT_EQ(figures["take_down_per_s"], 100.0);
  EXPECT_EQ(figures["failed"], 0);
  ASSERT_EQ(figures["phases"].size(), 1u);  // those that were not measured are not there
  const auto& connect = figures["phases"][0];
  EXPECT_EQ(connect["name"], "connect");
  EXPECT_EQ(connect["count"], 300);
  EXPECT_EQ(connect["p50_us"], 50.0);
  EXPECT_EQ(connect["p99_us"], 99.0);
  EXPECT_EQ(connect["max_us"], 100.0);
  EXPECT_EQ(connect["quantiles_us"].size(), 101u);
}

TEST(Figures, WhatCouldNotBeMeasuredIsNull) {
  const auto figures = figures_of(workload("rdma_cm", 4), std::vector{run_of(1), run_of(4), run_of(2)});
  const auto& client = figures["processes"]["client"];
  EXPECT_EQ(client["cpu_us"], 20.0);
  EXPECT_TRUE(client["system_calls"].is_null());
  EXPECT_EQ(client["memory_bytes"], 2048.0);
}

TEST(Figures, DocumentsArePutTogetherAndOtherFilesRefused) {
  auto one = new_document();
  one["cases"].push_back(figures_of(workload("rdma_cm", 4), std::vector{run_of(1)}));
  auto other = new_document();
  other["ways"]["tcp"] = "a TCP connection";
  other["cases"].push_back(figures_of(workload("tcp", 4), std::vector{run_of(1)}));
  ASSERT_TRUE(append(one, other));
  EXPECT_EQ(one["cases"].size(), 2u);
  EXPECT_EQ(one["ways"]["tcp"], "a TCP connection");
  for (const char* text :
       {"null", "[]", "{}", R"({"ucm_bench":1})", R"({"ucm_bench":2,"cases":[],"ways":{},"machine":{}})"}) {
    EXPECT_EQ(append(one, nlohmann::json::parse(text)).error().code, EINVAL) << text;
  }
}

TEST(Samples, AreOfTheMeasuredConnectionsOfEveryThread) {
  Workload two = workload("rdma_cm", 4);
  two.connections = 5;
  two.live = 3;
  two.threads = 2;
  EXPECT_EQ(two.held_by(0) + two.held_by(1), 3u);
  EXPECT_EQ(two.slots_of(0) + two.slots_of(1), 8u);
  Samples samples(two);
  TimeNs duration = 100;
  for (std::uint32_t thread = 0; thread < 2; ++thread) {
    for (std::uint32_t slot = 0; slot < two.slots_of(thread) + 2; ++slot) {
      const bool measured = slot >= two.held_by(thread) && slot < two.slots_of(thread);
      samples.record(Phase::kConnect, thread, slot, measured ? ++duration : 1);
    }
  }
  const auto recorded = samples.of(Phase::kConnect);
  EXPECT_EQ(std::vector(recorded.begin(), recorded.end()), (std::vector<std::uint32_t>{101, 102, 103, 104, 105}));
}

TEST(Plot, LeavesOutWhatALogarithmicAxisCannotShow) {
  const std::string svg = line_plot("title", {.text = "x", .scale = Scale::kLogarithmic}, {.text = "y"},
                                    {{.name = "a<b", .points = {{0, 1}, {10, 2}, {100, 3}}}});
  EXPECT_NE(svg.find("a&lt;b: 10, 2"), std::string::npos);
  EXPECT_EQ(svg.find("a&lt;b: 0, 1"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Plot, ShowsNothingWithoutPoints) {
  const std::string svg = line_plot("title", {.text = "x"}, {.text = "y", .scale = Scale::kLogarithmic}, {});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Report, ComparesRatesOnlyWhereSeveralWereMeasured) {
  auto document = new_document();
  document["ways"]["rdma_cm"] = "by <librdmacm>";
  document["cases"].push_back(figures_of(workload("rdma_cm", 1), std::vector{run_of(1)}));
  EXPECT_EQ(html_report(document).find("against connections in flight"), std::string::npos);
  document["cases"].push_back(figures_of(workload("rdma_cm", 64), std::vector{run_of(1)}));
  const std::string page = html_report(document);
  EXPECT_NE(page.find("against connections in flight"), std::string::npos);
  EXPECT_NE(page.find("How long connecting takes, 64 in flight"), std::string::npos);
  EXPECT_NE(page.find("by &lt;librdmacm&gt;"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);  // nothing to load
}

}  // namespace
}  // namespace ucm::bench
