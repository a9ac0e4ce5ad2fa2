// SPDX-License-Identifier: Apache-2.0
// Every reader of foreign files in one table: valid files to begin with, a function that reads any
// bytes as one, and one that repairs checksums, so that mutated bytes reach what lies behind them.
// The fuzz program, the attack program and the tests of budgets walk it. Files that were made to
// exhaust a reader: crafted_files().
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/error.h"

namespace tandem::readers {

using Random = std::mt19937_64;

struct Reader {
  const char* name;
  /// Small valid files; see seeds_of.
  std::vector<std::string> (*seeds)();
  /// Reads, or throws.
  void (*read)(std::string_view bytes);
  /// Makes checksums right where the structure can still be followed.
  void (*repair)(std::string& bytes) = nullptr;
  /// A change that keeps the structure.
  void (*mutate)(std::string& bytes, Random& random) = nullptr;
  /// Programs and patterns may fail in more ways than files.
  bool runs = false;
};

std::span<const Reader> readers();
/// Throws Value for an unknown name.
const Reader& find_reader(std::string_view name);
/// Its valid files, and those of tests/readers/corpus/NAME: what the library does not write itself,
/// and inputs that once broke the reader.
std::vector<std::string> seeds_of(const Reader& r);

/// How reading went: a refusal is Format or Unsupported, of what runs also any other error but
/// Internal. Anything else is thrown.
enum class Outcome : uint8_t { read, refused };
Outcome try_reading(const Reader& r, std::string_view bytes);

/// What `f` costs: seconds of this process's processor, and the most memory that the process held
/// more than before.
struct Cost {
  double seconds = 0;
  uint64_t bytes = 0;
};
Cost cost_of(const std::function<void()>& f);

/// One of many small changes to `bytes`, of those that keep the structure or of any bytes; then
/// repaired, most times.
void mutate(const Reader& r, std::string& bytes, Random& random);

/// A file that asks for far more than it is worth.
struct Crafted {
  std::string name;
  const char* reader;
  std::function<std::string()> bytes;
  /// Part of the message; "": it may also be read.
  const char* says = "";
};
const std::vector<Crafted>& crafted_files();
/// Those of them that are ONNX models; of TensorFlow and Keras.
void add_crafted_models(std::vector<Crafted>& all);
void add_crafted_tensorflow(std::vector<Crafted>& all);
void add_crafted_tflite(std::vector<Crafted>& all);
void add_crafted_tfjs(std::vector<Crafted>& all);

/// Small valid ONNX models, and models of TFLite.
std::vector<std::string> onnx_seeds();
std::vector<std::string> tflite_seeds();
/// Writes the .tflite file as a model of TensorFlow.js.
void convert_tflite(std::string_view bytes);
std::vector<std::string> tfjs_seeds();

/// What clients send to a server.
std::vector<std::string> http_seeds();
void read_http(std::string_view bytes);
std::vector<std::string> json_tensor_seeds();
void read_json_tensor(std::string_view bytes);
std::vector<std::string> http2_seeds();
void read_http2(std::string_view bytes);
std::vector<std::string> grpc_seeds();
void read_grpc(std::string_view bytes);
std::vector<std::string> tensor_proto_seeds();
void read_tensor_proto(std::string_view bytes);
/// A method's number and its message: the call is answered by a small model.
std::vector<std::string> grpc_call_seeds();
void read_grpc_call(std::string_view bytes);
void mutate_grpc_call(std::string& s, Random& random);
/// A path, a line feed and a body.
std::vector<std::string> rest_call_seeds();
void read_rest_call(std::string_view bytes);
/// Calls of tandem_c.h.
std::vector<std::string> c_call_seeds();
void read_c_calls(std::string_view bytes);
std::vector<std::string> ebnf_seeds();
void read_ebnf(std::string_view bytes);
/// A model's serve.yaml, and its ensemble put together of small models.
std::vector<std::string> serve_settings_seeds();
void read_serve_settings(std::string_view bytes);
/// What servers and `tandem deploy` are pointed at.
std::vector<std::string> text_proto_seeds();
void read_text_proto(std::string_view bytes);
std::vector<std::string> recorded_seeds();
void read_recorded_requests(std::string_view bytes);
std::vector<std::string> elf_seeds();
void read_program(std::string_view bytes);

// ---- changes by format
void repair_tfrecord(std::string& s);
void repair_tar(std::string& s);
void repair_png(std::string& s);
void repair_zip(std::string& s);
void repair_gzip(std::string& s);
void repair_flac(std::string& s);
void repair_table(std::string& s);
void repair_riff(std::string& s);
/// Changes one field of a protobuf message, at any depth; lengths stay right.
void mutate_protobuf(std::string& s, Random& random);
/// Exchanges a number or a word of a text for an extreme one.
void mutate_text(std::string& s, Random& random);
/// Changes a directory, an entry or a number of a TIFF file.
void mutate_tiff(std::string& s, Random& random);
/// Changes a segment of a JPEG, or of a JPEG 2000 codestream, whose boxes it changes too.
void mutate_jpeg(std::string& s, Random& random);
void mutate_jpeg2000(std::string& s, Random& random);
/// Changes a chunk of a RIFF file: WAV and WebP.
void mutate_riff(std::string& s, Random& random);
/// Changes a word of a flatbuffer, which may be an offset, a size or an entry of a list of fields.
void mutate_flatbuffer(std::string& s, Random& random);
/// Any change to any bytes.
void mutate_bytes(std::string& s, Random& random);

// ---- numbers of n bytes in files
uint64_t little(std::string_view s, size_t at, size_t n);
uint64_t big(std::string_view s, size_t at, size_t n);
void put_little(std::string& s, size_t at, uint64_t v, size_t n);
void put_big(std::string& s, size_t at, uint64_t v, size_t n);
void put_varint(std::string& out, uint64_t v);
/// A number at which sizes and counts break.
uint64_t extreme(Random& random);

// ---- builders that seeds and crafted files share
std::string big_endian(std::initializer_list<std::pair<uint64_t, int>> numbers);
std::string little_endian(std::initializer_list<std::pair<uint64_t, int>> numbers);
/// `head` and then `data`, that many times, as a zlib stream; raw: as a zip file has it.
std::string deflate(std::string_view data, uint64_t copies = 1, bool raw = false,
                    std::string_view head = {});
/// The same as a gzip file: `head` and a number of MiB of `fill`.
std::string gzip_bomb(std::string_view head, uint64_t mebibytes, char fill = '\0');
/// A black PNG of three channels.
std::string png(uint64_t w, uint64_t h);
/// Headers and entries of a tar archive.
std::string tar_entry(std::string_view name, std::string_view bytes, char type = '0');
/// A TIFF file of one strip: gray, w x h, a compression.
std::string tiff(uint64_t w, uint64_t h, uint64_t compression, std::string_view data);
/// A bare JPEG 2000 codestream of one component: w x h in tiles of t x t, precincts of 1 << p.
std::string codestream(uint64_t w, uint64_t h, uint64_t t, uint64_t p);
/// A JPEG of w x h that is gray and empty; `scans` of a progressive one, 0: baseline.
std::string jpeg(uint64_t w, uint64_t h, int scans);
/// A FLAC stream of `frames` constant frames of 65,535 samples in 8 channels.
std::string flac(int frames);
/// A WAV file of 16-bit samples.
std::string wav(std::string_view data, uint64_t channels = 1);
/// A zip file with one member.
struct Member {
  std::string name, data;
  bool deflated = false;
  uint64_t copies = 1;  ///< the content is `head`, and `data` that many times
  std::string head = {};
};
std::string zip(const std::vector<Member>& members);

}  // namespace tandem::readers
