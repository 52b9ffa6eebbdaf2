#include "cli/recording_commands.h"

#include <sys/socket.h>

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "cli/record_text.h"
#include "cli/recording_file.h"
#include "cli/retelling.h"
#include "cli/text.h"
#include "cli/trace_text.h"
#include "client/connection.h"
#include "client/observe.h"

namespace ucm::cli {

using recording::Player;

// Called with each input that is shown, just before the engine gets it: the place for a breakpoint.
[[gnu::noinline]] void replay_input(std::uint64_t number, const recording::Record& input) {
  std::printf("%" PRIu64 " %s\n", number, record_text(input).c_str());
  std::fflush(stdout);
}

namespace {

constexpr std::uint64_t kMib = 1u << 20;
// Inputs shown before the one that differs.
constexpr std::size_t kContext = 5;

volatile std::sig_atomic_t socket_to_close = -1;
volatile std::sig_atomic_t interrupted = 0;

// The daemon's answer then has its end.
void on_signal(int) {
  interrupted = 1;
  shutdown(socket_to_close, SHUT_RDWR);
}

void end_on_signals(int socket) {
  socket_to_close = socket;
  struct sigaction action{};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

// What of two records is not the same, a line for each field.
std::string difference_text(const Player::Difference& difference) {
  const auto played = recording::parse(difference.played);
  const std::string now = played ? record_text(played->record) : "nothing";
  const std::string recorded = difference.recorded ? record_text(difference.recorded->record) : "nothing";
  std::string text = "  recorded: " + recorded + "\n  now:      " + now + "\n";
  if (!played || !difference.recorded || played->record.index() != difference.recorded->record.index()) return text;
  const auto before = fields_of(difference.recorded->record);
  const auto after = fields_of(played->record);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    text +=
        "  " + before[i].first + "\n    recorded: " + before[i].second + "\n    now:      " + after[i].second + "\n";
  }
  return text;
}

}  // namespace

RecordingCommands::RecordingCommands(CLI::App& app)
    : record_(app.add_subcommand("record", "Record what the daemon's engine gets and does, for `ucm replay`")),
      replay_(app.add_subcommand("replay", "Do again what was recorded, and compare")) {
  record_->add_option("FILE", file_, "The recording")->required();
  record_->add_option("--limit", limit_mib_, "End when the file is so large (default: 256)")
      ->type_name("MIB")
      ->check(CLI::PositiveNumber);
  record_->footer(
      "Begins with an engine that has no connections, as a daemon's just started, and goes on until Ctrl-C. The file\n"
      "has all private data, and tells the comm IDs and PSNs that the daemon goes on to choose: keep it to yourself.");
  replay_->add_option("FILE", file_, "The recording")->required();
  replay_->add_flag("--step", step_, "Show each input with what it did");
  replay_->add_option("--from", from_, "Show from this input on")->type_name("N")->check(CLI::PositiveNumber);
  replay_->add_option("--write", write_, "Write a recording of the same inputs and what this version makes of them")
      ->type_name("FILE");
  replay_->footer(
      "The exit status is 1 when something differs, or the file cannot be read to its end. In a debugger:\n"
      "gdb -ex 'break ucm::cli::replay_input' -ex run --args ucm replay --from N FILE");
}

int RecordingCommands::record() const {
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node) return say_failure(node.error());
  end_on_signals(node->socket.get());
  std::optional<Result<RecordingWriter>> writer;
  Result<void> written;
  bool full = false;
  const auto done = client::observe(node->socket.get(), ipc::Subject::kRecord, 0, [&](Bytes piece) {
    if (!writer) {
      writer = RecordingWriter::create(file_, {.wall_offset_ns = wall_offset_ns(), .writer = "ucm " UCM_VERSION});
      if (*writer) std::fprintf(stderr, "ucm record: recording to %s until Ctrl-C\n", file_.c_str());
    }
    if (!*writer) return false;
    full = (*writer)->size() + piece.size() > limit_mib_ * kMib;
    if (!full) written = (*writer)->append(piece);
    return written && !full;
  });
  if (!writer) return interrupted != 0 ? EXIT_FAILURE : say_failure(done.error());
  if (!*writer) return say_failure(writer->error());
  if (written) written = (*writer)->finish();
  if (!written) return say_failure(written.error());
  const char* const why = interrupted != 0 ? ""
                          : full           ? "; it has its size limit (--limit)"
                          : done           ? "; it was written too slowly for the daemon to wait"
                                           : "; the daemon has ended";
  std::fprintf(stderr, "ucm record: %" PRIu64 " bytes in %s%s\n", (*writer)->size(), file_.c_str(), why);
  return EXIT_SUCCESS;
}

int RecordingCommands::replay() const {
  const auto file = read_file(file_);
  if (!file) return say_failure(file.error());
  std::vector<std::uint8_t> copy;
  std::function<void(Bytes)> keep;
  if (!write_.empty()) keep = [&](Bytes record) { copy.insert(copy.end(), record.begin(), record.end()); };
  const auto opened = Player::open(*file, keep);
  if (!opened) return say_failure({opened.error().code, file_ + ": " + opened.error().message});
  Player& player = **opened;
  const std::string context = play(player);
  if (const auto& difference = player.difference()) {
    std::printf("%s: after input %" PRIu64 " comes something else than recorded (by %s):\n%s%s", file_.c_str(),
                difference->input, player.header().writer.c_str(), context.c_str(),
                difference_text(*difference).c_str());
  } else {
    std::printf("%s: %" PRIu64 " inputs have the recorded outputs\n", file_.c_str(), player.played());
  }
  if (player.error()) return say_failure({player.error()->code, file_ + ": " + player.error()->message});
  if (!write_.empty()) {
    auto writer = RecordingWriter::create(
        write_, {.wall_offset_ns = player.header().wall_offset_ns, .writer = "ucm " UCM_VERSION});
    if (!writer) return say_failure(writer.error());
    auto written = writer->append(copy);
    if (written) written = writer->finish();
    return written ? EXIT_SUCCESS : say_failure(written.error());
  }
  return player.difference() ? EXIT_FAILURE : EXIT_SUCCESS;
}

std::string RecordingCommands::play(Player& player) const {
  Retelling retelling(player);
  std::deque<std::string> context;
  while (player.upcoming() != nullptr) {
    const std::uint64_t number = player.played() + 1;
    const recording::Record input = player.upcoming()->record;
    if (!player.difference()) {
      context.push_back("  " + std::to_string(number) + " " + record_text(input) + "\n");
      if (context.size() > kContext) context.pop_front();
    }
    const bool shown = (step_ || from_ != 0) && number >= from_;
    if (shown) replay_input(number, input);
    for (const ToldFrame& told : retelling.play()) {
      if (shown) std::printf("    %s", trace_line(told.frame, told.mad, player.header().wall_offset_ns).c_str());
    }
  }
  std::string text;
  for (const std::string& line : context) text += line;
  return text;
}

}  // namespace ucm::cli
