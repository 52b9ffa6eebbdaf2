// ucm: runs programs over UCM, and looks after its daemon.
#include <poll.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/doctor.h"
#include "cli/look.h"
#include "cli/program_run.h"
#include "cli/recording_commands.h"
#include "cli/status_text.h"
#include "cli/text.h"
#include "client/connection.h"
#include "ipc/memfd.h"

namespace ucm::cli {
namespace {

// The status of 65,536 connections and more.
constexpr std::size_t kStatusSizeMax = 64u << 20;
// A daemon sends its last messages in far less.
constexpr int kStopTimeoutMs = 5'000;

Result<std::string> fetch_status() {
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node) return tl::unexpected(node.error());
  const auto answer = client::ask(node->socket.get(), ipc::make_request(ipc::ControlCall::kStatus, 1));
  if (!answer) return tl::unexpected(answer.error());
  return ipc::read_sealed_copy(answer->descriptors[0].get(), kStatusSizeMax);
}

enum class StatusForm { kText, kJson, kDevices };

int show_status(StatusForm form) {
  const auto text = fetch_status();
  if (!text) return say_failure(text.error());
  const auto status = nlohmann::json::parse(*text, nullptr, false);
  if (status.is_discarded()) return say_failure({EPROTO, "ucmd's status is no JSON"});
  const std::string out = form == StatusForm::kJson      ? status.dump(2) + "\n"
                          : form == StatusForm::kDevices ? devices_text(status)
                                                         : status_text(status);
  std::fputs(out.c_str(), stdout);
  return EXIT_SUCCESS;
}

int show_findings(bool as_json) {
  const std::vector<Finding> findings = judge(gather_facts());
  std::fputs(as_json ? (findings_json(findings).dump(2) + "\n").c_str() : findings_text(findings).c_str(), stdout);
  return has_problem(findings) ? EXIT_FAILURE : EXIT_SUCCESS;
}

// Returns when the daemon has let go of everybody.
int stop_daemon() {
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node) return say_failure(node.error());
  const auto answer = client::ask(node->socket.get(), ipc::make_request(ipc::ControlCall::kStop, 1));
  if (!answer) return say_failure(answer.error());
  pollfd hang_up{.fd = node->socket.get(), .events = POLLRDHUP, .revents = 0};
  poll(&hang_up, 1, kStopTimeoutMs);
  return EXIT_SUCCESS;
}

CLI::App* add_run_command(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand("run", "Run a program over UCM: ucm run [OPTIONS] -- PROGRAM [ARGUMENTS]");
  run->footer(
      "The program gets UCM's librdmacm, and UCM's or the system's libibverbs (--device). A ucmd is started in the "
      "background when none answers; it "
      "leaves\n"
      "by itself when it has been idle. The exit status is the program's; 125: ucm itself failed, 126: the program "
      "cannot\n"
      "be run, 127: there is no such program.\n"
      "UCM_MODE=off in the environment runs the program with the system's libraries, UCM_MODE=embedded is --embedded,\n"
      "UCM_SOCKET names another ucmd.");
  run->prefix_command();
  const std::map<std::string, DeviceChoice> choices{
      {"auto", DeviceChoice::kAuto}, {"soft", DeviceChoice::kSoft}, {"verbs", DeviceChoice::kVerbs}};
  run->add_option("--device", options.device,
                  "soft: UCM's software devices; verbs: the system's RDMA devices and libibverbs; auto (default): the\n"
                  "system's when it has one that can be opened")
      ->type_name("soft|verbs|auto")
      ->transform(CLI::CheckedTransformer(choices).description(""));
  run->add_flag("--embedded", options.embedded, "Run the node inside the program, without ucmd");
  run->add_option("--idle-exit,--idle", options.idle_exit_s,
                  "A ucmd started here leaves after SECONDS without any program (default: 30)")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  run->add_option("--faults", options.faults,
                  "For tests: a node started here damages what it receives, e.g. loss=5,duplicate=2,reorder=2,seed=1")
      ->type_name("SPEC");
  run->add_flag("--verbose", options.verbose, "Tell which ucmd is used");
  return run;
}

// A program beside the libraries, as it has to be able to run with others' as well.
int run_benchmark(const std::vector<std::string>& arguments) {
  const auto libraries = find_libraries();
  if (!libraries) return say_failure(libraries.error());
  RunOptions options;
  options.command.push_back(*libraries + "/ucm-bench");
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  return run_program(options);
}

int ucm_main(int argc, char** argv) {
  // What follows "--" belongs to the program, whatever it looks like.
  char** const end = argv + argc;
  char** const separator = std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  RunOptions run_options;
  if (separator != end) run_options.command.assign(separator + 1, end);

  CLI::App app("UCM: RDMA connections in user space.", "ucm");
  app.require_subcommand(1);
  app.set_version_flag("--version", "ucm " UCM_VERSION);
  CLI::App* run = add_run_command(app, run_options);
  CLI::App* status = app.add_subcommand("status", "Show the daemon, its devices, programs, listeners and connections");
  bool as_json = false;
  status->add_flag("--json", as_json, "As JSON, for programs");
  CLI::App* devices = app.add_subcommand("devices", "List the software RDMA devices and their addresses");
  CLI::App* doctor = app.add_subcommand("doctor", "Check this machine and say what to do");
  doctor->add_flag("--json", as_json, "As JSON, for programs");
  doctor->footer("The exit status is 1 when there is a problem.");
  LookCommands look(app);
  RecordingCommands recording(app);
  CLI::App* bench = app.add_subcommand("bench", "Measure how connections are set up: ucm bench connect --help");
  bench->set_help_flag();  // its own
  bench->prefix_command();
  app.add_subcommand("stop", "Stop the daemon: connections are disconnected, programs get an error");
  try {
    app.parse(static_cast<int>(separator - argv), argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }

  if (run->parsed()) {
    if (separator == end) run_options.command = run->remaining();
    if (run_options.command.empty()) {
      std::fprintf(stderr, "ucm run: no program given: ucm run [OPTIONS] -- PROGRAM [ARGUMENTS]\n");
      return kExitOwnFailure;
    }
    return run_program(run_options);
  }
  if (bench->parsed()) return run_benchmark(bench->remaining());
  if (status->parsed()) return show_status(as_json ? StatusForm::kJson : StatusForm::kText);
  if (devices->parsed()) return show_status(StatusForm::kDevices);
  if (doctor->parsed()) return show_findings(as_json);
  if (look.parsed()) return look.run();
  if (recording.parsed()) return recording.run();
  return stop_daemon();
}

}  // namespace
}  // namespace ucm::cli

// NOLINTNEXTLINE(bugprone-exception-escape): only memory that runs out, which may end a program
int main(int argc, char** argv) { return ucm::cli::ucm_main(argc, argv); }
