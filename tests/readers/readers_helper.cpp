// SPDX-License-Identifier: Apache-2.0
// The table of readers. Valid files come from the library's own writers, and from the folders of
// golden files where it has none.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "tandem/io/json.h"
#include "tandem/io/npy.h"
#include "tandem/io/pickle/pickle.h"
#include "tandem/io/protobuf.h"
#include "tandem/io/tensorflow/keras_file.h"
#include "tandem/io/tensorflow/snappy.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/io/tensorflow/tfrecord.h"
#include "tandem/io/yaml.h"
#include "tandem/onnx/onnx.h"
#include "tandem/tandem.h"
#include "tandem/text/sentencepiece.h"
#include "tandem/text/tokenizer.h"
#include "tandem/weights/torch_file.h"
#include "tests/onnx/helper.h"
#include "tests/readers/readers.h"

#include "tandem/io/audio.h"
#include "tandem/io/csv.h"
#include "tandem/io/gzip.h"
#include "tandem/io/idx.h"
#include "tandem/io/image.h"
#include "tandem/io/image/plain.h"
#include "tandem/io/tar.h"

namespace tandem::readers {
namespace {

namespace fs = std::filesystem;
using Seeds = std::vector<std::string>;

/// A file in memory that holds bytes while one reader looks at them.
class HeldFile {
 public:
  HeldFile(std::string_view bytes, const char* ending = "")
      : path_("/dev/shm/tandem_readers_" + std::to_string(getpid()) + ending) {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
        ::close(fd) != 0)
      std::abort();
  }
  ~HeldFile() { ::unlink(path_.c_str()); }
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
/// Names of other files lead nowhere here: that is no error of the reader.
void of_one_file(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Io) throw;
    TD_FAIL(Format, "it names other files: {}", e.what());
  }
}
std::string source(const std::string& path) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/" + path;
}
/// Files of a folder of tests that end so and are small.
Seeds files(const std::string& folder, std::initializer_list<std::string_view> endings,
            size_t most = 16384) {
  Seeds out;
  std::vector<fs::path> paths;
  for (const auto& e : fs::directory_iterator(source(folder))) paths.push_back(e.path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& p : paths)
    for (const std::string_view ending : endings)
      if (p.native().ends_with(ending) && fs::file_size(p) <= most)
        out.push_back(read_file(p.native()));
  return out;
}
/// What a writer puts into a file.
template <class Write>
std::string written(Write write) {
  const HeldFile file("");
  write(file.path());
  return read_file(file.path());
}

StateDict arrays() {
  StateDict d;
  d["weight"] = arange(12.0).reshape({3, 4});
  d["n"] = ones({4}, int32);
  d["flag"] = ones({2}, boolean);
  return d;
}

void touch(const StateDict& values) {
  for (const auto& [name, t] : values)
    if (t.numel() > 0 && t.numel() < (1 << 20)) t.to(DType::f64).sum().item<double>();
}

// ---- weights

Seeds seeds_safetensors() {
  StateDict odd;
  odd["nothing"] = zeros({0, 3}, int64);
  odd["half"] = ones({}, bfloat16);
  return {written([](const std::string& p) {
            save(arrays(), p, {{"format", "pt"}});
          }),
          written([&](const std::string& p) { save(odd, p); })};
}
void read_safetensors(std::string_view bytes) {
  const HeldFile f(bytes);
  Metadata metadata;
  touch(load(f.path(), &metadata));
}
Seeds seeds_npy() {
  return {written([](const std::string& p) { io::save_npy(arange(6.0).reshape({2, 3}), p); })};
}
void read_npy(std::string_view bytes) {
  const HeldFile f(bytes);
  touch(StateDict::of({{"x", io::load_npy(f.path())}}));
}
Seeds seeds_npz() {
  return {written([](const std::string& p) { io::save_npz(arrays(), p, {}); }),
          written([](const std::string& p) { io::save_npz(arrays(), p, {.compressed = true}); })};
}
void read_npz(std::string_view bytes) {
  const HeldFile f(bytes);
  touch(io::load_npz(f.path()));
}
Seeds seeds_torch() {
  weights::TorchValue::Dict state, top;
  const Tensor weight = arange(12.0).reshape({3, 4});
  state.emplace_back("weight", weight);
  state.emplace_back("row", weight.select(0, 1));
  state.emplace_back("mask", ones({3}, boolean));
  top.emplace_back("state_dict", std::move(state));
  top.emplace_back("epoch", 3);
  top.emplace_back("betas", weights::TorchValue::List{0.9, 0.999});
  top.emplace_back("name", "adam");
  Seeds out = files("weights/golden", {".pth"});
  out.push_back(written([&](const std::string& p) { weights::save_torch(std::move(top), p); }));
  return out;
}
void read_torch(std::string_view bytes) {
  const HeldFile f(bytes);
  weights::load_torch(f.path());
  touch(weights::load_torch_state(f.path()));
}
constexpr io::PickleGlobal kGlobals[] = {
    {"collections OrderedDict", io::PickleGlobal::Use::mapping},
    {"collections defaultdict", io::PickleGlobal::Use::defaults},
    {"m f", io::PickleGlobal::Use::function},
    {"m Object", io::PickleGlobal::Use::object},
    {"m Type", io::PickleGlobal::Use::value}};
