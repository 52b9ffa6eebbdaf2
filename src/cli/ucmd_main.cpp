// ucmd: the node of a host (or of a network namespace) as a daemon.
#include <poll.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "cli/detach.h"
#include "client/connection.h"
#include "daemon/instance.h"
#include "ipc/control_socket.h"
#include "net/fault_port.h"

namespace ucm::cli {
namespace {

struct DaemonOptions {
  bool foreground = false;
  std::string socket_name;
  double idle_exit_s = 0;  // 0 = never
  std::string faults;
  std::string log_level = "info";
  std::string log_file;
  std::uint32_t flight_records = 65536;
  std::string metrics;
};

// One GiB.
constexpr std::uint32_t kFlightRecordsMax = 1u << 24;
// A start that meets another one waits this long in all for the other to answer or to fail.
constexpr int kNameTries = 100;
constexpr int kNameRetryMs = 20;

std::string default_socket_name() {
  const char* name = std::getenv("UCM_SOCKET");
  return name != nullptr && *name != '\0' ? name : ipc::socket_name_of(geteuid());
}

int parse_arguments(int argc, char** argv, DaemonOptions& options, bool& finished) {
  CLI::App app(
      "UCM's daemon: owns UDP 4791 of this network namespace, speaks the RDMA connection manager's protocol, and "
      "serves\n"
      "the programs of `ucm run`. Goes into the background once it is ready.",
      "ucmd");
  app.add_flag("--foreground", options.foreground, "Stay in the foreground and log to standard error");
  app.add_option("--socket", options.socket_name,
                 "Abstract UNIX socket to serve (default: UCM_SOCKET, or @ucm for root and @ucm.UID for others)");
  app.add_option("--idle-exit", options.idle_exit_s, "Leave after SECONDS without any program (default: never)")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--faults", options.faults,
                 "For tests: damage what is received, e.g. loss=5,duplicate=2,reorder=2,corrupt=0,seed=1 (percent)")
      ->type_name("SPEC");
  app.add_option("--log-level", options.log_level, "debug, info, warning, error or off (default: info)")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}));
  app.add_option("--log-file", options.log_file, "Append the log to a file")->type_name("PATH");
  app.add_option("--flight-records", options.flight_records,
                 "What the flight recorder keeps, a power of two; 64 bytes each (default: 65536; 0: no recorder)")
      ->type_name("NUMBER");
  app.add_option("--metrics", options.metrics,
                 "Serve figures for Prometheus at http://ADDRESS:PORT/metrics; a port alone is on 127.0.0.1")
      ->type_name("[ADDRESS:]PORT");
  app.set_version_flag("--version", "ucmd " UCM_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    finished = true;
    return app.exit(error);
  }
  if (options.socket_name.empty()) options.socket_name = default_socket_name();
  return 0;
}

Result<void> start_logging(const DaemonOptions& options) {
  std::shared_ptr<spdlog::logger> logger;
  try {
    if (!options.log_file.empty()) {
      logger = spdlog::basic_logger_mt("ucmd", options.log_file);
      logger->flush_on(spdlog::level::info);
    } else {
      logger = spdlog::stderr_color_mt("ucmd");
    }
  } catch (const spdlog::spdlog_ex& error) {
    return fail(EIO, error.what());
  }
  logger->set_level(spdlog::level::from_str(options.log_level));
  spdlog::set_default_logger(std::move(logger));
  return {};
}

void write_log(daemon::LogLevel level, const std::string& text) {
  switch (level) {
    case daemon::LogLevel::kDebug:
      return spdlog::debug("{}", text);
    case daemon::LogLevel::kInfo:
      return spdlog::info("{}", text);
    case daemon::LogLevel::kWarning:
      return spdlog::warn("{}", text);
  }
}

