// SPDX-License-Identifier: Apache-2.0
// The reading half of torch_file.h. A storage is a member of the zip file; a tensor is a window of
// a storage given by offset, sizes and strides, which is validated before anything uses it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "tandem/base/budget.h"
#include "tandem/io/json.h"
#include "tandem/io/pickle.h"
#include "tandem/io/zip_internal.h"
#include "tandem/tensor/strided.h"
#include "tandem/weights/torch_file.h"

namespace tandem::weights {
namespace {

using io::PickleGlobal;
using io::PickleNode;
using Kind = PickleNode::Kind;
using Use = PickleGlobal::Use;

constexpr const char* kAdvice =
    "Save the model's state_dict() with torch.save instead of an object.";
/// All globals that a file may name.
constexpr PickleGlobal kGlobals[] = {
    {"collections OrderedDict", Use::mapping},
    {"torch._utils _rebuild_tensor", Use::function},
    {"torch._utils _rebuild_tensor_v2", Use::function},
    {"torch._utils _rebuild_tensor_v3", Use::function},
    {"torch._utils _rebuild_parameter", Use::function},
    {"torch._utils _rebuild_parameter_with_state", Use::function},
    {"torch Size", Use::function},
    {"torch device", Use::function},
    {"torch DoubleStorage"},
    {"torch FloatStorage"},
    {"torch HalfStorage"},
    {"torch BFloat16Storage"},
    {"torch LongStorage"},
    {"torch IntStorage"},
    {"torch ShortStorage"},
    {"torch CharStorage"},
    {"torch ByteStorage"},
    {"torch BoolStorage"},
    {"torch ComplexFloatStorage"},
    {"torch ComplexDoubleStorage"},
    {"torch QInt8Storage"},
    {"torch QUInt8Storage"},
    {"torch QInt32Storage"},
    {"torch UntypedStorage"},
    {"torch.storage UntypedStorage"},
    {"torch.storage TypedStorage"},
    {"torch float64"},
    {"torch float32"},
    {"torch float16"},
    {"torch bfloat16"},
    {"torch int64"},
    {"torch int32"},
    {"torch int16"},
    {"torch int8"},
    {"torch uint8"},
    {"torch bool"},
    {"torch uint16"},
    {"torch uint32"},
    {"torch uint64"},
    {"torch complex64"},
    {"torch complex128"},
    {"torch float8_e4m3fn"},
    {"torch float8_e5m2"},
    {"torch float8_e4m3fnuz"},
    {"torch float8_e5m2fnuz"},
    {"torch float8_e8m0fnu"},
    {"torch strided"},
    {"torch contiguous_format"},
    {"torch channels_last"},
};

struct Named {
  std::string_view name;
  DType dtype;
};
/// The storage types, and the dtypes that have none.
constexpr Named kDTypes[] = {{"DoubleStorage", DType::f64},
                             {"FloatStorage", DType::f32},
                             {"HalfStorage", DType::f16},
                             {"BFloat16Storage", DType::bf16},
                             {"LongStorage", DType::i64},
                             {"IntStorage", DType::i32},
                             {"ShortStorage", DType::i16},
                             {"CharStorage", DType::i8},
                             {"ByteStorage", DType::u8},
                             {"BoolStorage", DType::b8},
                             {"UntypedStorage", DType::u8},
                             {"float64", DType::f64},
                             {"float32", DType::f32},
                             {"float16", DType::f16},
                             {"bfloat16", DType::bf16},
                             {"int64", DType::i64},
                             {"int32", DType::i32},
                             {"int16", DType::i16},
                             {"int8", DType::i8},
                             {"uint8", DType::u8},
                             {"bool", DType::b8}};

constexpr int kMostDepth = 64;
constexpr std::string_view kLegacyMagic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19.", 15);

/// "FloatStorage" of "torch FloatStorage".
std::string_view short_name(const PickleNode& global) {
  return std::string_view(global.text).substr(global.text.find(' ') + 1);
}

/// Bytes of storages by key: members of a zip file, or sections after the pickles of an old file.
class Storages {
 public:
  virtual ~Storages() = default;
  /// The bytes of `key`, validated; `bytes` is the pickle's claim (legacy files only state it
  /// there).
  virtual std::string_view find(const std::string& key) = 0;
};

class Reader {
 public:
  Reader(Ref<MappedFile> file, Storages& storages) : file_(std::move(file)), storages_(storages) {}