Seeds seeds_pickle() {
  io::PickleWriter w;
  w.empty_dict();
  w.mark();
  w.text("numbers");
  w.mark();
  w.integer(1);
  w.number(0.5);
  w.tuple();
  w.text("call");
  w.global("m", "f");
  w.mark();
  w.integer(int64_t{1} << 40);
  w.none();
  w.tuple();
  w.reduce();
  w.text("map");
  w.global("collections", "OrderedDict");
  w.empty_tuple();
  w.reduce();
  w.setitems();
  return {w.finish(), std::string("cm\nObject\n)\x81K\x07T\x03\0\0\0\xff\0x\x86"
                                  "b.",
                                  26)};
}
void read_pickle(std::string_view bytes) { io::read_pickle(bytes, "pickle", kGlobals); }

// ---- tables, texts, records

Seeds seeds_idx() {
  const std::string plain = written([](const std::string& p) {
    io::save_idx(arange(12).to(DType::u8).reshape({3, 4}), p);
  });
  return {plain, io::gzip(plain)};
}
void read_idx(std::string_view bytes) {
  const HeldFile f(bytes);
  io::load_idx(f.path());
}
Seeds seeds_gzip() { return {io::gzip("a text, a text"), io::gzip("one") + io::gzip("two")}; }
void read_gzip(std::string_view bytes) {
  const HeldFile f(bytes);
  io::InputFile in(f.path());
  const Budget budget(in.path(), in.size());
  in.read_rest(SIZE_MAX);
  io::gunzip(bytes, SIZE_MAX);
}
Seeds seeds_csv() {
  const std::string text = "a,\"b, c\",d\r\n1,2.5,x\n\"3\",\"4\",\"say \"\"no\"\"\"\n";
  return {text, io::gzip(text)};
}
void read_csv(std::string_view bytes) {
  const HeldFile f(bytes);
  const io::Csv csv = io::Csv::read(f.path());
  for (size_t c = 0; c < std::min<size_t>(csv.columns(), 2); ++c) csv.column(c, DType::f32);
}
Seeds seeds_json() { return {R"({"a":[1,2.5,"x\n",true,null],"b":{"c":-1e3}})", "[[],[[]],{}]"}; }
void read_json(std::string_view bytes) { io::parse_json(bytes, "it.json").dump(); }
Seeds seeds_yaml() {
  return {"a: 1e-3\nb:\n  c: [1, two, \"3\"]\n  d: {e: true}\nf: null\n",
          "base: &b {x: 1, y: [2, 3]}\nuse: *b\nmore:\n  - *b\n  - |\n    text\n"};
}
void read_yaml(std::string_view bytes) { io::parse_yaml(bytes, "it.yaml").dump(); }
Seeds seeds_tar() {
  return {tar_entry("0.txt", "hello") + tar_entry("1.txt", std::string(600, 'x')) +
              std::string(1024, '\0'),
          tar_entry("././@LongLink", std::string(120, 'n'), 'L') + tar_entry("short", "a"),
          tar_entry("pax", "18 path=a long name\n", 'x') + tar_entry("short", "a")};
}
void read_tar(std::string_view bytes) {
  const HeldFile f(bytes);
  size_t sum = 0;
  const io::TarFile file(f.path());
  for (const auto& e : file.entries())
    for (const char c : e.bytes) sum += static_cast<unsigned char>(c);
  (void)sum;
}
Seeds seeds_tfrecord() {
  const std::vector<int64_t> ints{1, 2, 300};
  io::TFExample e;
  e["label"].kind = io::TFFeature::Kind::ints;
  e["label"].ints = ints;
  e["x"].kind = io::TFFeature::Kind::floats;
  e["x"].floats = {0.5f, 1};
  e["image"].kind = io::TFFeature::Kind::bytes;
  e["image"].bytes = {"abc"};
  const std::string one = io::write_tf_example(e);
  return {io::tfrecord(one) + io::tfrecord("plain") + io::tfrecord("")};
}
void read_tfrecord(std::string_view bytes) {
  const HeldFile f(bytes);
  const io::TFRecordFile file(f.path());
  for (int64_t i = 0; i < std::min<int64_t>(file.size(), 1000); ++i) {
    try {
      io::parse_tf_example(file.record(i), "record");
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Format) throw;
    }
  }
}
void mutate_records(std::string& s, Random& random) {
  if (s.size() < 16) return;
  uint64_t n = 0;
  for (size_t i = 8; i-- > 0;) n = n << 8 | static_cast<unsigned char>(s[i]);
  if (n > s.size() - 16) return;
  std::string record = s.substr(12, n);
  mutate_protobuf(record, random);
  s.replace(0, 16 + n, io::tfrecord(record));
}

