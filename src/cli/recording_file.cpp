#include "cli/recording_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "recording/coding.h"

namespace ucm::cli {
namespace {

tl::unexpected<Error> failure(const std::string& path, int code) {
  return fail(code, path + ": " + std::generic_category().message(code));
}

}  // namespace

Result<std::vector<std::uint8_t>> read_file(const std::string& path) {
  const ipc::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return failure(path, errno);
  std::vector<std::uint8_t> content;
  std::array<std::uint8_t, 65536> block;
  while (true) {
    const ssize_t size = read(file.get(), block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return failure(path, errno);
    if (size == 0) return content;
    content.insert(content.end(), block.begin(), block.begin() + size);
  }
}

Result<RecordingWriter> RecordingWriter::create(const std::string& path, const recording::Header& header) {
  ipc::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return failure(path, errno);
  RecordingWriter writer(path, std::move(file));
  if (auto written = writer.append(recording::emit_header(header)); !written) return tl::unexpected(written.error());
  return writer;
}

Result<void> RecordingWriter::append(Bytes records) {
  while (!records.empty()) {
    const ssize_t written = write(file_.get(), records.data(), records.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure(path_, errno);
    size_ += static_cast<std::uint64_t>(written);
    records = records.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> RecordingWriter::finish() {
  std::vector<std::uint8_t> end;
  recording::emit(recording::End{}, 0, end);
  return append(end);
}

}  // namespace ucm::cli
