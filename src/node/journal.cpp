#include "node/journal.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>

#include "base/check.h"

namespace ucm::node {
namespace {

constexpr std::size_t kChangeSize = sizeof(ChangeHeader) + sizeof(CellHeader);

constexpr std::size_t padded(std::size_t size) { return (size + 7) & ~std::size_t{7}; }

JournalHeader& header_of(const ipc::SharedMemory& memory) { return *static_cast<JournalHeader*>(memory.data()); }

// The size that a kind of record has; 0 for kinds that there are not.
std::size_t size_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::kFree:
      return 0;
    case RecordKind::kSession:
      return sizeof(SessionRecord);
    case RecordKind::kLink:
      return sizeof(LinkRecord);
    case RecordKind::kQpnBlock:
      return sizeof(QpnBlockRecord);
    case RecordKind::kSendPort:
      return sizeof(SendPortRecord);
    case RecordKind::kGroup:
      return sizeof(GroupRecord);
    case RecordKind::kId:
      return sizeof(IdRecord);
    case RecordKind::kConnection:
      return sizeof(ConnectionCell);
    case RecordKind::kEvent:
      return sizeof(EventRecord);
    case RecordKind::kGrant:
      return sizeof(GrantRecord);
  }
  return 0;
}

bool is_sound(const CellHeader& header) {
  return header.size == size_of(header.kind) && (header.kind == RecordKind::kFree || header.size != 0);
}

}  // namespace

Journal::Journal(ipc::FileDescriptor memory_fd, ipc::SharedMemory memory)
    : memory_fd_(std::move(memory_fd)), memory_(std::move(memory)) {}

Result<Journal> Journal::create() {
  auto memory_fd = ipc::create_memfd("ucm-journal", kJournalSize);
  if (!memory_fd) return tl::unexpected(memory_fd.error());
  auto memory = ipc::SharedMemory::map(memory_fd->get(), kJournalSize);
  if (!memory) return tl::unexpected(memory.error());
  new (memory->data()) JournalHeader;
  return Journal(std::move(*memory_fd), std::move(*memory));
}

Result<Journal> Journal::open(ipc::FileDescriptor memory_fd) {
  auto memory = ipc::SharedMemory::map(memory_fd.get(), kJournalSize);
  if (!memory) return fail(EPROTO, "the journal cannot be read: " + memory.error().message);
  Journal journal(std::move(memory_fd), std::move(*memory));
  if (auto sound = journal.check_header(); !sound) return tl::unexpected(sound.error());
  if (auto finished = journal.finish_commit(); !finished) return tl::unexpected(finished.error());
  if (auto sound = journal.check_cells(); !sound) return tl::unexpected(sound.error());
  return journal;
}

Result<void> Journal::check_header() const {
  const JournalHeader& header = header_of(memory_);
  if (header.magic != kJournalMagic) return fail(EPROTO, "this is no journal of a ucmd");
  if (header.version == 0 || header.version > kJournalVersion) {
    return fail(EPROTONOSUPPORT, "the journal is of version " + std::to_string(header.version) +
                                     "; this ucmd reads versions up to " + std::to_string(kJournalVersion));
  }
  if (header.cell_size != kJournalCellSize || header.cells_max != kJournalCellsMax ||
      header.stage_size != kJournalStageSize || header.used.load() > kJournalCellsMax) {
    return fail(EPROTO, "the journal's header contradicts its version");
  }
  return {};
}

// The writer died while it applied a commit: the whole of it is applied again.
Result<void> Journal::finish_commit() {
  JournalHeader& header = header_of(memory_);
  const std::uint64_t size = header.committed.load();
  if (size > kJournalStageSize) return fail(EPROTO, "the journal's last commit is too long");
  for (std::uint64_t at = 0; at < size;) {
    ChangeHeader change;
    CellHeader cell;
    if (size - at < kChangeSize) return fail(EPROTO, "the journal's last commit is cut off");
    std::memcpy(&change, memory_.at(kJournalStageAt + at), sizeof change);
    std::memcpy(&cell, memory_.at(kJournalStageAt + at + sizeof change), sizeof cell);
    if (change.cell >= kJournalCellsMax || !is_sound(cell) || size - at < kChangeSize + padded(cell.size)) {
      return fail(EPROTO, "the journal's last commit is damaged");
    }
    at += kChangeSize + padded(cell.size);
  }
  apply(size);
  return {};
}

Result<void> Journal::check_cells() {
  used_ = header_of(memory_).used.load();
  for (Cell cell = 0; cell < used_; ++cell) {
    CellHeader header;
    std::memcpy(&header, cell_at(cell), sizeof header);
    if (!is_sound(header)) return fail(EPROTO, "cell " + std::to_string(cell) + " of the journal is damaged");
    if (header.kind == RecordKind::kFree) free_.push_back(cell);
  }
  return {};
}

std::uint8_t* Journal::cell_at(Cell cell) const {
  return memory_.at(kJournalCellsAt + std::size_t{cell} * kJournalCellSize);
}

RecordKind Journal::kind_of(Cell cell) const {
  CellHeader header;
  std::memcpy(&header, cell_at(cell), sizeof header);
  return header.kind;
}

const std::uint8_t* Journal::payload_of(Cell cell) const { return cell_at(cell) + sizeof(CellHeader); }

Journal::Cell Journal::put(Cell cell, RecordKind kind, Bytes record) {
  if (cell == kNone) {
    if (!free_.empty()) {
      cell = free_.back();
      free_.pop_back();
    } else if (used_ < kJournalCellsMax) {
      cell = used_++;
    } else {
      return kNone;
    }
  }
  stage(cell, kind, record);
  return cell;
}

void Journal::drop(Cell& cell) {
  if (cell == kNone) return;
  stage(cell, RecordKind::kFree, {});
  free_.push_back(cell);
  cell = kNone;
}

void Journal::stage(Cell cell, RecordKind kind, Bytes record) {
  UCM_CHECK(record.size() == size_of(kind) && record.size() <= kRecordSizeMax);
  const std::size_t size = kChangeSize + padded(record.size());
  if (staged_ + size > kJournalStageSize) commit();
  const ChangeHeader change{.cell = cell};
  const CellHeader header{.kind = kind, .size = static_cast<std::uint16_t>(record.size())};
  std::uint8_t* const at = memory_.at(kJournalStageAt + staged_);
  std::memcpy(at, &change, sizeof change);
  std::memcpy(at + sizeof change, &header, sizeof header);
  if (!record.empty()) std::memcpy(at + kChangeSize, record.data(), record.size());
  staged_ += size;
}

void Journal::commit() {
  if (staged_ == 0) return;
  header_of(memory_).committed.store(staged_);
  apply(staged_);
  staged_ = 0;
}

void Journal::apply(std::uint64_t size) {
  JournalHeader& header = header_of(memory_);
  std::uint32_t used = header.used.load();
  for (std::uint64_t at = 0; at < size;) {
    const std::uint8_t* const change = memory_.at(kJournalStageAt + at);
    std::uint32_t cell = 0;
    CellHeader cell_header;
    std::memcpy(&cell, change, sizeof cell);
    std::memcpy(&cell_header, change + sizeof(ChangeHeader), sizeof cell_header);
    std::memcpy(cell_at(cell), change + sizeof(ChangeHeader), sizeof cell_header + cell_header.size);
    used = std::max(used, cell + 1);
    at += kChangeSize + padded(cell_header.size);
  }
  header.used.store(used);
  header.committed.store(0);
}

}  // namespace ucm::node
