// SPDX-License-Identifier: Apache-2.0
// TFRecord: records with their lengths and masked CRC-32C sums, as TensorFlow writes them (event
// files are such files too), and tf.train.Example, the message that most of them hold.
// https://www.tensorflow.org/tutorials/load_data/tfrecord
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/file.h"
#include "tandem/io/places.h"

namespace tandem::io {

/// `bytes` with its length and sums: what stands in the file for one record.
TD_API std::string tfrecord(std::string_view bytes);

struct TFRecordFileOptions {
  /// Take the records before a damaged length or a cut end, and say so in damage(); else it throws.
  bool keep_whole = false;
};

/// The records of a file that is mapped, not read: it holds constant memory. Lengths are checked
/// (with their sums) when it is opened, a record's sum when it is asked for.
class TD_API TFRecordFile {
 public:
  /// Throws Io; Format naming file and record for a damaged length or a cut end.
  explicit TFRecordFile(const FilePath& path, TFRecordFileOptions options = {});
  int64_t size() const { return places_.size(); }
  /// The bytes of record i; they live as long as this. Throws Index; Format for a wrong sum.
  std::string_view record(int64_t i) const;
  const std::string& path() const { return file_->path(); }
  /// Why the file's end could not be read; empty when all of it is whole.
  const std::string& damage() const { return damage_; }

 private:
  Ref<MappedFile> file_;
  Places<uint64_t> places_;
  std::string damage_;
};

/// One feature of an example: a list of one kind.
struct TFFeature {
  enum class Kind : uint8_t { none, bytes, floats, ints };
  Kind kind = Kind::none;
  std::vector<std::string_view> bytes;  ///< views into the record
  std::vector<float> floats;
  std::vector<int64_t> ints;
};
using TFExample = std::map<std::string, TFFeature, std::less<>>;

/// A tf.train.Example. `name` stands in messages. Throws Format.
TD_API TFExample parse_tf_example(std::string_view bytes, const std::string& name = "example");
/// Its bytes again.
TD_API std::string write_tf_example(const TFExample& example);

}  // namespace tandem::io
