#include "bench/runner.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "bench/gate.h"
#include "bench/process_probe.h"
#include "bench/ways.h"

namespace ucm::bench {
namespace {

constexpr int kProgressMs = 1'000;
// Nothing has come up or gone down for so long: it will not any more. Above every timeout of a connection.
constexpr int kStuckMs = 120'000;

// One of the two processes. Ends with its leader.
class Worker {
 public:
  using Body = std::function<Result<void>(Gate&)>;
  static Result<Worker> start(const Body& body) {
    Gate::Pair gates = Gate::make();
    const pid_t leader = getpid();
    const pid_t pid = fork();
    if (pid < 0) return fail(errno, "fork: " + std::generic_category().message(errno));
    if (pid == 0) {
      {
        const Gate gone = std::move(gates.leader);
      }
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != leader) _exit(EXIT_FAILURE);
      const auto done = body(gates.led);
      if (!done) gates.led.say(Stage::kFailed, done.error().message);
      _exit(done ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    return Worker(pid, std::move(gates.leader));
  }
  Worker(Worker&& other) noexcept : pid_(std::exchange(other.pid_, -1)), gate_(std::move(other.gate_)) {}
  Worker& operator=(Worker&&) = delete;
  ~Worker() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    wait();
  }

  pid_t pid() const { return pid_; }
  Gate& gate() { return gate_; }
  // Until it has ended by itself.
  void wait() {
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
    pid_ = -1;
  }

 private:
  Worker(pid_t pid, Gate gate) : pid_(pid), gate_(std::move(gate)) {}
  pid_t pid_;
  Gate gate_;
};

// Runs `each` for every element, in a thread each. The first error.
template <class T>
Result<void> in_threads(std::vector<std::unique_ptr<T>>& all,
                        const std::function<Result<void>(T&, std::uint32_t)>& each) {
  std::vector<Result<void>> results(all.size());
  std::vector<std::thread> threads;
  for (std::uint32_t i = 1; i < all.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = each(*all[i], i); });
  }
  results[0] = each(*all[0], 0);
  for (std::thread& thread : threads) thread.join();
  for (Result<void>& result : results) {
    if (!result) return result;
  }
  return {};
}

// One for each thread.
template <class T>
using Maker = Result<std::unique_ptr<T>> (*)(const Workload&, std::uint32_t thread, Samples&);
template <class T>
Result<std::vector<std::unique_ptr<T>>> make_all(Maker<T> make, const Workload& workload, Samples& samples) {
  std::vector<std::unique_ptr<T>> all;
  for (std::uint32_t thread = 0; thread < workload.threads; ++thread) {
    auto made = make(workload, thread, samples);
    if (!made) return tl::unexpected(made.error());
    all.push_back(std::move(*made));
  }
  return all;
}

Result<void> serve(const Workload& workload, const Way& way, Samples& samples, Gate& gate) {
  auto servers = make_all<Server>(way.make_server, workload, samples);
  if (!servers) return tl::unexpected(servers.error());
  gate.say(Stage::kReady);
  return in_threads<Server>(*servers, [&](Server& server, std::uint32_t) { return server.serve(gate.fd()); });
}

Result<void> connect(const Workload& workload, const Way& way, Samples& samples, Gate& gate) {
  auto clients = make_all<Client>(way.make_client, workload, samples);
  if (!clients) return tl::unexpected(clients.error());
  gate.say(Stage::kReady);
  if (const auto go = gate.hear(); !go) return tl::unexpected(go.error());
  const auto held = in_threads<Client>(
      *clients, [&](Client& client, std::uint32_t thread) { return client.set_up(workload.held_by(thread)); });
  if (!held) return held;
  gate.say(Stage::kHeld);
  if (const auto go = gate.hear(); !go) return tl::unexpected(go.error());
  const auto up = in_threads<Client>(
      *clients, [&](Client& client, std::uint32_t thread) { return client.set_up(workload.measured_by(thread)); });
  if (!up) return up;
  gate.say(Stage::kUp);
  if (const auto go = gate.hear(); !go) return tl::unexpected(go.error());
  const auto down = in_threads<Client>(*clients, [](Client& client, std::uint32_t) { return client.take_down(); });
  if (!down) return down;
  gate.say(Stage::kDown);
  const auto end = gate.hear();  // is measured before it ends
  return end ? Result<void>() : tl::unexpected(end.error());
}

// The two processes, and the people who wait for them.
class Course {
 public:
  Course(Worker& server, const Progress& progress, std::string address)
      : server_(server), progress_(progress), address_(std::move(address)) {}

  // Waits for the next word of `worker`; `done` tells how far it is with `all` connections.
  Result<void> await(Worker& worker, const std::string& doing, std::uint32_t all,
                     const std::function<std::uint32_t()>& done) {
    std::uint32_t before = 0;
    for (int waited_ms = 0; waited_ms < kStuckMs;) {
      const auto stage = worker.gate().hear(kProgressMs);
      if (stage) return {};
      if (&worker != &server_ && stage.error().code != ETIMEDOUT) return failure("the client", stage.error());
      // When both have failed, the server's is the reason.
      const auto aside = &worker != &server_ ? server_.gate().hear(0) : stage;
      if (!aside && aside.error().code != ETIMEDOUT) return failure("the server", aside.error());
      const std::uint32_t now = done();
      waited_ms = now == before ? waited_ms + kProgressMs : 0;
      before = now;
      progress_(doing, now, all);
    }
    return fail(ETIMEDOUT, doing + " does not get on: " + std::to_string(before) + " of " + std::to_string(all));
  }

