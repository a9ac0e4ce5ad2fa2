// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "tandem/base/budget.h"
#include "tandem/io/elements_internal.h"
#include "tandem/io/json.h"
#include "tandem/tensor/dry_memory.h"
#include "tandem/tensor/mapped_tensor.h"

namespace tandem {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian");

constexpr uint64_t kMostHeader = 100'000'000;  // the limit of the reference implementation
constexpr uint64_t kAlign = 64;
constexpr std::string_view kAlias = "tandem.alias.";  // in files of earlier versions
constexpr const char* kMetadata = "__metadata__";

struct Name {
  DType dtype;
  std::string_view text;
};
constexpr Name kNames[] = {{DType::f64, "F64"},   {DType::f32, "F32"}, {DType::f16, "F16"},
                           {DType::bf16, "BF16"}, {DType::i64, "I64"}, {DType::i32, "I32"},
                           {DType::i16, "I16"},   {DType::i8, "I8"},   {DType::u8, "U8"},
                           {DType::b8, "BOOL"}};
constexpr std::string_view kKnownElsewhere[] = {
    "U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4", "C64"};

std::string_view name_of(DType t) {
  for (const Name& n : kNames)
    if (n.dtype == t) return n.text;
  return "";
}

// ---- writing

/// Names in order, each with its place in the data.
struct Layout {
  struct Item {
    const StateDict::Entry* entry;
    uint64_t begin = 0, end = 0;
  };
  std::vector<Item> items;    // in the order of the names
  std::vector<size_t> order;  // of the data: wide elements first, so that all are aligned
  uint64_t bytes = 0;
};

void check_savable(const std::string& name, const Tensor& t) {
  TD_CHECK(t.defined(), Value, "save: the tensor '{}' was never given a value", name);
  TD_CHECK(!t.is_symbolic(), Unsupported, "save: '{}' is a value inside a trace\nSave outside it.",
           name);
  detail::check_has_bytes(*t.impl(), "save");
  TD_CHECK(name != kMetadata, Value, "save: a tensor must not be named '{}'", kMetadata);
  TD_CHECK(io::is_utf8(name), Value, "save: the name {} is not UTF-8", io::quote_json(name));
}

Layout plan(const StateDict& tensors) {
  Layout plan;
  for (const StateDict::Entry& e : tensors) {
    check_savable(e.first, e.second);
    plan.order.push_back(plan.items.size());
    plan.items.push_back({&e});
  }
  auto width = [&](size_t i) { return size_of(plan.items[i].entry->second.dtype()); };
  std::stable_sort(plan.order.begin(), plan.order.end(),
                   [&](size_t a, size_t b) { return width(a) > width(b); });
  for (const size_t i : plan.order) {
    plan.items[i].begin = plan.bytes;
    plan.bytes += static_cast<uint64_t>(plan.items[i].entry->second.numel()) * width(i);
    plan.items[i].end = plan.bytes;
  }
  return plan;
}

std::string make_header(const Layout& plan, const Metadata& metadata) {
  io::Json::Object meta;
  for (const auto& [key, value] : metadata) {
    TD_CHECK(!std::string_view(key).starts_with(kAlias), Value,
             "save: metadata keys that begin with '{}' are reserved, got '{}'", kAlias, key);
    TD_CHECK(io::is_utf8(key) && io::is_utf8(value), Value, "save: the metadata {} is not UTF-8",
             io::quote_json(key));
    for (const auto& m : meta)
      TD_CHECK(m.first != key, Value, "save: the metadata key '{}' appears twice", key);
    meta.emplace_back(key, value);
  }
  io::Json::Object root;
  if (!meta.empty()) root.emplace_back(kMetadata, std::move(meta));
  for (const Layout::Item& item : plan.items) {
    const auto& [name, t] = *item.entry;
    io::Json::Array sizes, offsets{item.begin, item.end};
    for (const int64_t n : t.sizes()) sizes.push_back(n);
    root.emplace_back(name, io::Json::Object{{"dtype", std::string(name_of(t.dtype()))},
                                             {"shape", std::move(sizes)},
                                             {"data_offsets", std::move(offsets)}});
  }
  std::string header = io::Json(std::move(root)).dump();
  while ((8 + header.size()) % kAlign != 0) header += ' ';
  TD_CHECK(header.size() <= kMostHeader, Value,
           "save: the names and metadata need {} bytes, a file takes {}", header.size(),
           kMostHeader);
  return header;
}

// ---- reading

/// The header's entry for one tensor; offsets count from the start of the data.
struct Record {
  const std::string* name;
  DType dtype;
  Shape shape;
  uint64_t begin, end;
};

class Reader {
 public:
  explicit Reader(const FilePath& path) : file_(make_ref<MappedFile>(path)) {}