// ---- images and sound

Tensor decoded(std::string_view bytes) {
  return io::decode_image(bytes, {.mode = io::ImageMode::unchanged}, "image");
}
void read_image(std::string_view bytes) { decoded(bytes); }
Seeds seeds_png() {
  return {io::encode_png(arange(40).to(DType::u8).reshape({5, 8})),
          io::encode_png(arange(60).to(DType::u8).reshape({4, 3, 5}))};
}
Seeds seeds_jpeg() { return {jpeg(17, 9, 0), jpeg(16, 16, 3)}; }
Seeds seeds_tiff() { return files("io/images", {".tif"}); }
Seeds seeds_jpeg2000() { return files("io/images", {".jp2", ".j2k"}); }
Seeds seeds_webp() {
  // One pixel: lossless, and lossy.
  return {
      std::string(
          "RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0", 34),
      std::string("RIFF\x22\0\0\0WEBPVP8 \x16\0\0\0\x30\x01\0\x9d\x01\x2a\x01\0\x01\0\x0e\xc0"
                  "\xfe\x25\xa4\0\x03\x70\0\0\0\0",
                  42)};
}
Seeds seeds_plain() {
  std::string bmp = "BM" + little_endian({{54 + 24, 4},
                                          {0, 4},
                                          {54, 4},
                                          {40, 4},
                                          {2, 4},
                                          {3, 4},
                                          {1, 2},
                                          {24, 2},
                                          {0, 4},
                                          {24, 4},
                                          {0, 8},
                                          {0, 8}});
  return {bmp + std::string(24, 'x'), "P5 2 2 255\nabcd", "P6\n# a comment\n2 1\n255\nabcdef"};
}
void read_plain(std::string_view bytes) { io::decode_plain_image(bytes, {}, "image"); }
Seeds seeds_wav() { return {wav("abcdefgh"), wav("abcdefgh", 2)}; }
Seeds seeds_flac() {
  Seeds out = files("data/flac", {".flac"}, 65536);
  out.push_back(flac(2));
  return out;
}
void read_sound(std::string_view bytes) { io::decode_audio(bytes, {}, "sound"); }

// ---- models and tokenizers

