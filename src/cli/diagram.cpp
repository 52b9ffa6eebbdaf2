#include "cli/diagram.h"

#include <array>
#include <cstdio>

#include "base/markup.h"
#include "cli/trace_text.h"
#include "net/socket_address.h"

namespace ucm::cli {
namespace {

using ipc::TraceKind;
using ipc::TraceRecord;

// In pixels.
constexpr int kWidth = 1160;
constexpr int kTimeEnd = 90;  // right edge of the times
constexpr int kOwnLine = 640;
constexpr int kPeerLine = 1060;
constexpr int kTop = 60;
constexpr int kRow = 26;

std::string text_at(int x, int y, const char* style, const std::string& text) {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" class=\"" + style + "\">" +
         escaped_markup(text) + "</text>\n";
}

std::string line_of(int x1, int x2, int y1, int y2, const std::string& style) {
  return "<line x1=\"" + std::to_string(x1) + "\" y1=\"" + std::to_string(y1) + "\" x2=\"" + std::to_string(x2) +
         "\" y2=\"" + std::to_string(y2) + "\" class=\"" + style + "\"/>\n";
}

std::string milliseconds(std::int64_t nanoseconds) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.3f", static_cast<double>(nanoseconds) / 1e6);
  return buffer.data();
}

bool is_message(const DiagramRow& row) {
  return row.kind == DiagramRow::Kind::kSent || row.kind == DiagramRow::Kind::kReceived;
}

std::string message_row(const DiagramRow& row, int y) {
  const bool sent = row.kind == DiagramRow::Kind::kSent;
  return line_of(sent ? kOwnLine : kPeerLine, sent ? kPeerLine : kOwnLine, y, y, row.again ? "arrow again" : "arrow") +
         text_at((kOwnLine + kPeerLine) / 2, y - 4, "message", row.message) +
         text_at(kOwnLine - 12, y + 4, "own", (sent ? "sent " : "received ") + row.text);
}

}  // namespace

DiagramRow row_of(const ToldRecord& told) {
  const TraceRecord& record = told.record;
  DiagramRow row{.time_ns = record.time_ns,
                 .kind = record.kind == TraceKind::kEvent ? DiagramRow::Kind::kEvent : DiagramRow::Kind::kOther,
                 .again = record.repetition != 0,
                 .message = {},
                 .text = what_text(told)};
  if (record.message == 0) return row;
  // The arrow says the rest.
  constexpr std::size_t kKindWidth = 9;
  row.kind = record.kind == TraceKind::kSent ? DiagramRow::Kind::kSent : DiagramRow::Kind::kReceived;
  row.message = message_name(record.message);
  row.text.erase(0, kKindWidth);
  return row;
}

Diagram diagram_of(const std::vector<ToldRecord>& records) {
  std::uint32_t id = 0;
  wire::IpAddress peer;
  Diagram diagram;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if (record->record.id != 0) id = record->record.id;
    if (!wire::IpAddress{record->record.peer}.is_unspecified()) peer = {record->record.peer};
    diagram.rows.push_back(row_of(*record));
  }
  diagram.own = "this host, ID " + std::to_string(id);
  diagram.peer = net::to_string(peer);
  return diagram;
}

std::string diagram_svg(const Diagram& diagram) {
  const int height = kTop + kRow * static_cast<int>(diagram.rows.size() + 1);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(kWidth) + "\" height=\"" +
                    std::to_string(height) + "\" viewBox=\"0 0 " + std::to_string(kWidth) + " " +
                    std::to_string(height) + "\">\n";
  out +=
      "<style>text{font:12px monospace;fill:#222}.own,.time{text-anchor:end}.message,.head{text-anchor:middle;"
      "font-weight:bold}.time{fill:#777}.event{fill:#06c}.life{stroke:#999}.arrow{stroke:#222;marker-end:url(#head)}"
      ".again{stroke:#c00;stroke-dasharray:6 3}</style>\n"
      "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" "
      "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  out += text_at(kTimeEnd, 24, "time", "ms") + text_at(kOwnLine, 24, "head", diagram.own) +
         text_at(kPeerLine, 24, "head", diagram.peer);
  for (const int x : {kOwnLine, kPeerLine}) out += line_of(x, x, 34, height - 10, "life");
  int y = kTop;
  for (const DiagramRow& row : diagram.rows) {
    out += text_at(kTimeEnd, y + 4, "time", milliseconds(row.time_ns - diagram.rows.front().time_ns));
    out += is_message(row)
               ? message_row(row, y)
               : text_at(kOwnLine - 12, y + 4, row.kind == DiagramRow::Kind::kEvent ? "own event" : "own", row.text);
    y += kRow;
  }
  return out + "</svg>\n";
}

}  // namespace ucm::cli