  uint64_t bytes() const { return file_->size(); }
  StateDict run(Metadata* metadata) {
    const io::Json header = parse_header();
    std::vector<Record> records;
    const io::Json* meta = nullptr;
    for (const auto& [name, value] : *header.as_object()) {
      if (name == kMetadata)
        meta = &value;
      else
        records.push_back(record(name, value));
    }
    check_cover(records);
    StateDict tensors;
    for (const Record& r : records) tensors[*r.name] = tensor(r);
    if (meta) read_metadata(*meta, &tensors, metadata);
    return tensors;
  }

 private:
  template <class... T>
  [[noreturn]] TD_COLD void fail(fmt::format_string<T...> format, const T&... args) const {
    TD_FAIL(Format, "'{}': {}", file_->path(),
            fmt::vformat(format, fmt::make_format_args(args...)));
  }

  io::Json parse_header() {
    const std::string_view all = file_->view();
    if (all.starts_with("PK\x03\x04"))
      fail("this is a zip file (PyTorch's own format?), not safetensors");
    if (all.size() < 8) fail("this is not a safetensors file: {} bytes are too few", all.size());
    uint64_t length;
    std::memcpy(&length, all.data(), 8);
    if (length > kMostHeader)
      fail(
          "this is not a safetensors file: its first 8 bytes give a header of {} bytes, the limit "
          "is "
          "{}",
          length, kMostHeader);
    if (length > all.size() - 8)
      fail("the file is truncated: its header has {} bytes, {} are there", length, all.size() - 8);
    const std::string_view text = all.substr(8, length);
    if (!text.starts_with('{'))
      fail("this is not a safetensors file: the header is not a JSON object");
    data_ = file_->data() + 8 + length;
    size_ = all.size() - 8 - length;
    // Depth: root, tensor, list. A million tensors of moderate rank fit the limit on values.
    io::Json header =
        io::parse_json(text, fmt::format("'{}': header", file_->path()), {.depth = 3});
    if (!header.as_object())
      fail("this is not a safetensors file: the header is not a JSON object");
    return header;
  }

  DType dtype(const std::string& name, const io::Json& value) const {
    const io::Json* field = value.find("dtype");
    const std::string* text = field ? field->as_string() : nullptr;
    if (!text) fail("tensor {} has no dtype", io::quote_json(name));
    for (const Name& n : kNames)
      if (n.text == *text) return n.dtype;
    for (const std::string_view known : kKnownElsewhere)
      if (known == *text)
        fail("tensor {} is {}, which is not supported in this version", io::quote_json(name),
             *text);
    fail("tensor {} has the unknown dtype {}", io::quote_json(name), io::quote_json(*text));
  }

  Record record(const std::string& name, const io::Json& value) const {
    if (!value.as_object())
      fail("the entry {} is {}, expected an object", io::quote_json(name), value.kind());
    Record r{&name, dtype(name, value), {}, 0, 0};
    const io::Json* shape = value.find("shape");
    if (!shape || !shape->as_array()) fail("tensor {} has no shape", io::quote_json(name));
    if (shape->as_array()->size() > kMaxRank)
      fail("tensor {} has {} dimensions, at most {} are possible", io::quote_json(name),
           shape->as_array()->size(), kMaxRank);
    uint64_t bytes = size_of(r.dtype);
    bool wide = false, zero = false;
    for (const io::Json& d : *shape->as_array()) {
      const int64_t* n = d.as_int();
      if (!n || *n < 0) fail("tensor {} has the size {}", io::quote_json(name), d.dump());
      // Dims below 2^62 only: larger values could not be told from other Dims.
      if (*n >= int64_t{1} << 62) fail("tensor {} has the size {}", io::quote_json(name), *n);
      r.shape.push_back(*n);
      zero |= *n == 0;
      wide |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(*n), &bytes);
    }
    if (zero) bytes = 0;
    const io::Json* offsets = value.find("data_offsets");
    const io::Json::Array* pair = offsets ? offsets->as_array() : nullptr;
    if (!pair || pair->size() != 2 || !(*pair)[0].as_int() || !(*pair)[1].as_int())
      fail("tensor {} has no data_offsets of two integers", io::quote_json(name));
    const int64_t begin = *(*pair)[0].as_int(), end = *(*pair)[1].as_int();
    if (begin < 0 || end < begin || static_cast<uint64_t>(end) > size_)
      fail("tensor {} has the data_offsets [{}, {}], the file has {} bytes of data",
           io::quote_json(name), begin, end, size_);
    r.begin = static_cast<uint64_t>(begin);
    r.end = static_cast<uint64_t>(end);
    if ((wide && !zero) || bytes != r.end - r.begin)
      fail("tensor {} of shape {} and dtype {} does not fit its {} bytes of data",
           io::quote_json(name), r.shape.to_string(), to_string(r.dtype), r.end - r.begin);
    return r;
  }

