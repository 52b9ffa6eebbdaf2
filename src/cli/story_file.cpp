#include "cli/story_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <set>

#include "cli/retelling.h"
#include "cli/trace_text.h"
#include "net/pcapng.h"
#include "net/socket_address.h"
#include "wire/mad.h"
#include "wire/ud_packet.h"

namespace ucm::cli {
namespace {

// Connections that an error names.
constexpr std::size_t kNamedMax = 8;

Result<std::vector<StoryLine>> story_of_recording(Bytes file) {
  const auto player = recording::Player::open(file);
  if (!player) return tl::unexpected(player.error());
  Retelling retelling(**player);
  std::vector<StoryLine> story;
  while ((*player)->upcoming() != nullptr) {
    for (const ToldFrame& told : retelling.play()) {
      const ipc::TraceRecord& record = told.frame.record;
      story.push_back(
          {.id = record.id, .local_comm_id = record.local_comm_id, .peer = {record.peer}, .row = row_of(record)});
    }
  }
  if ((*player)->error()) return tl::unexpected(*(*player)->error());
  if ((*player)->difference()) {
    return fail(EPROTO, "this ucm does something else than is recorded: see `ucm replay`");
  }
  return story;
}

// nullopt: no CM message with a comment of comment_text().
std::optional<StoryLine> line_of(const net::CapturedDatagram& datagram) {
  const auto mad = wire::parse_gsi_packet(datagram.payload);
  if (!mad) return std::nullopt;
  const std::string comment(datagram.comment);
  StoryLine line;
  unsigned remote = 0;
  int begin = 0;
  if (std::sscanf(comment.c_str(), "ID %u, comm 0x%x/0x%x: %n", &line.id, &line.local_comm_id, &remote, &begin) != 3 ||
      begin == 0) {
    return std::nullopt;
  }
  line.peer = datagram.sent ? datagram.info.destination : datagram.info.source;
  constexpr std::size_t kKindWidth = 9;
  const std::string what = comment.substr(static_cast<std::size_t>(begin));
  line.row = {.time_ns = datagram.time_ns,
              .kind = datagram.sent ? DiagramRow::Kind::kSent : DiagramRow::Kind::kReceived,
              .again = what.find(" retry ") != std::string::npos,
              .message = message_name((*mad)[wire::MadHeader::kAttributeOffset + 1]),
              .text = what.substr(std::min(what.size(), kKindWidth))};
  return line;
}

Result<std::vector<StoryLine>> story_of_capture(Bytes file) {
  std::vector<StoryLine> story;
  const auto read = net::read_pcapng(file, [&](const net::CapturedDatagram& datagram) {
    if (auto line = line_of(datagram)) story.push_back(std::move(*line));
  });
  if (!read) return tl::unexpected(read.error());
  if (story.empty()) return fail(ENOENT, "it has no packets with the comments of `ucm capture`");
  return story;
}

std::string listed(const std::map<std::uint32_t, wire::IpAddress>& connections) {
  std::string text;
  std::size_t named = 0;
  for (const auto& [id, peer] : connections) {
    if (++named > kNamedMax) return text + ", …";
    text += (text.empty() ? "" : ", ") + std::to_string(id) + " (with " + net::to_string(peer) + ")";
  }
  return text;
}

}  // namespace

Result<std::vector<StoryLine>> read_story(Bytes file) {
  if (recording::parse_header(file)) return story_of_recording(file);
  if (net::is_pcapng(file)) return story_of_capture(file);
  return fail(EPROTO, "it is neither a capture of `ucm capture` nor a recording of `ucm record`");
}

Result<Diagram> diagram_of(const std::vector<StoryLine>& story, std::optional<std::uint32_t> id_or_comm_id) {
  std::map<std::uint32_t, wire::IpAddress> connections;
  for (const StoryLine& line : story) {
    if (line.id != 0 && line.local_comm_id != 0) connections.emplace(line.id, line.peer);
  }
  if (!id_or_comm_id && connections.size() != 1) {
    return fail(connections.empty() ? ENOENT : EINVAL,
                connections.empty() ? "it has no connections"
                                    : "it has several connections; name one with --id: " + listed(connections));
  }
  const std::uint32_t wanted = id_or_comm_id.value_or(connections.empty() ? 0 : connections.begin()->first);
  // A connection's messages have its comm ID, also those before it had an ID.
  std::set<std::uint32_t> comm_ids{wanted};
  for (const StoryLine& line : story) {
    if (line.id == wanted && line.local_comm_id != 0) comm_ids.insert(line.local_comm_id);
  }
  std::uint32_t id = 0;
  wire::IpAddress peer;
  Diagram diagram;
  for (const StoryLine& line : story) {
    if (line.id != wanted && !comm_ids.contains(line.local_comm_id)) continue;
    if (line.id != 0) id = line.id;
    if (!line.peer.is_unspecified()) peer = line.peer;
    diagram.rows.push_back(line.row);
  }
  if (diagram.rows.empty()) return fail(ENOENT, "it has no such connection, but " + listed(connections));
  diagram.own = "this host, ID " + std::to_string(id);
  diagram.peer = net::to_string(peer);
  return diagram;
}

}  // namespace ucm::cli
