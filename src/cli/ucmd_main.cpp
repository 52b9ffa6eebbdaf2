// ucmd: the node of a host (or of a network namespace) as a daemon.
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "cli/detach.h"
#include "cli/log.h"
#include "cli/privileges.h"
#include "cli/settings.h"
#include "cli/supervisor.h"
#include "client/connection.h"
#include "daemon/instance.h"
#include "ipc/control_socket.h"
#include "net/fault_port.h"

namespace ucm::cli {
namespace {

struct DaemonOptions {
  bool foreground = false;
  bool check_config = false;
  std::string config;  // empty: kSettingsFile where there is one
  std::string socket_name;
  std::string faults;
  Settings settings;
  std::string resume;  // by ucm-holder: kResumeEverything, or something else after failures
  bool resumes() const { return !resume.empty(); }
};

constexpr std::string_view kResumeEverything = "everything";

// A start that meets another one waits this long in all for the other to answer or to fail.
constexpr int kNameTries = 100;
constexpr int kNameRetryMs = 20;

std::string default_socket_name() {
  const char* name = std::getenv("UCM_SOCKET");
  return name != nullptr && *name != '\0' ? name : ipc::socket_name_of(geteuid());
}

// What is given takes the place of what is in `options`.
int parse_arguments(int argc, char** argv, DaemonOptions& options, bool& finished) {
  CLI::App app(
      "UCM's daemon: owns UDP 4791 of this network namespace, speaks the RDMA connection manager's protocol, and "
      "serves\n"
      "the programs of `ucm run`. Goes into the background once it is ready.",
      "ucmd");
  Settings& settings = options.settings;
  app.add_flag("--foreground", options.foreground, "Stay in the foreground and log to standard error");
  app.add_option("--config", options.config, std::string("Settings (default: ") + kSettingsFile + ", if it is there)")
      ->type_name("FILE");
  app.add_flag("--check-config", options.check_config, "Only say whether the settings are good");
  app.add_option("--socket", options.socket_name,
                 "Abstract UNIX socket to serve (default: UCM_SOCKET, or @ucm for root and @ucm.UID for others)");
  app.add_option("--idle-exit", settings.idle_exit_s, "Leave after SECONDS without any program (default: never)")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--faults", options.faults,
                 "For tests: damage what is received, e.g. loss=5,duplicate=2,reorder=2,corrupt=0,seed=1 (percent)")
      ->type_name("SPEC");
  app.add_option("--log-level", settings.log_level, "debug, info, warning, error or off (default: info)")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}));
  app.add_option("--log-format", settings.log_format, "text or json (default: text)")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_option("--log-file", settings.log_file, "Append the log to a file")->type_name("PATH");
  app.add_option("--flight-records", settings.flight_records,
                 "What the flight recorder keeps, a power of two; 64 bytes each (default: 65536; 0: no recorder)")
      ->type_name("NUMBER")
      ->check([](const std::string& text) {
        std::int64_t value = -1;
        std::from_chars(text.data(), text.data() + text.size(), value);
        return check_flight_records(value);
      });
  app.add_option("--metrics", settings.metrics,
                 "Serve figures for Prometheus at http://ADDRESS:PORT/metrics; a port alone is on 127.0.0.1")
      ->type_name("[ADDRESS:]PORT")
      ->check(check_metrics);
  app.add_option("--resume", options.resume)->group("");  // for ucm-holder alone
  app.set_version_flag("--version", "ucmd " UCM_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    finished = true;
    return app.exit(error);
  }
  if (options.socket_name.empty()) options.socket_name = default_socket_name();
  // ucmd may go to another folder before it reads or opens them again.
  if (!options.config.empty()) options.config = std::filesystem::absolute(options.config);
  if (!settings.log_file.empty()) settings.log_file = std::filesystem::absolute(settings.log_file);
  return 0;
}

bool exists(const char* path) { return access(path, F_OK) == 0; }

// The file's settings, and in their place what the command line says.
Result<DaemonOptions> with_settings(int argc, char** argv, const DaemonOptions& given) {
  DaemonOptions options;
  const std::string file = !given.config.empty() ? given.config : exists(kSettingsFile) ? kSettingsFile : "";
  if (!file.empty()) {
    auto settings = read_settings(file);
    if (!settings) return tl::unexpected(settings.error());
    options.settings = std::move(*settings);
  }
  bool finished = false;
  parse_arguments(argc, argv, options, finished);
  options.config = file;
  return options;
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

// Readable when one of the signals has come.
Result<ipc::FileDescriptor> signal_descriptor(std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : numbers) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  ipc::FileDescriptor fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail(EMFILE, "signalfd failed");
  return fd;
}

bool read_signal(int fd, signalfd_siginfo& signal) { return ::read(fd, &signal, sizeof signal) == sizeof signal; }

