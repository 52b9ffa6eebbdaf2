#include "cli/program_run.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/result.h"
#include "cli/system_devices.h"
#include "client/connection.h"
#include "net/fault_port.h"

namespace ucm::cli {
namespace {

namespace fs = std::filesystem;

// A ucmd that is just leaving is met again after this; several may come one after the other.
constexpr int kNodeTries = 50;
constexpr int kNodeRetryMs = 20;

std::string_view mode_from_environment() {
  const char* mode = std::getenv("UCM_MODE");
  return mode != nullptr ? mode : "";
}

Result<fs::path> own_folder() {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail(error.value(), "/proc/self/exe: " + error.message());
  return executable.parent_path();
}

std::string software_device_folder(const std::string& libraries) { return libraries + "/soft"; }

// Puts `folders` in front, and takes away what another `ucm run` around this one has put there.
void set_library_path(const std::vector<std::string>& folders, const std::string& libraries) {
  std::string path;
  const auto append = [&](const std::string& folder) { path += (path.empty() ? "" : ":") + folder; };
  for (const std::string& folder : folders) append(folder);
  const char* before = std::getenv("LD_LIBRARY_PATH");
  std::istringstream inherited(before != nullptr ? before : "");
  for (std::string folder; std::getline(inherited, folder, ':');) {
    if (folder != libraries && folder != software_device_folder(libraries)) append(folder);
  }
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
}

// Waits until the daemon is ready; it says itself on standard error what went wrong.
Result<void> start_daemon(const fs::path& programs, const RunOptions& options) {
  const std::string executable = (programs / "ucmd").string();
  std::vector<std::string> arguments{executable, "--idle-exit", std::to_string(options.idle_exit_s)};
  if (!options.faults.empty()) arguments.insert(arguments.end(), {"--faults", options.faults});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  const pid_t child = fork();
  if (child < 0) return fail(errno, "fork: " + std::generic_category().message(errno));
  if (child == 0) {
    execv(executable.c_str(), argv.data());
    std::fprintf(stderr, "ucm: %s: %s\n", executable.c_str(), std::generic_category().message(errno).c_str());
    _exit(kExitNotFound);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail(ECHILD, "ucmd did not start");
}

void tell(const RunOptions& options, const std::string& text) {
  if (options.verbose) std::fprintf(stderr, "ucm: %s\n", text.c_str());
}

// A node answers when this returns.
Result<void> ensure_daemon(const fs::path& programs, const RunOptions& options) {
  Error last;
  for (int i = 0; i < kNodeTries; ++i) {
    const auto node = client::connect_node(ipc::Role::kTool);
    if (node) {
      tell(options, "using ucmd on " + node->socket_name + ", process " + std::to_string(node->hello.reply.daemon_pid));
      if (i == 0 && !options.faults.empty()) {
        std::fprintf(stderr, "ucm: ucmd is running already; --faults has no effect on it\n");
      }
      return {};
    }
    last = node.error();
    if (last.code == ECONNREFUSED) {
      tell(options, "starting ucmd");
      if (auto started = start_daemon(programs, options); !started) return started;
    } else if (last.code == ENOTCONN) {
      poll(nullptr, 0, kNodeRetryMs);
    } else {
      break;
    }
  }
  return tl::unexpected(last);
}

// Settles on the system's devices or UCM's.
Result<bool> use_system_devices(const RunOptions& options) {
  if (options.device == DeviceChoice::kSoft) return false;
  // They are for software devices.
  const bool soft_wanted = options.embedded || mode_from_environment() == "embedded" || !options.faults.empty();
  if (options.device == DeviceChoice::kAuto && soft_wanted) return false;
  if (soft_wanted) return fail(EINVAL, "--embedded and --faults are for software devices: not with --device verbs");
  const SystemDevices devices = look_at_system_devices();
  const std::string names = joined(devices.usable);
  if (const auto usable = judge_usable(devices); usable) {
    for (const Error& refused : devices.refused) std::fprintf(stderr, "ucm: %s\n", refused.message.c_str());
    tell(options, "using the system's RDMA devices (" + names + "), and the kernel's rdma_cm for connections");
    return true;
  } else if (options.device == DeviceChoice::kVerbs) {
    return tl::unexpected(usable.error());
  } else {
    // Without any device there is nothing to say.
    const bool present = !devices.usable.empty() || !devices.refused.empty();
    if (present) std::fprintf(stderr, "ucm: %s: using software devices\n", usable.error().message.c_str());
    return false;
  }
}

Result<void> prepare(const RunOptions& options) {
  const std::string_view mode = mode_from_environment();
  if (mode == "off") return {};
  if (!mode.empty() && mode != "embedded") {
    return fail(EINVAL, "UCM_MODE=" + std::string(mode) + " is not known: embedded, off, or not set");
  }
  if (!options.faults.empty()) {
    if (const auto faults = net::FaultSpec::parse(options.faults); !faults) {
      return fail(EINVAL, "--faults: " + faults.error().message);
    }
  }
  const auto programs = own_folder();
  if (!programs) return tl::unexpected(programs.error());
  const auto libraries = find_libraries();
  if (!libraries) return tl::unexpected(libraries.error());
  const auto system = use_system_devices(options);
  if (!system) return tl::unexpected(system.error());
  setenv("UCM_DEVICE", *system ? "verbs" : "soft", 1);
  if (*system) {
    // No node: the kernel makes the connections.
    set_library_path({*libraries}, *libraries);
    return {};
  }
  if (options.embedded || mode == "embedded") {
    setenv("UCM_MODE", "embedded", 1);
    if (!options.faults.empty()) setenv("UCM_FAULTS", options.faults.c_str(), 1);
  } else if (const auto daemon = ensure_daemon(*programs, options); !daemon) {
    return daemon;
  }
  set_library_path({software_device_folder(*libraries), *libraries}, *libraries);
  return {};
}

}  // namespace

// The build tree and an installed tree have the same shape: bin beside lib/ucm.
Result<std::string> find_libraries() {
  const auto programs = own_folder();
  if (!programs) return tl::unexpected(programs.error());
  const fs::path folder = (*programs / ".." / "lib" / "ucm").lexically_normal();
  std::error_code error;
  if (fs::exists(folder / "libucm_runtime.so.0", error)) return folder.string();
  return fail(ENOENT, "no libucm_runtime.so.0 in " + folder.string() + ": is UCM built or installed completely?");
}

int run_program(const RunOptions& options) {
  if (const auto prepared = prepare(options); !prepared) {
    std::fprintf(stderr, "ucm: %s\n", prepared.error().message.c_str());
    return kExitOwnFailure;
  }
  std::vector<char*> argv;
  for (const std::string& argument : options.command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int code = errno;
  std::fprintf(stderr, "ucm: %s: %s\n", argv[0], std::generic_category().message(code).c_str());
  return code == ENOENT ? kExitNotFound : kExitNotExecutable;
}

}  // namespace ucm::cli
