#include "cli/look.h"

#include <poll.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/diagram.h"
#include "cli/recording_file.h"
#include "cli/story_file.h"
#include "cli/text.h"
#include "cli/trace_text.h"
#include "client/connection.h"
#include "client/observe.h"
#include "daemon/stats.h"
#include "net/pcapng.h"
#include "net/socket_address.h"
#include "wire/ud_packet.h"

namespace ucm::cli {
namespace {

using nlohmann::json;

// An ID in decimal, or a comm ID as 0x….
Result<std::uint32_t> parse_id(std::string_view text) {
  const bool hex = text.starts_with("0x");
  const std::string_view digits = text.substr(hex ? 2 : 0);
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value, hex ? 16 : 10);
  if (error != std::errc() || end != digits.end() || digits.empty()) {
    return fail(EINVAL, std::string(text) + " is neither an ID nor a comm ID (0x…)");
  }
  return value;
}

// Newest record first.
Result<std::vector<ToldRecord>> fetch_story(std::string_view id_text) {
  const auto id = parse_id(id_text);
  if (!id) return tl::unexpected(id.error());
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node) return tl::unexpected(node.error());
  std::vector<ToldRecord> records;
  bool sound = true;
  const auto done = client::observe(node->socket.get(), ipc::Subject::kShow, *id, [&](Bytes piece) {
    while (!piece.empty()) {
      ipc::TraceFrame frame;
      if (piece.size() < sizeof frame) return sound = false;
      std::memcpy(&frame, piece.data(), sizeof frame);
      piece = piece.subspan(sizeof frame);
      if (piece.size() < frame.why_size) return sound = false;
      records.emplace_back(frame.record, std::string(reinterpret_cast<const char*>(piece.data()), frame.why_size));
      piece = piece.subspan(frame.why_size);
    }
    return true;
  });
  if (!done) return tl::unexpected(done.error());
  if (!sound) return fail(EPROTO, "ucmd's story makes no sense");
  return records;
}

Result<Diagram> diagram_of_node(const std::string& id) {
  const auto records = fetch_story(id);
  if (!records) return tl::unexpected(records.error());
  return diagram_of(*records);
}

Result<Diagram> diagram_of_file(const std::string& path, const std::string& id_text) {
  std::optional<std::uint32_t> id;
  if (!id_text.empty()) {
    const auto parsed = parse_id(id_text);
    if (!parsed) return tl::unexpected(parsed.error());
    id = *parsed;
  }
  const auto file = read_file(path);
  if (!file) return tl::unexpected(file.error());
  const auto story = read_story(*file);
  if (!story) return fail(story.error().code, path + ": " + story.error().message);
  auto diagram = diagram_of(*story, id);
  if (!diagram) return fail(diagram.error().code, path + ": " + diagram.error().message);
  return diagram;
}

Result<std::string> fetch_text(int socket, ipc::Subject subject) {
  std::string text;
  const auto done = client::observe(socket, subject, 0, [&](Bytes piece) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return true;
  });
  if (!done) return tl::unexpected(done.error());
  return text;
}

// Calls `take` with every record as it happens until it returns false.
Result<void> follow(const std::function<bool(const ipc::TraceFrame&, Bytes mad)>& take) {
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node) return tl::unexpected(node.error());
  bool sound = true;
  const auto followed = client::observe(node->socket.get(), ipc::Subject::kTrace, 0, [&](Bytes piece) {
    while (!piece.empty()) {
      ipc::TraceFrame frame;
      if (piece.size() < sizeof frame) return sound = false;
      std::memcpy(&frame, piece.data(), sizeof frame);
      piece = piece.subspan(sizeof frame);
      if (piece.size() < frame.mad_size) return sound = false;
      if (!take(frame, piece.first(frame.mad_size))) return false;
      piece = piece.subspan(frame.mad_size);
    }
    std::fflush(stdout);
    return true;
  });
  if (!sound) return fail(EPROTO, "ucmd's trace makes no sense");
  return followed;
}

bool is_message(const ipc::TraceFrame& frame) { return frame.mad_size != 0; }

void print_entries(const json& entries, const ListFilter& filter, ListForm form) {
  for (const json& entry : entries) {
    if (filter.matches(entry)) std::fputs(entry_text(entry, form).c_str(), stdout);
  }
}