void walk(io::ProtoReader r) {
  while (r.next()) {
    std::vector<int64_t> ints;
    std::vector<float> floats;
    std::vector<double> doubles;
    switch (r.field() % 8) {  // the field's number decides how its value is read
      case 0:
        r.unsigned_value();
        break;
      case 1:
        r.float_value();
        break;
      case 2:
        walk(r.message());
        break;
      case 3:
        r.bytes();
        break;
      case 4:
        r.append(ints);
        break;
      case 5:
        r.append(floats);
        break;
      case 6:
        r.append(doubles);
        break;
      default:  // skipped
        break;
    }
  }
}
Seeds seeds_protobuf() {
  io::ProtoWriter in, out;
  in.add_int(8, 7);
  in.add_float(9, 0.5f);
  in.add_packed(4, std::vector<int64_t>{1, -1});
  out.add_message(2, in);
  out.add_bytes(3, "bytes");
  out.add_packed(5, std::vector<float>{1, 2});
  return {out.str()};
}
void read_protobuf(std::string_view bytes) {
  io::ProtoDocument document(bytes, "message");
  walk(document.reader());
}

using namespace tandem::onnx;

void read_onnx(std::string_view bytes) {
  const OnnxModel m = OnnxModel::parse(std::string(bytes));
  m.run(std::vector<OnnxValue>{});
}
/// The weights are the symbolic inputs of a trace.
void trace_onnx(std::string_view bytes) {
  const OnnxModel m = OnnxModel::parse(std::string(bytes), "model", {.trainable = true});
  std::vector<Spec> specs;
  for (const auto& [name, value] : m.weights()) specs.push_back(spec_of(value.tensor()));
  const size_t before = m.inputs().size() - specs.size();
  const auto run = [&](std::span<const Tensor> x) {
    std::vector<Tensor> in(before);
    in.insert(in.end(), x.begin(), x.end());
    return m(in);
  };
  trace(run, specs, Captures::as_inputs);
}

Seeds seeds_tokenizer() {
  Seeds out;
  const io::Json golden = io::parse_json(read_file(source("golden/tokenizers.json")), "golden");
  for (const auto& [kind, entry] : *golden.as_object()) {
    std::string text = entry.find("tokenizer")->dump();
    if (text.size() < 32768) out.push_back(std::move(text));
  }
  return out;
}
constexpr const char* kText = "A caf\u00e9, 3 words\n and\t more.";
void read_tokenizer(std::string_view bytes) {
  const auto t = text::Tokenizer::from_json(bytes, "tokenizer.json");
  t.decode(t.encode(kText).ids);
}
Seeds seeds_sentencepiece() { return files("golden/sentencepiece", {".model"}, 1 << 16); }
void read_sentencepiece(std::string_view bytes) {
  const auto t = text::SentencePiece::from_bytes(bytes, "tokenizer.model");
  t.decode(t.encode(kText));
}

// ---- TensorFlow and Keras

constexpr const char* kTensorFlow = "onnx/tensorflow";

Seeds seeds_snappy() {
  // Literals, copies with offsets of one and of two bytes.
  return {std::string("\x0b\x28hello world", 13),
          std::string("\x0c\x0c"
                      "abcd\x11\x04",
                      8),
          std::string("\x10\x0c"
                      "abcd\x2e\x04\0",
                      9)};
}
void read_snappy(std::string_view bytes) {
  const Budget budget("block", bytes.size());
  io::snappy_decompress(bytes, "block");
}
Seeds seeds_checkpoint() { return files(kTensorFlow, {".index"}); }
void read_checkpoint(std::string_view bytes) {
  const HeldFile index(bytes, ".index"),
      data(read_file(source(kTensorFlow) + "/running_checkpoint.data-00000-of-00001"),
           ".data-00000-of-00001");
  of_one_file([&] { touch(weights::load_weights(index.path())); });
}
Seeds seeds_hdf5() {
  Seeds out = files("io/hdf5", {".h5"}, 65536);
  for (std::string& s : files(kTensorFlow, {".h5"}, 65536)) out.push_back(std::move(s));
  return out;
}
Seeds seeds_hdf5_model() { return files(kTensorFlow, {".h5"}, 65536); }
Seeds seeds_keras() { return files(kTensorFlow, {".keras"}, 65536); }
void read_keras(std::string_view bytes) {
  const HeldFile f(bytes);
  const Budget budget(f.path(), bytes.size());
  touch(io::keras_tensors(io::open_keras_file(f.path())));
}