  /// Every byte of the data belongs to exactly one tensor.
  void check_cover(const std::vector<Record>& records) const {
    std::vector<const Record*> sorted;
    for (const Record& r : records) sorted.push_back(&r);
    std::sort(sorted.begin(), sorted.end(), [](const Record* a, const Record* b) {
      return std::tie(a->begin, a->end) < std::tie(b->begin, b->end);
    });
    uint64_t at = 0;
    for (const Record* r : sorted) {
      if (r->begin < at)
        fail("the data of tensor {} overlaps another's, at byte {}", io::quote_json(*r->name),
             r->begin);
      if (r->begin > at) fail("bytes {} to {} of the data belong to no tensor", at, r->begin);
      at = r->end;
    }
    if (at != size_) fail("bytes {} to {} of the data belong to no tensor", at, size_);
  }

  Tensor tensor(const Record& r) const {
    const unsigned char* data = data_ + r.begin;
    if (r.dtype == DType::b8)
      for (uint64_t i = 0; i < r.end - r.begin; ++i)
        if (data[i] > 1)
          fail("tensor {} is bool, but element {} is the byte {}", io::quote_json(*r.name), i,
               data[i]);
    using Impl = Ref<detail::TensorImpl>;
    const bool aligned = reinterpret_cast<uintptr_t>(data) % size_of(r.dtype) == 0;
    if (!aligned || r.begin == r.end) {
      Tensor t(Impl::adopt(detail::new_tensor(r.shape, r.dtype, cpu)));
      if (r.end > r.begin) std::memcpy(t.impl()->data, data, r.end - r.begin);
      return t;
    }
    return detail::mapped_tensor(file_, data, r.shape, r.dtype);
  }

  void read_metadata(const io::Json& meta, StateDict* tensors, Metadata* out) const {
    if (!meta.as_object()) fail("{} is {}, expected an object", kMetadata, meta.kind());
    for (const auto& [key, value] : *meta.as_object()) {
      const std::string* text = value.as_string();
      if (!text)
        fail("{} {} is {}, expected a string", kMetadata, io::quote_json(key), value.kind());
      if (!std::string_view(key).starts_with(kAlias)) {
        if (out) out->emplace_back(key, *text);
        continue;
      }
      const std::string name = key.substr(kAlias.size());
      const Tensor* target = tensors->find(*text);
      if (!target)
        fail("{} is an alias of {}, which is not there", io::quote_json(name),
             io::quote_json(*text));
      if (tensors->contains(name)) fail("{} is both a tensor and an alias", io::quote_json(name));
      const Tensor shared = *target;  // the next line may move what `target` points to
      (*tensors)[name] = shared;
    }
  }

  Ref<MappedFile> file_;
  const unsigned char* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace

void save(const StateDict& tensors, const FilePath& path, const Metadata& metadata) {
  const Layout layout = plan(tensors);
  const std::string header = make_header(layout, metadata);
  AtomicFile file(path, 8 + header.size() + layout.bytes);
  const uint64_t length = header.size();
  file.write(&length, 8);
  file.write(header);
  for (const size_t i : layout.order) io::write_elements(file, layout.items[i].entry->second);
  file.commit();
}

StateDict load(const FilePath& path, Metadata* metadata) {
  if (metadata) metadata->clear();
  Reader reader(path);
  const Budget budget(path.str(), reader.bytes());
  return reader.run(metadata);
}

}  // namespace tandem