std::string monotonic_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::to_string(std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000);
}

Result<daemon::InstanceOptions> instance_options(const DaemonOptions& options) {
  daemon::InstanceOptions result{.node = {}, .socket_name = options.socket_name, .log = write_log};
  result.node.limits = options.settings.limits;
  result.node.flight_records = options.settings.flight_records;
  if (options.settings.idle_exit_s > 0) {
    result.idle_exit_ns =
        static_cast<TimeNs>(options.settings.idle_exit_s * static_cast<double>(kNanosecondsPerSecond));
  }
  if (const std::string& metrics = options.settings.metrics; !metrics.empty()) {
    result.metrics = *daemon::parse_metrics_address(metrics);
  }
  if (!options.faults.empty()) {
    const auto faults = net::FaultSpec::parse(options.faults);
    if (!faults) return fail(faults.error().code, "--faults: " + faults.error().message);
    result.node.faults = *faults;
  }
  return result;
}

// Takes what can change while it runs; a fault leaves everything as it was.
void reload(daemon::Instance& instance, const std::function<Result<DaemonOptions>()>& read, Settings& current) {
  const auto options = read();
  if (!options) return spdlog::error("settings are not read again: {}", options.error().message);
  if (const auto log = set_up_log(options->settings); !log) {
    return spdlog::error("settings are not read again: {}", log.error().message);
  }
  instance.set_limits(options->settings.limits);
  if (options->settings.flight_records != current.flight_records) {
    spdlog::warn("node.flight_records is another one only after a new start");
  }
  if (options->settings.idle_exit_s != current.idle_exit_s) {
    spdlog::warn("node.idle_exit_s is another one only after a new start");
  }
  if (options->settings.metrics != current.metrics) {
    spdlog::warn("node.metrics is another one only after a new start");
  }
  current.limits = options->settings.limits;
  spdlog::info("settings read again from {}", options->config.empty() ? "the command line" : options->config);
}

// The command line of the next ucmd, when this one dies.
Result<std::vector<std::string>> successor_of(int argc, char** argv) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return fail(error.value(), "/proc/self/exe: " + error.message());
  std::vector<std::string> arguments{program};
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  return arguments;
}

// Starts the keeper, or takes back what a ucmd that has died has left with it.
Result<daemon::Keeper> open_keeper(const DaemonOptions& options, const std::vector<std::string>& successor) {
  if (options.resumes()) return daemon::Keeper::resume(ipc::FileDescriptor(ipc::kHolderDescriptor));
  const auto holder = std::filesystem::path(successor[0]).parent_path() / ".." / "lib" / "ucm" / "ucm-holder";
  return daemon::Keeper::start(holder.lexically_normal().string(), successor);
}

using OptionalJournal = std::optional<node::Journal>;

Result<std::unique_ptr<daemon::Instance>> open_fresh(daemon::InstanceOptions& settings, OptionalJournal& journal) {
  if (settings.keeper != nullptr) {
    auto fresh = settings.keeper->new_journal();
    if (!fresh) return tl::unexpected(fresh.error());
    journal.emplace(std::move(*fresh));
    settings.journal = &*journal;
  }
  settings.restore = false;
  return daemon::Instance::open(settings);
}

// Goes on with what was kept. Where that cannot be, starts from nothing and says why: the programs see their sessions
// end.
Result<std::unique_ptr<daemon::Instance>> open_resumed(const DaemonOptions& options, daemon::InstanceOptions& settings,
                                                       OptionalJournal& journal) {
  auto kept = settings.keeper->kept_journal();
  Error why{ECANCELED, "ucmd has ended several times in a row"};
  if (!kept) {
    why = kept.error();
  } else if (options.resume == kResumeEverything) {
    journal.emplace(std::move(*kept));
    settings.journal = &*journal;
    settings.restore = true;
    auto instance = daemon::Instance::open(settings);
    if (instance || instance.error().code != EPROTO) return instance;
    why = instance.error();
  }
  spdlog::error("the connections of programs are lost: {}", why.message);
  auto instance = open_fresh(settings, journal);
  settings.keeper->release_rest();
  return instance;
}

// Where a ucmd is at home.
struct Surroundings {
  const std::function<Result<DaemonOptions>()>& read;  // the settings, again
  StartReport& report;
  Supervisor& supervisor;
};

