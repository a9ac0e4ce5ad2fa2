// SPDX-License-Identifier: Apache-2.0
#include "tandem/weights/torch_storages_internal.h"

#include <fmt/format.h>

#include <cstring>

#include "tandem/base/budget.h"
#include "tandem/base/small_float.h"
#include "tandem/io/json.h"
#include "tandem/io/pickle/pickle_numpy.h"
#include "tandem/io/zip_internal.h"

namespace tandem::weights {
namespace {

using io::PickleGlobal;
using io::PickleNode;
using Kind = PickleNode::Kind;
using Use = PickleGlobal::Use;

constexpr const char* kAdvice =
    "Save the model's state_dict() with torch.save instead of an object.";
constexpr std::string_view kLegacyMagic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19.", 15);

// ---- elements

template <class From, class To>
void widen_one(const char* from, void* to) {
  From v;
  std::memcpy(&v, from, sizeof v);
  TD_CHECK(static_cast<uint64_t>(v) <= static_cast<uint64_t>(INT64_MAX), Format,
           "an element is {}, which does not fit i64", v);
  const To wide = static_cast<To>(v);
  std::memcpy(to, &wide, sizeof wide);
}
template <SmallFloat format>
void decode_one(const char* from, void* to) {
  const float v = decode(format, static_cast<uint8_t>(*from));
  std::memcpy(to, &v, sizeof v);
}

/// The storage types, then the dtypes, some of which have no storage type.
constexpr StoredType kStored[] = {
    {"DoubleStorage", DType::f64, 8},
    {"FloatStorage", DType::f32, 4},
    {"HalfStorage", DType::f16, 2},
    {"BFloat16Storage", DType::bf16, 2},
    {"LongStorage", DType::i64, 8},
    {"IntStorage", DType::i32, 4},
    {"ShortStorage", DType::i16, 2},
    {"CharStorage", DType::i8, 1},
    {"ByteStorage", DType::u8, 1},
    {"BoolStorage", DType::b8, 1},
    {"UntypedStorage", DType::u8, 1},
    {"ComplexFloatStorage", DType::f32, 8, nullptr, true},
    {"ComplexDoubleStorage", DType::f64, 16, nullptr, true},
    {"QInt8Storage", DType::i8, 1, nullptr, false, true},
    {"QUInt8Storage", DType::u8, 1, nullptr, false, true},
    {"QInt32Storage", DType::i32, 4, nullptr, false, true},
    {"float64", DType::f64, 8},
    {"float32", DType::f32, 4},
    {"float16", DType::f16, 2},
    {"bfloat16", DType::bf16, 2},
    {"int64", DType::i64, 8},
    {"int32", DType::i32, 4},
    {"int16", DType::i16, 2},
    {"int8", DType::i8, 1},
    {"uint8", DType::u8, 1},
    {"bool", DType::b8, 1},
    {"uint16", DType::i32, 2, widen_one<uint16_t, int32_t>},
    {"uint32", DType::i64, 4, widen_one<uint32_t, int64_t>},
    {"uint64", DType::i64, 8, widen_one<uint64_t, int64_t>},
    {"complex32", DType::f16, 4, nullptr, true},
    {"complex64", DType::f32, 8, nullptr, true},
    {"complex128", DType::f64, 16, nullptr, true},
    {"float8_e4m3fn", DType::f32, 1, decode_one<SmallFloat::e4m3fn>},
    {"float8_e5m2", DType::f32, 1, decode_one<SmallFloat::e5m2>},
    {"float8_e4m3fnuz", DType::f32, 1, decode_one<SmallFloat::e4m3fnuz>},
    {"float8_e5m2fnuz", DType::f32, 1, decode_one<SmallFloat::e5m2fnuz>},
    {"float8_e8m0fnu", DType::f32, 1, decode_one<SmallFloat::e8m0fnu>},
};

// ---- names

/// What a file may name besides the types above ("torch FloatStorage") and NumPy's.
constexpr PickleGlobal kTorchGlobals[] = {
    {"collections OrderedDict", Use::mapping},
    {"torch._utils _rebuild_tensor", Use::function},
    {"torch._utils _rebuild_tensor_v2", Use::function},
    {"torch._utils _rebuild_tensor_v3", Use::function},
    {"torch._utils _rebuild_parameter", Use::function},
    {"torch._utils _rebuild_parameter_with_state", Use::function},
    {"torch._utils _rebuild_qtensor", Use::function},
    {"torch._utils _rebuild_sparse_tensor", Use::function},
    {"torch.serialization _get_layout", Use::function},
    {"torch Size", Use::function},
    {"torch device", Use::function},
    {"torch.storage UntypedStorage"},
    {"torch.storage TypedStorage"},
    {"torch per_tensor_affine"},
    {"torch per_tensor_symmetric"},
    {"torch per_channel_affine"},
    {"torch per_channel_symmetric"},
    {"torch per_channel_affine_float_qparams"},
    {"torch qint8"},
    {"torch quint8"},
    {"torch qint32"},
    {"torch strided"},
    {"torch contiguous_format"},
    {"torch channels_last"},
};

std::span<const PickleGlobal> all_globals() {
  static const auto* const all = [] {
    static std::vector<std::string> names;
    for (const StoredType& t : kStored) names.push_back("torch " + std::string(t.name));
    auto* list = new std::vector<PickleGlobal>(std::begin(kTorchGlobals), std::end(kTorchGlobals));
    for (const std::string& name : names) list->push_back({name});
    const std::span<const PickleGlobal> numpy = io::numpy_globals();
    list->insert(list->end(), numpy.begin(), numpy.end());
    return list;
  }();
  return *all;
}

// ---- files

/// Files since PyTorch 1.6.
class ZipStorages : public TorchStorages {
 public:
  explicit ZipStorages(const FilePath& path) : zip_(path) {
    for (const io::ZipMember& m : zip_.members()) {
      if (!members_.emplace(m.name, &m).second)
        fail("the member {} appears twice", io::quote_json(m.name));
      constexpr std::string_view kPickle = "data.pkl";
      if (m.name == kPickle || m.name.ends_with("/data.pkl")) {
        if (found_)
          fail("there are two pickles, {} and {}", io::quote_json(prefix_ + "data.pkl"),
               io::quote_json(m.name));
        prefix_ = m.name.substr(0, m.name.size() - kPickle.size());
        found_ = true;
      }
    }
    if (!found_) fail("this zip file has no data.pkl: torch.save did not write it");
    if (const io::ZipMember* order = member("byteorder"); order && bytes(*order) != "little")
      fail("the data is big-endian, which is not supported in this version");
    if (member("constants.pkl"))
      fail("this is a TorchScript program, not weights\nSave its state_dict() with torch.save.");
    value_ = io::read_pickle(bytes(*member("data.pkl")),
                             fmt::format("'{}': data.pkl", zip_.file()->path()), all_globals(),
                             {.advice = kAdvice});
  }
  const PickleNode& root() const override { return value_.root(); }
  std::string_view find(const std::string& key) override {
    const io::ZipMember* m = member("data/" + key);
    if (!m) fail("the storage {} is missing", io::quote_json(key));
    return bytes(*m);
  }
  const Ref<MappedFile>& file() const override { return zip_.file(); }