  TorchValue value(const PickleNode& n, int depth = 0) {
    if (depth > kMostDepth) fail("values are nested more than {} deep", kMostDepth);
    Budget::count();
    Budget::take(2 * sizeof(TorchValue) + n.text.size());
    switch (n.kind) {
      case Kind::none:
        return {};
      case Kind::boolean:
        return n.integer != 0;
      case Kind::integer:
        return n.integer;
      case Kind::number:
        return n.number;
      case Kind::text:
        return n.text;
      case Kind::global:
        return dotted(n.text);
      case Kind::tuple:
        return TorchValue::Tuple{list(n, depth)};
      case Kind::list:
      case Kind::set:
        return list(n, depth);
      case Kind::dict:
        return dict(n, depth);
      case Kind::call:
        return call(n, depth);
      case Kind::big_integer:
        fail("an integer does not fit 64 bits");
      case Kind::bytes:
        fail("there are raw bytes, which no state_dict has");
      case Kind::persistent:
        fail("a storage appears outside of a tensor");
    }
    __builtin_unreachable();
  }

 private:
  template <class... T>
  [[noreturn]] TD_COLD void fail(fmt::format_string<T...> format, const T&... args) const {
    TD_FAIL(Format, "'{}': {}", file_->path(),
            fmt::vformat(format, fmt::make_format_args(args...)));
  }
  static std::string dotted(std::string s) {
    std::replace(s.begin(), s.end(), ' ', '.');
    return s;
  }
  TorchValue::List list(const PickleNode& n, int depth) {
    TorchValue::List out;
    for (const PickleNode* item : n.items) out.push_back(value(*item, depth + 1));
    return out;
  }
  TorchValue dict(const PickleNode& n, int depth) {
    TorchValue::Dict out;
    for (size_t i = 0; i + 1 < n.items.size(); i += 2) {
      const PickleNode& key = *n.items[i];
      if (key.kind != Kind::text && key.kind != Kind::integer)
        fail("a dict has a key of the kind {}", io::to_string(key.kind));
      const std::string before =
          std::exchange(name_, key.kind == Kind::text ? key.text : std::to_string(key.integer));
      out.emplace_back(value(key, depth + 1), value(*n.items[i + 1], depth + 1));
      name_ = before;
    }
    return out;
  }
  TorchValue call(const PickleNode& n, int depth) {
    const std::string_view f = n.text;
    const auto& arguments = n.arguments->items;
    if (f == "torch Size") {
      if (arguments.size() != 1) fail("torch.Size wants one argument");
      return TorchValue::Tuple{list(*arguments[0], depth + 1)};
    }
    if (f == "torch device") {
      if (arguments.empty() || arguments[0]->kind != Kind::text) fail("a device has no name");
      Budget::take(arguments[0]->text.size());
      return arguments[0]->text;
    }
    return tensor(n, depth);
  }