/// Reads a model and runs it on zeros; sizes that are open become 1.
void run_on_zeros(const std::string& path, const std::string& signature) {
  const OnnxModel m = OnnxModel::load(path, {.signature = signature});
  std::vector<OnnxValue> in;
  for (const OnnxPort& p : m.inputs()) {
    Shape s;
    int64_t n = 1;
    for (const int64_t d : p.type.dims) s.push_back(std::clamp<int64_t>(d < 0 ? 1 : d, 0, 64));
    for (const Dim d : s) n *= d.value();
    if (n > (1 << 16) || s.rank() > 8 || p.type.elem == OnnxType::string ||
        p.type.elem == OnnxType::undefined)
      return;
    in.emplace_back(zeros(s, info_of(p.type.elem).carrier), p.type.elem);
  }
  m.run(in);
}
void run_keras(std::string_view bytes) {
  const HeldFile f(bytes);
  run_on_zeros(f.path(), "");
}
void run_tfjs(std::string_view bytes) {
  const HeldFile f(bytes, ".json");
  of_one_file([&] { run_on_zeros(f.path(), ""); });
}
Seeds seeds_graph() { return files(kTensorFlow, {".pb"}, 65536); }
void read_graph(std::string_view bytes) { run_on_zeros(HeldFile(bytes, ".pb").path(), ""); }
Seeds seeds_saved_model() { return files(std::string(kTensorFlow) + "/running", {".pb"}, 65536); }
void read_saved_model(std::string_view bytes) {
  const std::string folder = "/dev/shm/tandem_readers_" + std::to_string(getpid()) + "_model";
  fs::create_directories(folder);
  fs::copy(source(kTensorFlow) + "/running/variables", folder + "/variables",
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  std::ofstream(folder + "/saved_model.pb", std::ios::binary) << bytes;
  struct Remove {
    const std::string& folder;
    ~Remove() {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    }
  } const remove{folder};
  for (const char* signature : {"pick", "feed"}) run_on_zeros(folder, signature);
}

constexpr Reader kReaders[] = {
    {"safetensors", seeds_safetensors, read_safetensors, nullptr, mutate_text},
    {"npy", seeds_npy, read_npy, nullptr, mutate_text},
    {"npz", seeds_npz, read_npz, repair_zip, mutate_text},
    {"torch", seeds_torch, read_torch, repair_zip},
    {"pickle", seeds_pickle, read_pickle},
    {"idx", seeds_idx, read_idx, repair_gzip},
    {"gzip", seeds_gzip, read_gzip, repair_gzip},
    {"csv", seeds_csv, read_csv, repair_gzip, mutate_text},
    {"json", seeds_json, read_json, nullptr, mutate_text},
    {"yaml", seeds_yaml, read_yaml, nullptr, mutate_text},
    {"tar", seeds_tar, read_tar, repair_tar, mutate_text},
    {"tfrecord", seeds_tfrecord, read_tfrecord, repair_tfrecord, mutate_records},
    {"png", seeds_png, read_image, repair_png},
    {"jpeg", seeds_jpeg, read_image, nullptr, mutate_jpeg},
    {"webp", seeds_webp, read_image, repair_riff, mutate_riff},
    {"tiff", seeds_tiff, read_image, nullptr, mutate_tiff},
    {"jpeg2000", seeds_jpeg2000, read_image, nullptr, mutate_jpeg2000},
    {"plain_image", seeds_plain, read_plain, nullptr, mutate_text},
    {"wav", seeds_wav, read_sound, repair_riff, mutate_riff},
    {"flac", seeds_flac, read_sound, repair_flac},
    {"protobuf", seeds_protobuf, read_protobuf, nullptr, mutate_protobuf},
    {"onnx", onnx_seeds, read_onnx, nullptr, mutate_protobuf, true},
    {"onnx_traced", onnx_seeds, trace_onnx, nullptr, mutate_protobuf, true},
    {"tokenizer", seeds_tokenizer, read_tokenizer, nullptr, mutate_text, true},
    {"sentencepiece", seeds_sentencepiece, read_sentencepiece, nullptr, mutate_protobuf, true},
    {"snappy", seeds_snappy, read_snappy},
    {"checkpoint", seeds_checkpoint, read_checkpoint, repair_table},
    {"hdf5", seeds_hdf5, read_keras},
    {"keras", seeds_keras, read_keras, repair_zip, mutate_text},
    {"keras_model", seeds_keras, run_keras, repair_zip, mutate_text, true},
    {"hdf5_model", seeds_hdf5_model, run_keras, nullptr, mutate_text, true},
    {"tflite", tflite_seeds, run_keras, nullptr, mutate_flatbuffer, true},
    {"tflite_to_tfjs", tflite_seeds, convert_tflite, nullptr, mutate_flatbuffer},
    {"tf_graph", seeds_graph, read_graph, nullptr, mutate_protobuf, true},
    {"tfjs", tfjs_seeds, run_tfjs, nullptr, mutate_text, true},
    {"http_request", http_seeds, read_http, nullptr, mutate_text},
    {"http2_frames", http2_seeds, read_http2},
    {"grpc_infer", grpc_seeds, read_grpc, nullptr, mutate_protobuf},
    {"tensor_proto", tensor_proto_seeds, read_tensor_proto, nullptr, mutate_protobuf},
    {"json_tensor", json_tensor_seeds, read_json_tensor, nullptr, mutate_text, true},
    {"grpc_call", grpc_call_seeds, read_grpc_call, nullptr, mutate_grpc_call, true},
    {"rest_call", rest_call_seeds, read_rest_call, nullptr, mutate_text, true},
    {"c_api", c_call_seeds, read_c_calls, nullptr, nullptr, true},
    {"ebnf", ebnf_seeds, read_ebnf, nullptr, mutate_text, true},
    {"serve_settings", serve_settings_seeds, read_serve_settings, nullptr, mutate_text, true},
    {"text_proto", text_proto_seeds, read_text_proto, nullptr, mutate_text},
    {"recorded", recorded_seeds, read_recorded_requests, nullptr, mutate_text},
    {"elf", elf_seeds, read_program},
    {"saved_model", seeds_saved_model, read_saved_model, nullptr, mutate_protobuf, true},
};

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
/// A line of the system's about this process, "VmHWM:  123 kB", in bytes.
uint64_t memory_of(const char* line) {
  const std::string status = read_file("/proc/self/status");
  const size_t at = status.find(line);
  return at == status.npos ? 0 : 1024 * std::strtoull(status.c_str() + at + 6, nullptr, 10);
}

}  // namespace