// The packet as it was on the wire but for its PSN, which no receiver looks at.
std::vector<std::uint8_t> capture_block(const ipc::TraceFrame& frame, Bytes mad, std::int64_t offset) {
  const wire::DatagramInfo info{.source = {frame.source},
                                .destination = {frame.destination},
                                .source_port = frame.source_port,
                                .traffic_class = frame.traffic_class,
                                .hop_limit = frame.hop_limit,
                                .ifindex = frame.ifindex};
  std::array<std::uint8_t, wire::kGsiPacketSize> payload{};
  wire::emit_gsi_packet(info, 0, std::span<const std::uint8_t, wire::kMadSize>(mad), payload);
  return net::pcapng_packet({.time_ns = frame.record.time_ns + offset,
                             .info = info,
                             .payload = payload,
                             .sent = frame.sent != 0,
                             .comment = comment_text(frame.record)});
}

}  // namespace

LookCommands::LookCommands(CLI::App& app)
    : list_(app.add_subcommand("list", "List listeners and connections, with what is known of each")),
      show_(app.add_subcommand("show", "Tell the story of a connection: messages, calls, timers, events")),
      diagram_(app.add_subcommand("diagram", "Draw the story of a connection, as SVG to standard output")),
      stats_(app.add_subcommand("stats", "Show counts per message, connections per state, and times")),
      trace_(app.add_subcommand("trace", "Print every message, call, timer and event as it happens")),
      capture_(app.add_subcommand("capture", "Write every CM message to a file for Wireshark")) {
  list_->add_option("--state", filter_.state, "Only those in a state, e.g. established, listening");
  list_->add_option("--address", filter_.address, "Only those with this local or remote address");
  list_->add_option("--pid", pid_, "Only those of a process")->check(CLI::PositiveNumber);
  list_->add_flag("--short", short_, "One line for each");
  list_->add_flag("--json", as_json_, "As JSON, one object a line, with times in nanoseconds");
  list_->add_option("--watch", watch_s_, "Again every SECONDS")->type_name("SECONDS")->check(CLI::PositiveNumber);
  show_->add_option("ID", id_, "The ID that `ucm list` shows, or a comm ID as 0x…")->required();
  diagram_->add_option("ID|FILE", story_, "As for show; or a file of `ucm capture` or `ucm record`")->required();
  diagram_->add_option("--id", story_id_, "Which connection of the file, by ID or comm ID");
  stats_->add_flag("--json", as_json_, "As JSON");
  stats_->add_option("--prometheus", prometheus_, "In the text format of Prometheus, to FILE or to standard output")
      ->type_name("FILE")
      ->expected(0, 1)
      ->default_str("-");
  trace_->add_option("--id", trace_id_, "Only the connection with this ID, or comm ID as 0x…");
  trace_->add_option("--peer", peer_, "Only what concerns the host with this address");
  trace_->add_flag("--messages", messages_only_, "Messages only");
  for (CLI::App* const command : {trace_, capture_}) {
    command->add_option("--count", count_, "End after so many")->check(CLI::PositiveNumber);
  }
  capture_->add_option("-w,--write", file_, "The file, in pcapng format (-: standard output)")
      ->required()
      ->type_name("FILE");
}

bool LookCommands::parsed() const {
  return list_->parsed() || show_->parsed() || diagram_->parsed() || stats_->parsed() || trace_->parsed() ||
         capture_->parsed();
}

int LookCommands::run() {
  if (pid_ != 0) filter_.pid = pid_;
  if (list_->parsed()) return list();
  if (show_->parsed()) return show();
  if (diagram_->parsed()) return diagram();
  if (stats_->parsed()) return stats();
  if (trace_->parsed()) return trace();
  return capture();
}

int LookCommands::list() const {
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node) return say_failure(node.error());
  const ListForm form = short_ ? ListForm::kShort : ListForm::kLong;
  while (true) {
    if (watch_s_ > 0 && !as_json_) std::fputs("\033[H\033[2J", stdout);
    bool sound = true;
    const auto done = client::observe(node->socket.get(), ipc::Subject::kList, 0, [&](Bytes piece) {
      const json entries = json::parse(piece.begin(), piece.end(), nullptr, false);
      if (!entries.is_array()) return sound = false;
      if (!as_json_) {
        print_entries(entries, filter_, form);
        return true;
      }
      for (const json& entry : entries) {
        if (filter_.matches(entry)) std::printf("%s\n", entry.dump().c_str());
      }
      return true;
    });
    if (!done) return say_failure(done.error());
    if (!sound) return say_failure({EPROTO, "ucmd's list is no JSON"});
    if (watch_s_ <= 0) return EXIT_SUCCESS;
    std::fflush(stdout);
    poll(nullptr, 0, static_cast<int>(watch_s_ * 1000));
  }
}