  Tensor tensor(const PickleNode& n, int depth) {
    if (depth > kMostDepth) fail("values are nested more than {} deep", kMostDepth);
    const std::string_view f = n.text;
    const auto& arguments = n.arguments->items;
    if (f.starts_with("torch._utils _rebuild_parameter")) {
      if (arguments.empty() || arguments[0]->kind != Kind::call) fail("a parameter has no tensor");
      return tensor(*arguments[0], depth + 1);
    }
    if (!f.starts_with("torch._utils _rebuild_tensor"))
      fail("tensor {} is created by {}", io::quote_json(name_), f);
    const bool third = f.ends_with("_v3");
    if (arguments.size() < (third ? 7u : 4u))
      fail("tensor {} has {} arguments", io::quote_json(name_), arguments.size());
    std::optional<DType> dtype;
    if (third) dtype = dtype_of(*arguments[6]);
    return window(*arguments[0], integer(*arguments[1]), integers(*arguments[2]),
                  integers(*arguments[3]), dtype);
  }
  int64_t integer(const PickleNode& n) const {
    if (n.kind != Kind::integer)
      fail("tensor {} has a {} where an integer is expected", io::quote_json(name_),
           io::to_string(n.kind));
    return n.integer;
  }
  std::vector<int64_t> integers(const PickleNode& n) const {
    const PickleNode* list = &n;
    if (n.kind == Kind::call && n.text == "torch Size" && n.arguments->items.size() == 1)
      list = n.arguments->items[0];
    if (list->kind != Kind::tuple && list->kind != Kind::list)
      fail("tensor {} has a {} as its sizes", io::quote_json(name_), io::to_string(list->kind));
    if (list->items.size() > kMaxRank)
      fail("tensor {} has {} dimensions, at most {} are possible", io::quote_json(name_),
           list->items.size(), kMaxRank);
    std::vector<int64_t> out;
    for (const PickleNode* item : list->items) out.push_back(integer(*item));
    return out;
  }
  DType dtype_of(const PickleNode& n) const {
    if (n.kind != Kind::global) fail("tensor {} has no dtype", io::quote_json(name_));
    const std::string_view name = short_name(n);
    for (const Named& d : kDTypes)
      if (d.name == name) return d.dtype;
    fail("tensor {} is {}, which is not supported in this version", io::quote_json(name_), name);
  }

  /// A storage's bytes as a u8 tensor, created once.
  const Tensor& storage(const std::string& key) {
    auto [at, fresh] = bytes_.try_emplace(key);
    if (!fresh) return at->second;
    const std::string_view data = storages_.find(key);
    const Shape shape{static_cast<int64_t>(data.size())};
    using Impl = Ref<detail::TensorImpl>;
    const bool aligned = reinterpret_cast<uintptr_t>(data.data()) % 8 == 0;
    if (data.empty() || !aligned) {
      at->second = Tensor(Impl::adopt(detail::new_tensor(shape, DType::u8, cpu)));
      if (!data.empty()) std::memcpy(at->second.impl()->data, data.data(), data.size());
      return at->second;
    }
    Ref<MappedFile> owner = file_;
    at->second = Tensor(Impl::adopt(detail::new_external(
        shape, DType::u8, const_cast<char*>(data.data()), /*writable=*/false,
        [](detail::Storage* s) { static_cast<MappedFile*>(s->owner)->drop_ref(); }, owner.get())));
    owner.release();  // now owned by the storage
    return at->second;
  }

  Tensor window(const PickleNode& id, int64_t offset, const std::vector<int64_t>& sizes,
                const std::vector<int64_t>& strides, std::optional<DType> dtype) {
    Budget::work(static_cast<double>(name_.size()));
    const std::string name = io::quote_json(name_);
    // ('storage', type, key, location, elements)
    if (id.kind != Kind::persistent || id.items[0]->kind != Kind::tuple ||
        id.items[0]->items.size() < 5)
      fail("tensor {} has no storage", name);
    const auto& parts = id.items[0]->items;
    if (parts[0]->kind != Kind::text || parts[0]->text != "storage" || parts[2]->kind != Kind::text)
      fail("tensor {} has a storage without a key", name);
    const DType type = dtype_of(*parts[1]);
    if (!dtype) dtype = type;
    const int64_t claimed = integer(*parts[4]);
    const Tensor& base = storage(parts[2]->text);
    int64_t claimed_bytes;
    if (claimed < 0 ||
        __builtin_mul_overflow(claimed, static_cast<int64_t>(size_of(type)), &claimed_bytes) ||
        claimed_bytes > base.numel())
      fail("the storage of tensor {} claims {} elements, its data has {} bytes", name, claimed,
           base.numel());
    return view(base, offset, sizes, strides, *dtype, name);
  }