Cost cost_of(const std::function<void()>& f) {
  const int fd = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {  // the most starts over
    if (::write(fd, "5", 1) != 1) std::perror("clear_refs");
    ::close(fd);
  }
  const uint64_t held = memory_of("VmRSS:");
  const double start = processor_seconds();
  f();
  const double seconds = processor_seconds() - start;
  const uint64_t most = memory_of("VmHWM:");
  trim_allocator();
  return {seconds, most > held ? most - held : 0};
}

std::span<const Reader> readers() { return kReaders; }
const Reader& find_reader(std::string_view name) {
  for (const Reader& r : kReaders)
    if (name == r.name) return r;
  TD_FAIL(Value, "there is no reader '{}'", name);
}
std::vector<std::string> seeds_of(const Reader& r) {
  Seeds out = r.seeds();
  const std::string folder = std::string("readers/corpus/") + r.name;
  if (fs::is_directory(source(folder)))
    for (std::string& s : files(folder, {""})) out.push_back(std::move(s));
  return out;
}

Outcome try_reading(const Reader& r, std::string_view bytes) {
  try {
    r.read(bytes);
    return Outcome::read;
  } catch (const Error& e) {
    const bool file = e.kind() == ErrorKind::Format || e.kind() == ErrorKind::Unsupported;
    if (e.kind() == ErrorKind::Internal || (!file && !r.runs)) throw;
    return Outcome::refused;
  }
}

}  // namespace tandem::readers
