// ucm-bench: measures how connections are set up, by librdmacm and by what it is compared with.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string_view>
#include <vector>

#include "bench/figures.h"
#include "bench/report.h"
#include "bench/ways.h"
#include "client/connection.h"

namespace ucm::bench {
namespace {

using nlohmann::json;

struct Options {
  Workload workload{.way = {}, .address = "127.0.0.1", .service_port = 18'515, .connections = 1'000};
  std::vector<std::string> ways;
  std::vector<std::uint32_t> in_flight{1, 64};
  std::vector<std::uint32_t> live{0};
  std::vector<std::uint32_t> threads{1};
  bool no_qps = false;
  std::uint32_t runs = 5;
  bool as_json = false;
  std::string report;
  std::vector<std::string> files;
};

// ucmd, when the programs here use one.
Others find_others() {
  const char* mode = std::getenv("UCM_MODE");
  if (mode != nullptr && *mode != '\0') return {};
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node) return {};
  return {{"ucmd", static_cast<pid_t>(node->hello.reply.daemon_pid)}};
}

// A TCP connection per RDMA connection is a descriptor of each process.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<Workload> workloads_of(const Options& options) {
  std::vector<Workload> workloads;
  for (const std::uint32_t live : options.live) {
    for (const std::uint32_t threads : options.threads) {
      for (const std::uint32_t in_flight : options.in_flight) {
        Workload workload = options.workload;
        workload.live = live;
        workload.threads = threads;
        workload.in_flight = in_flight;
        workloads.push_back(std::move(workload));
      }
    }
  }
  return workloads;
}

// All ways in turn, several times, so that what the machine does besides meets all of them.
bool measure(const Workload& common, const Options& options, const Others& others, json& document) {
  std::vector<Workload> ways;
  for (const std::string& name : options.ways) {
    if (common.threads > 1 && !find_way(name)->threads) continue;
    ways.push_back(common);
    ways.back().way = name;
  }
  std::vector<std::vector<Run>> runs(ways.size());
  bool good = true;
  for (std::uint32_t i = 0; i < options.runs; ++i) {
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const std::string who = ways[w].way + ", run " + std::to_string(i + 1) + " of " + std::to_string(options.runs);
      std::fprintf(stderr, "ucm bench: %s, %u in flight\n", who.c_str(), common.in_flight);
      const Progress progress = [&](const std::string& doing, std::uint32_t done, std::uint32_t all) {
        std::fprintf(stderr, "ucm bench: %s: %s, %u of %u\n", who.c_str(), doing.c_str(), done, all);
      };
      auto result = run(ways[w], others, progress);
      if (!result) {
        std::fprintf(stderr, "ucm bench: %s: %s\n", who.c_str(), result.error().message.c_str());
        good = false;
        continue;
      }
      good = good && result->failed == 0;
      runs[w].push_back(std::move(*result));
    }
  }
  for (std::size_t w = 0; w < ways.size(); ++w) {
    if (runs[w].empty()) continue;
    document["ways"][ways[w].way] = find_way(ways[w].way)->text;
    document["cases"].push_back(figures_of(ways[w], runs[w]));
  }
  return good;
}

bool write_out(const json& document, const Options& options) {
  if (options.as_json) {
    std::cout << document.dump(2) << "\n";
  } else {
    std::cout << tables_of(document);
  }
  if (options.report.empty()) return true;
  std::ofstream out(options.report);
  out << html_report(document);
  out.close();
  if (out) return true;
  std::fprintf(stderr, "ucm bench: cannot write %s\n", options.report.c_str());
  return false;
}

int connect(const Options& options) {
  raise_descriptor_limit();
  const Others others = find_others();
  json document = new_document();
  bool good = true;
  for (const Workload& workload : workloads_of(options)) good = measure(workload, options, others, document) && good;
  if (document["cases"].empty()) return EXIT_FAILURE;
  good = write_out(document, options) && good;
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int report(const Options& options) {
  json document;
  for (const std::string& file : options.files) {
    std::ifstream in(file);
    const json figures = json::parse(in, nullptr, false);
    if (document.is_null()) {
      document = figures.is_object() ? figures : json::object();
      document["cases"] = json::array();
    }
    if (const auto added = append(document, figures); !added) {
      std::fprintf(stderr, "ucm bench: %s: %s\n", file.c_str(), added.error().message.c_str());
      return EXIT_FAILURE;
    }
  }
  return write_out(document, options) ? EXIT_SUCCESS : EXIT_FAILURE;
}

void add_output_options(CLI::App* command, Options& options) {
  command->add_flag("--json", options.as_json, "Print the figures as JSON");
  command->add_option("--report", options.report, "Write a page with plots")->type_name("FILE.html");
}

int bench_main(int argc, char** argv) {
  Options options;
  std::string ways_text;
  for (const Way& way : all_ways()) {
    options.ways.emplace_back(way.name);
    ways_text += "\n  " + std::string(way.name) + std::string(10 - way.name.size(), ' ') + std::string(way.text);
  }
  CLI::App app("Measures how connections are set up.", "ucm bench");
  app.require_subcommand(1);
  CLI::App* connecting = app.add_subcommand(
      "connect", "Set up, hold and take down connections between two processes, in several ways in turn");
  connecting->add_option("--ways", options.ways, "Which (default: all)")
      ->delimiter(',')
      ->check([](const std::string& name) { return find_way(name) != nullptr ? "" : "there is no way " + name; });
  connecting->add_option("--connections", options.workload.connections, "How many are measured in each run (1000)")
      ->check(CLI::Range(1, 1'000'000));
  connecting->add_option("--in-flight", options.in_flight, "How many are being set up at once (1,64); several: each")
      ->delimiter(',')
      ->check(CLI::Range(1, 65'536));
  connecting->add_option("--live", options.live, "How many are set up before and held meanwhile (0); several: each")
      ->delimiter(',')
      ->check(CLI::Range(0, 1'000'000));
  connecting->add_option("--threads", options.threads, "Threads of the client and of the server (1); several: each")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  connecting->add_flag("--no-qps", options.no_qps, "Make QPs before the clock runs, and leave them as they are");
  connecting
      ->add_option("--data", options.workload.data_bytes, "Send BYTES there and back on each connection (rdma_cm)")
      ->type_name("BYTES")
      ->check(CLI::Range(0, 65'536));
  connecting->add_option("--runs", options.runs, "How often (5); rates and costs are medians")
      ->check(CLI::Range(1, 1'000));
  connecting->add_option("--address", options.workload.address, "An address of this host (127.0.0.1)");
  connecting->add_option("--port", options.workload.service_port, "The first service port (18515)")
      ->check(CLI::Range(1, 65'000));
  add_output_options(connecting, options);
  connecting->footer("The ways:" + ways_text);
  CLI::App* reporting = app.add_subcommand("report", "Put figures together that were printed with --json");
  reporting->add_option("FILE", options.files, "What --json printed")->required()->check(CLI::ExistingFile);
  add_output_options(reporting, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (reporting->parsed()) return report(options);
  options.workload.qps = !options.no_qps;
  if (!options.workload.qps && options.workload.data_bytes > 0) {
    std::fprintf(stderr, "ucm bench: --data needs QPs: leave --no-qps out\n");
    return EXIT_FAILURE;
  }
  return connect(options);
}

}  // namespace
}  // namespace ucm::bench

// NOLINTNEXTLINE(bugprone-exception-escape): only memory or processes that run out, which may end a program
int main(int argc, char** argv) { return ucm::bench::bench_main(argc, argv); }