int LookCommands::show() const {
  const auto records = fetch_story(id_);
  if (!records) return say_failure(records.error());
  std::fputs(story_text(*records, wall_offset_ns()).c_str(), stdout);
  return EXIT_SUCCESS;
}

int LookCommands::diagram() const {
  const auto diagram = parse_id(story_) ? diagram_of_node(story_) : diagram_of_file(story_, story_id_);
  if (!diagram) return say_failure(diagram.error());
  std::fputs(diagram_svg(*diagram).c_str(), stdout);
  return EXIT_SUCCESS;
}

int LookCommands::stats() const {
  const auto node = client::connect_node(ipc::Role::kTool);
  if (!node) return say_failure(node.error());
  const auto text = fetch_text(node->socket.get(), ipc::Subject::kStats);
  if (!text) return say_failure(text.error());
  const json stats = json::parse(*text, nullptr, false);
  if (stats.is_discarded()) return say_failure({EPROTO, "ucmd's statistics are no JSON"});
  if (prometheus_.empty() || prometheus_ == "-") {
    const std::string out = as_json_              ? stats.dump(2) + "\n"
                            : prometheus_.empty() ? stats_text(stats)
                                                  : daemon::prometheus_text(stats);
    std::fputs(out.c_str(), stdout);
    return EXIT_SUCCESS;
  }
  // Whoever reads the file meanwhile sees all of it, old or new.
  const std::string unfinished = prometheus_ + ".new";
  std::FILE* const file = std::fopen(unfinished.c_str(), "we");
  if (file == nullptr) return say_failure({errno, unfinished + ": " + std::strerror(errno)});
  std::fputs(daemon::prometheus_text(stats).c_str(), file);
  const bool written = std::ferror(file) == 0;
  if (std::fclose(file) != 0 || !written || std::rename(unfinished.c_str(), prometheus_.c_str()) != 0) {
    return say_failure({errno, prometheus_ + ": " + std::strerror(errno)});
  }
  return EXIT_SUCCESS;
}

int LookCommands::trace() const {
  std::uint32_t id = 0;
  if (!trace_id_.empty()) {
    const auto parsed = parse_id(trace_id_);
    if (!parsed) return say_failure(parsed.error());
    id = *parsed;
  }
  const std::int64_t offset = wall_offset_ns();
  std::uint64_t printed = 0;
  const auto followed = follow([&](const ipc::TraceFrame& frame, Bytes mad) {
    const bool lost = frame.record.kind == ipc::TraceKind{};
    const bool wanted = (id == 0 || frame.record.id == id || frame.record.local_comm_id == id) &&
                        (peer_.empty() || net::to_string(wire::IpAddress{frame.record.peer}) == peer_) &&
                        (!messages_only_ || is_message(frame));
    if (!lost && !wanted) return true;
    std::fputs(trace_line(frame, mad, offset).c_str(), stdout);
    return lost || ++printed != count_;
  });
  return followed ? EXIT_SUCCESS : say_failure(followed.error());
}

int LookCommands::capture() const {
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> own(file_ == "-" ? nullptr : std::fopen(file_.c_str(), "wbe"),
                                                        close);
  std::FILE* const file = file_ == "-" ? stdout : own.get();
  if (file == nullptr) return say_failure({errno, file_ + ": " + std::strerror(errno)});
  const auto write = [file](const std::vector<std::uint8_t>& bytes) {
    return std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  };
  // At once: whoever waits for the file may begin.
  if (!write(net::pcapng_header("ucm " UCM_VERSION)) || std::fflush(file) != 0) {
    return say_failure({errno, file_ + ": " + std::strerror(errno)});
  }
  const std::int64_t offset = wall_offset_ns();
  std::uint64_t written = 0;
  bool failed = false;
  const auto followed = follow([&](const ipc::TraceFrame& frame, Bytes mad) {
    if (frame.record.kind == ipc::TraceKind{}) {
      std::fprintf(stderr, "ucm: %d records lost\n", frame.record.status);
    } else if (mad.size() == wire::kMadSize) {
      failed = !write(capture_block(frame, mad, offset)) || std::fflush(file) != 0;
      return !failed && ++written != count_;
    }
    return true;
  });
  if (failed) return say_failure({errno, file_ + ": " + std::strerror(errno)});
  return followed ? EXIT_SUCCESS : say_failure(followed.error());
}

}  // namespace ucm::cli