  Tensor view(const Tensor& base, int64_t offset, const std::vector<int64_t>& sizes,
              const std::vector<int64_t>& strides, DType dtype, const std::string& name) {
    if (sizes.size() != strides.size())
      fail("tensor {} has {} sizes and {} strides", name, sizes.size(), strides.size());
    const auto width = static_cast<int64_t>(size_of(dtype));
    const int64_t elements = base.numel() / width;
    int64_t last = offset, count = 1;
    bool wide = offset < 0, zero = false;
    Shape shape;
    Strides steps;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < 0 || sizes[i] >= int64_t{1} << 62 || strides[i] < 0 ||
          strides[i] >= int64_t{1} << 62)
        fail("tensor {} has the size {} with stride {}", name, sizes[i], strides[i]);
      int64_t reach;
      zero |= sizes[i] == 0;
      wide |= __builtin_mul_overflow(count, sizes[i], &count);
      wide |= __builtin_mul_overflow(sizes[i] > 0 ? sizes[i] - 1 : 0, strides[i], &reach);
      wide |= __builtin_add_overflow(last, reach, &last);
      shape.push_back(sizes[i]);
      steps[static_cast<int>(i)] = strides[i];
    }
    if (zero) {
      if (offset < 0) fail("tensor {} begins before its storage", name);
      return Tensor(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, dtype, cpu)));
    }
    if (wide || last >= elements)
      fail("tensor {} of shape {} reaches beyond its storage of {} elements", name,
           shape.to_string(), elements);
    // Strides of 0 repeat the same bytes: code that copies the tensor must be able to hold it.
    shown_ += static_cast<uint64_t>(count) * static_cast<uint64_t>(width);
    if (static_cast<uint64_t>(count) > (uint64_t{1} << 40) ||
        shown_ > 2 * file_->size() + (uint64_t{64} << 20))
      fail("tensor {} of shape {} shows far more elements than the file has", name,
           shape.to_string());
    auto* data = static_cast<char*>(base.impl()->data) + offset * width;
    if (dtype == DType::b8) check_bools(data, shape, steps, 0, name);
    return Tensor(
        Ref<detail::TensorImpl>::adopt(detail::new_view(*base.impl(), shape, steps, data, dtype)));
  }

  /// The elements themselves, so that a wide stride costs nothing: what they come to is limited.
  void check_bools(const char* data, const Shape& shape, const Strides& steps, int d,
                   const std::string& name) const {
    if (d == shape.rank()) {
      const int byte = static_cast<unsigned char>(*data);
      if (byte > 1) fail("tensor {} is bool, but an element is the byte {}", name, byte);
      return;
    }
    for (int64_t i = 0; i < shape[d].value(); ++i)
      check_bools(data + i * steps[d], shape, steps, d + 1, name);
  }

  Ref<MappedFile> file_;
  Storages& storages_;
  std::unordered_map<std::string, Tensor> bytes_;
  std::string name_;
  uint64_t shown_ = 0;
};

/// Files since PyTorch 1.6.
class ZipStorages : public Storages {
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
  }
  std::string_view pickle() { return bytes(*member("data.pkl")); }
  std::string_view find(const std::string& key) override {
    const io::ZipMember* m = member("data/" + key);
    if (!m) fail("the storage {} is missing", io::quote_json(key));
    return bytes(*m);
  }
  const Ref<MappedFile>& file() const { return zip_.file(); }

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
  std::map<std::string, const io::ZipMember*> members_;
  std::string prefix_;
  bool found_ = false;
};