Result<void> serve(DaemonOptions& options, const Surroundings& around, daemon::Keeper* keeper,
                   ipc::FileDescriptor listener, int stop_fd, int reload_fd) {
  auto settings = instance_options(options);
  if (!settings) return tl::unexpected(settings.error());
  settings->socket_name = listener_name(listener.get());
  settings->keeper = keeper;
  OptionalJournal journal;
  auto opened = options.resumes() ? open_resumed(options, *settings, journal) : open_fresh(*settings, journal);
  if (!opened) return tl::unexpected(opened.error());
  daemon::Instance& instance = **opened;
  auto serving = instance.stop_when_readable(stop_fd);
  if (serving) {
    serving = instance.when_readable(reload_fd, [&] {
      signalfd_siginfo signal{};
      while (read_signal(reload_fd, signal)) continue;
      around.supervisor.tell("RELOADING=1\nMONOTONIC_USEC=" + monotonic_us());
      reload(instance, around.read, options.settings);
      around.supervisor.tell("READY=1");
    });
  }
  if (serving) serving = instance.serve(std::move(listener));
  if (serving) serving = drop_privileges();
  if (!serving) return serving;
  if (around.supervisor.watchdog_interval() != kNever) {
    instance.every(around.supervisor.watchdog_interval(), [&] { around.supervisor.tell("WATCHDOG=1"); });
  }
  spdlog::info("ucmd {} {} {} as process {}", UCM_VERSION, options.resumes() ? "goes on serving" : "serves",
               settings->socket_name, getpid());
  around.report.succeeded();
  around.supervisor.tell("READY=1\nSTATUS=serves " + settings->socket_name);
  instance.run();
  around.supervisor.tell("STOPPING=1");
  spdlog::info("ucmd ends");
  return {};
}

// Runs until the end; the report is made as soon as the start is decided.
Result<void> run_daemon(DaemonOptions options, const Surroundings& around, const std::vector<std::string>& successor) {
  if (auto logging = set_up_log(options.settings); !logging) return logging;
  std::signal(SIGPIPE, SIG_IGN);
  const auto stop_fd = signal_descriptor({SIGTERM, SIGINT});
  const auto reload_fd = signal_descriptor({SIGHUP});
  if (!stop_fd || !reload_fd) return tl::unexpected((stop_fd ? reload_fd : stop_fd).error());
  raise_descriptor_limit();

  // A supervisor starts the next ucmd itself, and ends all that this one has started.
  const bool kept = !around.supervisor.present();
  Result<ipc::FileDescriptor> listener{};
  if (!options.resumes()) {
    listener = around.supervisor.take_listener();
    if (listener && !*listener) listener = take_name(options.socket_name);
    if (!listener) return tl::unexpected(listener.error());
    if (!*listener) {
      spdlog::info("a ucmd answers on {} already", options.socket_name);
      around.report.succeeded();
      return {};
    }
  }
  std::optional<daemon::Keeper> keeper;
  if (kept) {
    auto opened = open_keeper(options, successor);
    if (!opened) return tl::unexpected(opened.error());
    keeper.emplace(std::move(*opened));
  }
  if (options.resumes()) {
    *listener = std::move(keeper->take(daemon::Keeper::What::kListener)[0]);
  } else if (keeper) {
    keeper->hold(daemon::Keeper::What::kListener, 0, std::array{listener->get()});
  }
  auto served =
      serve(options, around, keeper ? &*keeper : nullptr, std::move(*listener), stop_fd->get(), reload_fd->get());
  // Only a successor that fails may be followed by another one.
  if (keeper && (served || !options.resumes())) keeper->end();
  return served;
}

int check_config(const DaemonOptions& options) {
  if (options.config.empty()) {
    std::printf("there is no %s: every setting has its default\n", kSettingsFile);
  } else {
    std::printf("%s: good\n", options.config.c_str());
  }
  return EXIT_SUCCESS;
}

int daemon_main(int argc, char** argv) {
  DaemonOptions given;
  bool finished = false;
  if (const int code = parse_arguments(argc, argv, given, finished); finished) return code;
  StartReport report;
  const std::function<Result<DaemonOptions>()> read = [&] { return with_settings(argc, argv, given); };
  const auto options = read();
  if (!options) {
    report.failed(options.error().message);
    return EXIT_FAILURE;
  }
  if (given.check_config) return check_config(*options);
  const auto successor = successor_of(argc, argv);
  if (!successor) {
    report.failed(successor.error().message);
    return EXIT_FAILURE;
  }
  Supervisor supervisor;
  if (given.resumes()) {
    // Its holder was started by a ucmd that had none.
  } else if (given.foreground) {
    supervisor = Supervisor::from_environment();
  } else {
    close_inherited_descriptors();
    auto detached = detach();
    if (!detached) {
      report.failed(detached.error().message);
      return EXIT_FAILURE;
    }
    report = std::move(*detached);
  }
  const auto ran = run_daemon(*options, {.read = read, .report = report, .supervisor = supervisor}, *successor);
  if (!ran) report.failed(ran.error().message);
  return ran ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace ucm::cli

// NOLINTNEXTLINE(bugprone-exception-escape): only memory that runs out, which may end a program
int main(int argc, char** argv) { return ucm::cli::daemon_main(argc, argv); }
