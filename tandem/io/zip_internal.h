// SPDX-License-Identifier: Apache-2.0
// Zip archives, as far as .npz and similar files need them: members stored or deflated, Zip64, no
// encryption, one disk. ZipReader maps the file and checks every offset, size and checksum before
// it returns a byte; ZipWriter writes through an AtomicFile. After APPNOTE 6.3.10 of PKWARE.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/files/file.h"

namespace tandem::io {

struct ZipMember {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0;  ///< compressed size in the file, and size of the content
  uint64_t header = 0;            ///< offset of its local header
  uint64_t data = 0;              ///< offset of its compressed bytes
};

/// The members of a zip file, in the order of its directory. Throws Io or Format.
class ZipReader {
 public:
  explicit ZipReader(const FilePath& path);
  const std::vector<ZipMember>& members() const { return members_; }
  /// The content of a stored member, in the mapped file; its checksum has been verified.
  std::string_view stored(const ZipMember& m) const;
  const Ref<MappedFile>& file() const { return file_; }

 private:
  void read_directory(uint64_t at, uint64_t bytes, uint64_t count);
  void read_member(std::string_view entry, uint64_t limit);
  void check_overlap() const;

  Ref<MappedFile> file_;
  std::vector<ZipMember> members_;
};

/// Reads the content of one member from front to back. Throws Format where the data is damaged,
/// ends early or has a wrong checksum (detected at the end).
class ZipStream {
 public:
  ZipStream(const ZipReader& zip, const ZipMember& member);
  ~ZipStream();
  ZipStream(const ZipStream&) = delete;
  ZipStream& operator=(const ZipStream&) = delete;
  /// Up to `bytes` bytes; fewer only at the end of the content.
  size_t read(void* to, size_t bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Pieces of a member's content. The whole content is passed at once, since its size and checksum
/// precede it.
using ZipPieces = std::vector<std::string_view>;

class ZipWriter {
 public:
  explicit ZipWriter(const FilePath& path) : file_(path) {}
  /// Add a member. The content of a stored one begins `lead` bytes before a multiple of 64, so that
  /// what follows the lead can be mapped. Equal content gives equal bytes.
  void add(const std::string& name, const ZipPieces& content, bool deflate, size_t lead = 0);
  /// Write the directory and move the file into place.
  void commit();

 private:
  AtomicFile file_;
  std::vector<ZipMember> members_;
};

}  // namespace tandem::io