/// Older files: magic, version and system as pickles, the value, the list of keys, then for each
/// key the number of elements and the bytes. Only the value tells the element types.
class LegacyStorages : public Storages {
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
  const io::Pickle& value() const { return value_; }
  const Ref<MappedFile>& file() const { return file_; }
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
                        kGlobals, {.advice = kAdvice});
    at_ += p.bytes();
    return p;
  }
  /// Collects the element size of each storage that a tensor names.
  void collect(const PickleNode& n, int depth) {
    if (depth > 2 * kMostDepth) fail("values are nested more than {} deep", kMostDepth);
    Budget::count();
    if (n.kind == Kind::persistent && n.items[0]->kind == Kind::tuple &&
        n.items[0]->items.size() >= 5) {
      const auto& parts = n.items[0]->items;
      for (const Named& d : kDTypes)
        if (parts[1]->kind == Kind::global && short_name(*parts[1]) == d.name)
          widths_[parts[2]->text] = size_of(d.dtype);
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

TorchValue::TorchValue(const StateDict& v) {
  Dict d;
  for (const auto& [name, t] : v) d.emplace_back(name, t);
  value_ = std::move(d);
}
const TorchValue::List* TorchValue::as_list() const {
  if (const auto* t = std::get_if<Tuple>(&value_)) return &t->items;
  return std::get_if<List>(&value_);
}
const TorchValue* TorchValue::find(std::string_view key) const {
  if (const Dict* d = as_dict())
    for (const auto& [k, v] : *d)
      if (k.as_string() && *k.as_string() == key) return &v;
  return nullptr;
}

namespace {

TorchValue read_torch_file(const FilePath& path, const MappedFile& file) {
  if (file.view().starts_with(kLegacyMagic)) {
    LegacyStorages old(path);
    return Reader(old.file(), old).value(old.value().root());
  }
  ZipStorages zip(path);
  const io::Pickle pickle =
      io::read_pickle(zip.pickle(), fmt::format("'{}': data.pkl", zip.file()->path()), kGlobals,
                      {.advice = kAdvice});
  return Reader(zip.file(), zip).value(pickle.root());
}

void flatten(const TorchValue& v, const std::string& name, const std::string& path,
             StateDict& out) {
  Budget::take(2 * name.size());
  if (const Tensor* t = v.as_tensor()) {
    TD_CHECK(!out.contains(name), Format, "'{}': the name {} appears twice", path,
             io::quote_json(name));
    out[name] = *t;
  }
  const std::string prefix = name.empty() ? "" : name + ".";
  if (const TorchValue::Dict* d = v.as_dict())
    for (const auto& [key, value] : *d)
      flatten(value, prefix + (key.as_string() ? *key.as_string() : std::to_string(*key.as_int())),
              path, out);
  if (const TorchValue::List* l = v.as_list())
    for (size_t i = 0; i < l->size(); ++i) flatten((*l)[i], prefix + std::to_string(i), path, out);
}

}  // namespace

TorchValue load_torch(const FilePath& path, const BudgetLimits& limits) {
  const MappedFile file(path);
  const Budget budget(path.str(), file.size(), limits);
  return read_torch_file(path, file);
}

StateDict load_torch_state(const FilePath& path, const BudgetLimits& limits) {
  const MappedFile mapped(path);
  const Budget budget(path.str(), mapped.size(), limits);
  const TorchValue file = read_torch_file(path, mapped);
  const TorchValue* state = &file;
  for (const char* wrapper : {"state_dict", "model_state_dict", "model_state", "model", "module"})
    if (const TorchValue* inner = file.find(wrapper); inner && inner->as_dict()) {
      state = inner;
      break;
    }
  StateDict out;
  flatten(*state, "", path.str(), out);
  TD_CHECK(!out.empty(), Format, "'{}': there is no tensor in this file", path.str());
  return out;
}

}  // namespace tandem::weights
