// What a node remembers beyond its own death: records in shared memory that somebody else keeps alive
// (daemon/keeper.h). Changes are staged and take effect together with commit(). Whoever opens the memory afterwards,
// at whatever instruction the writer was killed, finds the state of one commit, the last or the one before.
//
// A wire format: journal_format.h has the records. What is read is checked; garbage is refused, never followed.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "ipc/file_descriptor.h"
#include "ipc/memfd.h"
#include "node/journal_format.h"

namespace ucm::node {

class Journal {
 public:
  using Cell = std::uint32_t;
  static constexpr Cell kNone = UINT32_MAX;

  static Result<Journal> create();
  // EPROTONOSUPPORT: of a version that this one does not know; EPROTO: no journal, or a damaged one.
  static Result<Journal> open(ipc::FileDescriptor memory);

  int descriptor() const { return memory_fd_.get(); }

  // Stages a record for the cell; kNone takes a free one. Returns the cell; kNone when all cells are taken: then this
  // record does not survive (journal_format.h says how many do).
  template <class Record>
  Cell put(Cell cell, const Record& record) {
    return put(cell, Record::kKind, {reinterpret_cast<const std::uint8_t*>(&record), sizeof record});
  }
  // Stages the end of the cell's record, and sets `cell` to kNone. Nothing where it is kNone already.
  void drop(Cell& cell);
  // What is staged becomes what is remembered. Cheap when nothing is.
  void commit();

  // The records of one kind, in the order of their cells.
  template <class Record>
  void for_each(const std::function<void(Cell, const Record&)>& visit) const {
    for (Cell cell = 0; cell < used_; ++cell) {
      if (kind_of(cell) != Record::kKind) continue;
      Record record;
      std::memcpy(&record, payload_of(cell), sizeof record);
      visit(cell, record);
    }
  }
  // Cells with a record, what is staged counted in.
  std::size_t size() const { return used_ - free_.size(); }

 private:
  explicit Journal(ipc::FileDescriptor memory_fd, ipc::SharedMemory memory);

  Cell put(Cell cell, RecordKind kind, Bytes record);
  void stage(Cell cell, RecordKind kind, Bytes record);
  Result<void> check_header() const;
  Result<void> finish_commit();
  Result<void> check_cells();
  RecordKind kind_of(Cell cell) const;
  const std::uint8_t* payload_of(Cell cell) const;
  std::uint8_t* cell_at(Cell cell) const;
  void apply(std::uint64_t size);

  ipc::FileDescriptor memory_fd_;
  ipc::SharedMemory memory_;
  std::uint64_t staged_ = 0;  // bytes behind JournalHeader that no commit has reached
  Cell used_ = 0;             // cells that ever had a record
  std::vector<Cell> free_;    // of these
};

}  // namespace ucm::node
