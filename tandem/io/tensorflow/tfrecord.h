// SPDX-License-Identifier: Apache-2.0
// TFRecord: records with their lengths and masked CRC-32C checksums, as TensorFlow writes them
// (event files use this format too), and tf.train.Example, the message that most of them hold.
// https://www.tensorflow.org/tutorials/load_data/tfrecord
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/io/places.h"

namespace tandem::io {

/// `bytes` with its length and checksums: the bytes of one record in a file.
TD_API std::string tfrecord(std::string_view bytes);

struct TFRecordFileOptions {
  /// Keep the records before a damaged length or cut end, reporting it in damage(); else throw.
  bool keep_whole = false;
};

/// The records of a file, which is mapped: this takes constant memory. Lengths (with their
/// checksums) are verified when it is opened, a record's checksum when the record is read.
class TD_API TFRecordFile {
 public:
  /// Throws Io; Format naming file and record for a damaged length or a truncated end.
  explicit TFRecordFile(const FilePath& path, TFRecordFileOptions options = {});
  int64_t size() const { return places_.size(); }
  /// The bytes of record i, valid while this lives. Throws Index; Format for a wrong checksum.
  std::string_view record(int64_t i) const;
  const std::string& path() const { return file_->path(); }
  /// Why the end of the file could not be read; empty when it is intact.
  const std::string& damage() const { return damage_; }

 private:
  Ref<MappedFile> file_;
  Places<uint64_t> places_;
  std::string damage_;
};

/// One feature of an example: a list of values of one kind.
struct TFFeature {
  enum class Kind : uint8_t { none, bytes, floats, ints };
  Kind kind = Kind::none;
  std::vector<std::string_view> bytes;  ///< views into the record
  std::vector<float> floats;
  std::vector<int64_t> ints;
};
using TFExample = std::map<std::string, TFFeature, std::less<>>;

/// Parse a tf.train.Example. `name` is used in messages. Throws Format.
TD_API TFExample parse_tf_example(std::string_view bytes, const std::string& name = "example");
/// The example as bytes.
TD_API std::string write_tf_example(const TFExample& example);

}  // namespace tandem::io