 private:
  template <class... T>
  [[noreturn]] TD_COLD void fail(fmt::format_string<T...> format, const T&... args) const {
    TD_FAIL(Format, "'{}': {}", zip_.file()->path(),
            fmt::vformat(format, fmt::make_format_args(args...)));
  }
  const io::ZipMember* member(const std::string& name) const {
    const auto it = members_.find(prefix_ + name);
    return it == members_.end() ? nullptr : it->second;
  }
  std::string_view bytes(const io::ZipMember& m) const {
    if (m.deflated)
      fail("the member {} is compressed, torch.save stores it", io::quote_json(m.name));
    return zip_.stored(m);
  }

  io::ZipReader zip_;
  io::Pickle value_;
  std::map<std::string, const io::ZipMember*> members_;
  std::string prefix_;
  bool found_ = false;
};

/// Older files: magic, version and system as pickles, the value, the list of keys, then for each
/// key the number of elements and the bytes. Only the value tells the element types.
class LegacyStorages : public TorchStorages {
 public:
  explicit LegacyStorages(const FilePath& path) : file_(make_ref<MappedFile>(path)) {
    at_ = kLegacyMagic.size();
    const io::Pickle version = next();
    if (version.root().kind != Kind::integer || version.root().integer != 1001)
      fail("the version of the old format is not 1001");
    const io::Pickle system = next();
    for (size_t i = 0; i + 1 < system.root().items.size(); i += 2) {
      const PickleNode &key = *system.root().items[i], &value = *system.root().items[i + 1];
      if (key.text == "little_endian" && value.integer == 0)
        fail("the data is big-endian, which is not supported in this version");
    }
    value_ = next();
    collect(value_.root(), 0);
    const io::Pickle keys = next();
    if (keys.root().kind != Kind::list) fail("the list of storages is missing");
    for (const PickleNode* key : keys.root().items) place(*key);
    if (at_ != file_->size()) fail("there are {} bytes after the data", file_->size() - at_);
  }
  const PickleNode& root() const override { return value_.root(); }
  const Ref<MappedFile>& file() const override { return file_; }
  std::string_view find(const std::string& key) override {
    const auto it = places_.find(key);
    if (it == places_.end()) fail("the storage {} is missing", io::quote_json(key));
    return it->second;
  }

