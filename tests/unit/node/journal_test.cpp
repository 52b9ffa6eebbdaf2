// What a journal has after its writer's death, and what it refuses.
#include "node/journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <string>

#include "node/journal_format.h"

namespace ucm::node {
namespace {

ipc::FileDescriptor copy_of(int descriptor) { return ipc::FileDescriptor(dup(descriptor)); }

QpnBlockRecord block(std::uint32_t first_qpn) { return {.session = 1, .first_qpn = first_qpn}; }

// The journal's memory as its writer's murderer leaves it.
struct JournalTest : testing::Test {
  Result<Journal> reopen() { return Journal::open(copy_of(journal.descriptor())); }
  // Records by cell.
  static std::map<Journal::Cell, std::uint32_t> blocks(const Journal& from) {
    std::map<Journal::Cell, std::uint32_t> found;
    from.for_each<QpnBlockRecord>([&](Journal::Cell cell, const QpnBlockRecord& r) { found[cell] = r.first_qpn; });
    return found;
  }
  template <class T>
  void write_at(std::size_t at, const T& value) {
    ASSERT_EQ(pwrite(journal.descriptor(), &value, sizeof value, static_cast<off_t>(at)),
              static_cast<ssize_t>(sizeof value));
  }
  void expect_refusal(int code, const std::string& words) {
    const auto opened = reopen();
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, code);
    EXPECT_NE(opened.error().message.find(words), std::string::npos) << opened.error().message;
  }
  Journal journal = Journal::create().value();
};

TEST_F(JournalTest, HasWhatWasCommittedAndNothingElse) {
  const auto kept = journal.put(Journal::kNone, block(64));
  auto dropped = journal.put(Journal::kNone, block(128));
  journal.commit();
  EXPECT_EQ(blocks(reopen().value()), (std::map<Journal::Cell, std::uint32_t>{{kept, 64}, {dropped, 128}}));
  journal.put(kept, block(192));
  journal.drop(dropped);
  EXPECT_EQ(blocks(reopen().value()).at(kept), 64u);
  journal.commit();
  EXPECT_EQ(blocks(reopen().value()), (std::map<Journal::Cell, std::uint32_t>{{kept, 192}}));
  EXPECT_EQ(reopen().value().size(), 1u);
}

TEST_F(JournalTest, UsesDroppedCellsAgainAlsoInASuccessor) {
  auto cell = journal.put(Journal::kNone, block(64));
  const auto first = cell;
  journal.drop(cell);
  EXPECT_EQ(cell, Journal::kNone);
  journal.commit();
  Journal successor = reopen().value();
  EXPECT_EQ(successor.put(Journal::kNone, block(128)), first);
  EXPECT_NE(successor.put(Journal::kNone, block(192)), first);
}

TEST_F(JournalTest, ACommitThatWasCutOffIsFinished) {
  const auto cell = journal.put(Journal::kNone, block(64));
  journal.commit();
  // Staged and declared committed, but not applied.
  journal.put(cell, block(128));
  constexpr std::uint64_t kSize = sizeof(ChangeHeader) + sizeof(CellHeader) + sizeof(QpnBlockRecord);
  write_at(offsetof(JournalHeader, committed), kSize);
  EXPECT_EQ(blocks(reopen().value()).at(cell), 128u);
}

TEST_F(JournalTest, MoreChangesThanACommitHoldsAreKept) {
  constexpr std::uint32_t kMany = 2 * kJournalStageSize / sizeof(ConnectionCell);
  for (std::uint32_t i = 0; i < kMany; ++i) journal.put(Journal::kNone, ConnectionCell{});
  journal.commit();
  EXPECT_EQ(reopen().value().size(), kMany);
}

TEST_F(JournalTest, RefusesWhatIsNoJournal) {
  write_at(0, std::array<char, 8>{'n', 'o', 'n', 'e'});
  expect_refusal(EPROTO, "no journal");
}

TEST_F(JournalTest, RefusesALaterVersionAndSaysWhich) {
  write_at(offsetof(JournalHeader, version), std::uint32_t{kJournalVersion + 1});
  expect_refusal(EPROTONOSUPPORT, "version " + std::to_string(kJournalVersion + 1));
}

TEST_F(JournalTest, RefusesAHeaderThatContradictsItself) {
  write_at(offsetof(JournalHeader, used), std::uint32_t{kJournalCellsMax + 1});
  expect_refusal(EPROTO, "header");
}

TEST_F(JournalTest, RefusesGarbageInACell) {
  journal.put(Journal::kNone, block(64));
  journal.commit();
  for (const CellHeader garbage :
       {CellHeader{.kind = static_cast<RecordKind>(77), .size = 16},
        CellHeader{.kind = RecordKind::kQpnBlock, .size = 17}, CellHeader{.kind = RecordKind::kFree, .size = 8}}) {
    write_at(kJournalCellsAt, garbage);
    expect_refusal(EPROTO, "cell 0");
  }
}

TEST_F(JournalTest, RefusesGarbageInACommit) {
  write_at(kJournalStageAt, ChangeHeader{.cell = kJournalCellsMax});
  write_at(offsetof(JournalHeader, committed), std::uint64_t{64});
  expect_refusal(EPROTO, "damaged");
  write_at(offsetof(JournalHeader, committed), std::uint64_t{7});
  expect_refusal(EPROTO, "cut off");
  write_at(offsetof(JournalHeader, committed), std::uint64_t{kJournalStageSize + 1});
  expect_refusal(EPROTO, "too long");
}

TEST(Journal, RefusesMemoryOfAnotherSize) {
  const auto opened = Journal::open(ipc::create_memfd("short", 4096).value());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, EPROTO);
  EXPECT_FALSE(Journal::open(ipc::FileDescriptor()));
}

}  // namespace
}  // namespace ucm::node