 private:
  Result<void> failure(const char* who, const Error& error) const {
    return fail(error.code, std::string(who) + " on " + address_ + ": " + error.message);
  }
  Worker& server_;
  const Progress& progress_;
  const std::string address_;
};

struct Look {
  TimeNs at = 0;
  std::vector<Usage> usage;  // by probe
};
struct Moments {
  Look begin;
  TimeNs started = 0;
  Look up;
  TimeNs going_down = 0;
  Look down;
};

// The time is that of the word that was heard: looking takes some itself.
Look look_at(const std::vector<ProcessProbe>& probes) {
  Look look{.at = monotonic_now(), .usage = {}};
  for (const ProcessProbe& probe : probes) look.usage.push_back(probe.usage());
  return look;
}

template <class T>
std::optional<double> difference(const std::optional<T>& before, const std::optional<T>& after, double divisor) {
  if (!before || !after) return std::nullopt;
  return (static_cast<double>(*after) - static_cast<double>(*before)) / divisor;
}

std::optional<double> sum(const std::optional<double>& one, const std::optional<double>& other) {
  if (!one || !other) return std::nullopt;
  return *one + *other;
}

// The measured connections come up, all of them go down.
Run account(const Workload& workload, const std::vector<ProcessProbe>& probes, const Moments& moments) {
  Run run;
  run.set_up_s = static_cast<double>(moments.up.at - moments.started) / kNanosecondsPerSecond;
  run.take_down_s = static_cast<double>(moments.down.at - moments.going_down) / kNanosecondsPerSecond;
  const double measured = workload.connections;
  const double all = workload.all();
  constexpr double kUs = kNanosecondsPerMicrosecond;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const Usage& begin = moments.begin.usage[i];
    const Usage& up = moments.up.usage[i];
    const Usage& down = moments.down.usage[i];
    run.costs[probes[i].name()] = {
        .cpu_us = sum(difference(begin.cpu, up.cpu, measured * kUs), difference(up.cpu, down.cpu, all * kUs)),
        .system_calls = sum(difference(begin.system_calls, up.system_calls, measured),
                            difference(up.system_calls, down.system_calls, all)),
        .memory_bytes = difference(begin.memory_bytes, up.memory_bytes, measured)};
  }
  return run;
}

}  // namespace

Result<Run> run(const Workload& workload, const Others& others, const Progress& progress) {
  const Way* way = find_way(workload.way);
  if (way == nullptr) return fail(EINVAL, "there is no way '" + workload.way + "'");
  Samples samples(workload);
  const auto up = [&] { return samples.up() + samples.failures(); };
  const auto down = [&] { return samples.down(); };

  auto server = Worker::start([&](Gate& gate) { return serve(workload, *way, samples, gate); });
  if (!server) return tl::unexpected(server.error());
  Course course(*server, progress, workload.address);
  auto done = course.await(*server, "preparing the server", 0, up);
  if (!done) return tl::unexpected(done.error());
  auto client = Worker::start([&](Gate& gate) { return connect(workload, *way, samples, gate); });
  if (!client) return tl::unexpected(client.error());
  std::vector<ProcessProbe> probes;
  probes.emplace_back("client", client->pid());
  probes.emplace_back("server", server->pid());
  for (const auto& [name, pid] : others) probes.emplace_back(name, pid);
  done = course.await(*client, "preparing the client", 0, up);
  if (!done) return tl::unexpected(done.error());
  client->gate().say(Stage::kHeld);
  done = course.await(*client, "connecting what is held", workload.live, up);
  if (!done) return tl::unexpected(done.error());

  Moments moments;
  const std::uint32_t held = samples.up();
  moments.begin = look_at(probes);
  moments.started = monotonic_now();
  client->gate().say(Stage::kUp);
  done = course.await(*client, "connecting", workload.all(), up);
  if (!done) return tl::unexpected(done.error());
  moments.up = look_at(probes);
  moments.going_down = monotonic_now();
  client->gate().say(Stage::kDown);
  done = course.await(*client, "disconnecting", workload.all(), down);
  if (!done) return tl::unexpected(done.error());
  moments.down = look_at(probes);
  client->gate().say(Stage::kDown);
  client->wait();
  server->gate().say(Stage::kDown);
  server->wait();

  Run result = account(workload, probes, moments);
  result.connected = samples.up() - held;
  result.failed = samples.failures();
  if (samples.down() == 0) result.take_down_s = 0;
  for (std::size_t phase = 0; phase < kPhaseCount; ++phase) {
    for (const std::uint32_t duration : samples.of(static_cast<Phase>(phase))) {
      if (duration > 0) result.durations[phase].push_back(duration);
    }
  }
  return result;
}

}  // namespace ucm::bench
