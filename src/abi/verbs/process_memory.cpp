#include "abi/verbs/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ucm::abi::verbs {

namespace {

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool readable = false;
  bool writable = false;
};

// "begin-end rwxp ...", the first two fields of a line of /proc/self/maps.
std::optional<Mapping> parse_mapping(std::string_view line) {
  Mapping mapping;
  const char* const end = line.data() + line.size();
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): from_chars() takes the end, too
  const auto first = std::from_chars(line.data(), end, mapping.begin, 16);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '-') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, mapping.end, 16);
  if (second.ec != std::errc{} || end - second.ptr < 3) return std::nullopt;
  mapping.readable = second.ptr[1] == 'r';
  mapping.writable = second.ptr[2] == 'w';
  return mapping;
}

// Lines of a file through one buffer: the lines of /proc/self/maps are whole within a few kilobytes.
class LineReader {
 public:
  explicit LineReader(const char* path) : fd_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~LineReader() {
    if (fd_ >= 0) close(fd_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool is_open() const { return fd_ >= 0; }

  std::optional<std::string_view> next() {
    for (;;) {
      const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
      if (const auto newline = rest.find('\n'); newline != std::string_view::npos) {
        begin_ += newline + 1;
        return rest.substr(0, newline);
      }
      if (!refill()) return std::nullopt;
    }
  }

 private:
  bool refill() {
    std::copy(buffer_.data() + begin_, buffer_.data() + end_, buffer_.data());
    end_ -= begin_;
    begin_ = 0;
    if (end_ == buffer_.size()) return false;
    const ssize_t got = read(fd_, buffer_.data() + end_, buffer_.size() - end_);
    if (got <= 0) return false;
    end_ += static_cast<std::size_t>(got);
    return true;
  }

  const int fd_;
  std::array<char, 16384> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace

bool process_memory_allows(const void* address, std::size_t length, bool write) {
  auto covered = reinterpret_cast<std::uintptr_t>(address);
  const std::uint64_t end = covered + length;
  if (end < covered) return false;
  LineReader maps("/proc/self/maps");
  if (!maps.is_open()) return true;
  // Mappings are listed by ascending address, so one pass finds any hole.
  while (const auto line = maps.next()) {
    const auto mapping = parse_mapping(*line);
    if (!mapping || mapping->end <= covered) continue;
    if (mapping->begin > covered || !mapping->readable || (write && !mapping->writable)) return false;
    covered = mapping->end;
    if (covered >= end) return true;
  }
  return false;
}

}  // namespace ucm::abi::verbs
