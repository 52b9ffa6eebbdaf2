// Connections out of captures and recordings.
#include "cli/story_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>

#include "cli/trace_text.h"
#include "cm/state_machine.h"
#include "net/pcapng.h"
#include "wire/mad.h"
#include "wire/ud_packet.h"

namespace ucm::cli {
namespace {

const auto kOwn = wire::IpAddress::ipv4(0x0A000001);
const auto kPeer = wire::IpAddress::ipv4(0x0A000002);

std::vector<std::uint8_t> golden(const std::string& name) {
  std::ifstream file(UCM_TEST_DATA "/recordings/" + name + ".ucmrec", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void append(std::vector<std::uint8_t>& file, bool sent, wire::Attribute attribute, const std::string& comment) {
  const wire::DatagramInfo info{.source = sent ? kOwn : kPeer, .destination = sent ? kPeer : kOwn};
  std::array<std::uint8_t, wire::kMadSize> mad{};
  wire::MadHeader{.attribute = attribute}.emit(MutableBytes(mad).first(wire::MadHeader::kSize));
  std::array<std::uint8_t, wire::kGsiPacketSize> payload{};
  wire::emit_gsi_packet(info, 0, mad, payload);
  const auto block = net::pcapng_packet({.info = info, .payload = payload, .sent = sent, .comment = comment});
  file.insert(file.end(), block.begin(), block.end());
}

std::vector<std::string> messages_of(const Diagram& diagram) {
  std::vector<std::string> messages;
  for (const DiagramRow& row : diagram.rows) {
    if (!row.message.empty()) messages.push_back((row.kind == DiagramRow::Kind::kSent ? ">" : "<") + row.message);
  }
  return messages;
}

TEST(StoryFile, ACaptureTellsWhatItsCommentsSay) {
  auto file = net::pcapng_header("test");
  const auto comment = [](ipc::TraceKind kind, std::uint32_t id, std::uint32_t comm_id, std::uint8_t repetition) {
    return comment_text({.id = id,
                         .local_comm_id = comm_id,
                         .kind = kind,
                         .message = 0x10,
                         .input = repetition != 0 ? static_cast<std::uint8_t>(cm::Input::kRetryDue) : std::uint8_t{0},
                         .repetition = repetition});
  };
  append(file, true, wire::Attribute::kReq, comment(ipc::TraceKind::kSent, 5, 0xAB, 0));
  append(file, true, wire::Attribute::kReq, comment(ipc::TraceKind::kSent, 5, 0xAB, 1));
  append(file, true, wire::Attribute::kReq, comment(ipc::TraceKind::kSent, 6, 0xAC, 0));
  append(file, false, wire::Attribute::kRep, comment(ipc::TraceKind::kReceived, 0, 0xAB, 0));
  append(file, false, wire::Attribute::kRep, "somebody else's comment");
  const auto story = read_story(file);
  ASSERT_TRUE(story) << story.error().message;
  EXPECT_EQ(story->size(), 4u);

  const auto several = diagram_of(*story, std::nullopt);
  ASSERT_FALSE(several);
  EXPECT_EQ(several.error().message,
            "it has several connections; name one with --id: 5 (with 10.0.0.2), 6 (with 10.0.0.2)");
  for (const std::uint32_t name : {5u, 0xABu}) {
    const auto diagram = diagram_of(*story, name);
    ASSERT_TRUE(diagram) << diagram.error().message;
    EXPECT_EQ(diagram->peer, "10.0.0.2");
    EXPECT_EQ(diagram->own, "this host, ID 5");
    EXPECT_EQ(messages_of(*diagram), (std::vector<std::string>{">REQ", ">REQ", "<REP"}));
    EXPECT_FALSE(diagram->rows[0].again);
    EXPECT_TRUE(diagram->rows[1].again);
  }
  const auto missing = diagram_of(*story, 7);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ENOENT);
}

TEST(StoryFile, ARecordingTellsBothEndsOfItsConnection) {
  const auto story = read_story(golden("one_host_both_ends"));
  ASSERT_TRUE(story) << story.error().message;
  const auto active = diagram_of(*story, 2);
  ASSERT_TRUE(active) << active.error().message;
  EXPECT_EQ(messages_of(*active),
            (std::vector<std::string>{">REQ", ">REQ", "<REP", "<REP", ">MRA", ">RTU", ">DREQ", "<DREP"}));
  const auto passive = diagram_of(*story, 3);
  ASSERT_TRUE(passive) << passive.error().message;
  EXPECT_EQ(messages_of(*passive),
            (std::vector<std::string>{"<REQ", ">REP", "<REQ", ">REP", "<MRA", "<RTU", "<DREQ", ">DREP"}));
  EXPECT_TRUE(std::ranges::any_of(passive->rows, [](const DiagramRow& row) {
    return row.kind == DiagramRow::Kind::kEvent && row.text == "event    ESTABLISHED";
  }));
}

TEST(StoryFile, WithOneConnectionNeedsNoName) {
  const auto story = read_story(golden("nobody_listens"));
  ASSERT_TRUE(story) << story.error().message;
  const auto diagram = diagram_of(*story, std::nullopt);
  ASSERT_TRUE(diagram) << diagram.error().message;
  EXPECT_EQ(messages_of(*diagram), (std::vector<std::string>{">REQ", "<REJ"}));
}

TEST(StoryFile, OfAnotherKindIsRefused) {
  EXPECT_FALSE(read_story({}));
  auto cut = golden("nobody_listens");
  ASSERT_GT(cut.size(), 10u);
  cut.resize(cut.size() - 1);
  EXPECT_FALSE(read_story(cut));
  const auto empty = read_story(net::pcapng_header("test"));
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().message, "it has no packets with the comments of `ucm capture`");
}

}  // namespace
}  // namespace ucm::cli