 private:
  template <class... T>
  [[noreturn]] TD_COLD void fail(fmt::format_string<T...> format, const T&... args) const {
    TD_FAIL(Format, "'{}': {}", file_->path(),
            fmt::vformat(format, fmt::make_format_args(args...)));
  }
  io::Pickle next() {
    io::Pickle p =
        io::read_pickle(file_->view().substr(at_), fmt::format("'{}': byte {}", file_->path(), at_),
                        all_globals(), {.advice = kAdvice});
    at_ += p.bytes();
    return p;
  }
  /// Collects the element size of each storage that a tensor names.
  void collect(const PickleNode& n, int depth) {
    if (depth > 2 * kMostTorchDepth) fail("values are nested more than {} deep", kMostTorchDepth);
    Budget::count();
    if (n.kind == Kind::persistent && n.items[0]->kind == Kind::tuple &&
        n.items[0]->items.size() >= 5) {
      const auto& parts = n.items[0]->items;
      if (parts[1]->kind == Kind::global)
        if (const StoredType* t = stored_type(short_name(*parts[1])))
          widths_[parts[2]->text] = t->bytes;
      if (parts.size() > 5 && parts[5]->kind != Kind::none)
        fail("a storage is a view of another, which is not supported in this version");
      return;
    }
    for (const PickleNode* item : n.items) collect(*item, depth + 1);
    if (n.arguments) collect(*n.arguments, depth + 1);
  }
  void place(const PickleNode& key) {
    const auto width = widths_.find(key.text);
    if (key.kind != Kind::text || width == widths_.end())
      fail("the storage {} belongs to no tensor", io::quote_json(key.text));
    const size_t left = file_->size() - at_;
    int64_t count;
    if (left < sizeof count)
      fail("the file is truncated before storage {}", io::quote_json(key.text));
    std::memcpy(&count, file_->data() + at_, sizeof count);
    at_ += sizeof count;
    if (count < 0 || static_cast<uint64_t>(count) > (left - sizeof count) / width->second)
      fail("the storage {} claims {} elements, {} bytes are left", io::quote_json(key.text), count,
           left - sizeof count);
    const size_t bytes = static_cast<size_t>(count) * width->second;
    if (!places_.emplace(key.text, file_->view().substr(at_, bytes)).second)
      fail("the storage {} appears twice", io::quote_json(key.text));
    at_ += bytes;
  }

  Ref<MappedFile> file_;
  size_t at_ = 0;
  io::Pickle value_;
  std::map<std::string, size_t> widths_;
  std::map<std::string, std::string_view> places_;
};

}  // namespace

const StoredType* stored_type(std::string_view name) {
  for (const StoredType& t : kStored)
    if (t.name == name) return &t;
  return nullptr;
}

std::unique_ptr<TorchStorages> open_torch_storages(const FilePath& path) {
  if (MappedFile(path).view().starts_with(kLegacyMagic))
    return std::make_unique<LegacyStorages>(path);
  return std::make_unique<ZipStorages>(path);
}

}  // namespace tandem::weights