// A thousand programs need more descriptors than the usual soft limit.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The listening socket; an invalid descriptor when another ucmd answers on the name already.
Result<ipc::FileDescriptor> take_name(const std::string& name) {
  Error last;
  for (int i = 0; i < kNameTries; ++i) {
    auto listener = ipc::listen_on(name);
    if (listener || listener.error().code != EADDRINUSE) return listener;
    const auto other = client::connect_node_at(name, ipc::Role::kTool);
    if (other) return ipc::FileDescriptor();
    if (other.error().code != ECONNREFUSED && other.error().code != ENOTCONN) return tl::unexpected(other.error());
    last = other.error();
    poll(nullptr, 0, kNameRetryMs);
  }
  return tl::unexpected(last);
}

Result<ipc::FileDescriptor> signals_to_stop() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  ipc::FileDescriptor fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail(EMFILE, "signalfd failed");
  return fd;
}

Result<daemon::InstanceOptions> instance_options(const DaemonOptions& options) {
  daemon::InstanceOptions result{.node = {}, .socket_name = options.socket_name, .log = write_log};
  if (options.flight_records > kFlightRecordsMax ||
      (options.flight_records != 0 && !std::has_single_bit(options.flight_records))) {
    return fail(EINVAL, "--flight-records: not a power of two up to " + std::to_string(kFlightRecordsMax) + ", or 0");
  }
  result.node.flight_records = options.flight_records;
  if (options.idle_exit_s > 0) {
    result.idle_exit_ns = static_cast<TimeNs>(options.idle_exit_s * static_cast<double>(kNanosecondsPerSecond));
  }
  if (!options.metrics.empty()) {
    const auto address = daemon::parse_metrics_address(options.metrics);
    if (!address) return fail(address.error().code, "--metrics: " + address.error().message);
    result.metrics = *address;
  }
  if (!options.faults.empty()) {
    const auto faults = net::FaultSpec::parse(options.faults);
    if (!faults) return fail(faults.error().code, "--faults: " + faults.error().message);
    result.node.faults = *faults;
  }
  return result;
}

// Runs until the end; the report is made as soon as the start is decided.
Result<void> run_daemon(const DaemonOptions& options, StartReport& report) {
  if (auto logging = start_logging(options); !logging) return logging;
  const auto instance_settings = instance_options(options);
  if (!instance_settings) return tl::unexpected(instance_settings.error());
  const auto stop_fd = signals_to_stop();
  if (!stop_fd) return tl::unexpected(stop_fd.error());
  raise_descriptor_limit();

  auto listener = take_name(options.socket_name);
  if (!listener) return tl::unexpected(listener.error());
  if (!*listener) {
    spdlog::info("a ucmd answers on {} already", options.socket_name);
    report.succeeded();
    return {};
  }
  auto instance = daemon::Instance::open(*instance_settings);
  if (!instance) return tl::unexpected(instance.error());
  auto serving = (*instance)->stop_when_readable(stop_fd->get());
  if (serving) serving = (*instance)->serve(std::move(*listener));
  if (!serving) return serving;
  spdlog::info("ucmd {} serves {} as process {}", UCM_VERSION, options.socket_name, getpid());
  report.succeeded();
  (*instance)->run();
  spdlog::info("ucmd ends");
  return {};
}

int daemon_main(int argc, char** argv) {
  DaemonOptions options;
  bool finished = false;
  if (const int code = parse_arguments(argc, argv, options, finished); finished) return code;
  StartReport report;
  if (!options.foreground) {
    close_inherited_descriptors();
    auto detached = detach();
    if (!detached) {
      report.failed(detached.error().message);
      return EXIT_FAILURE;
    }
    report = std::move(*detached);
    std::signal(SIGHUP, SIG_IGN);
  }
  const auto ran = run_daemon(options, report);
  if (!ran) report.failed(ran.error().message);
  return ran ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace ucm::cli

// NOLINTNEXTLINE(bugprone-exception-escape): only memory that runs out, which may end a program
int main(int argc, char** argv) { return ucm::cli::daemon_main(argc, argv); }
