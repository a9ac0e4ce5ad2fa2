// SPDX-License-Identifier: Apache-2.0
// The reading half of torch_file.h. A storage is a member of the zip file; a tensor is a window of
// a storage given by offset, sizes and strides, which is validated before anything uses it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "tandem/base/budget.h"
#include "tandem/base/log.h"
#include "tandem/io/json.h"
#include "tandem/io/pickle/pickle_numpy.h"
#include "tandem/tensor/mapped_tensor.h"
#include "tandem/tensor/strided.h"
#include "tandem/weights/torch_file.h"
#include "tandem/weights/torch_storages_internal.h"
#include "tandem/weights/torch_tensors_internal.h"

namespace tandem::weights {
namespace {

using io::PickleNode;
using Kind = PickleNode::Kind;

class Reader {
 public:
  explicit Reader(TorchStorages& storages) : file_(storages.file()), storages_(storages) {}

  /// The whole file. Says which tensors are not as they are there.
  TorchValue run() {
    TorchValue out = value(storages_.root());
    for (const auto& [what, c] : changed_)
      log_warning("'{}': {} {} {} ({}{})", file_->path(), c.count,
                  c.count == 1 ? "tensor is" : "tensors are", what, c.first,
                  c.count > 1 ? ", ..." : "");
    return out;
  }

 private:
  TorchValue value(const PickleNode& n, int depth = 0) {
    if (depth > kMostTorchDepth) fail("values are nested more than {} deep", kMostTorchDepth);
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
    if (io::is_numpy_array(n)) return io::numpy_array(n, fmt::format("'{}'", file_->path()));
    if (io::is_numpy_scalar(n)) {
      Budget::take(sizeof(io::NumpyScalar));
      return std::visit([](auto v) { return TorchValue(std::move(v)); },
                        io::numpy_scalar(n, fmt::format("'{}'", file_->path())));
    }
    const auto& arguments = n.arguments->items;
    if (f == "torch Size") {
      if (arguments.size() != 1) fail("torch.Size expects one argument");
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
    if (depth > kMostTorchDepth) fail("values are nested more than {} deep", kMostTorchDepth);
    const std::string_view f = n.text;
    const auto& arguments = n.arguments->items;
    if (f.starts_with("torch._utils _rebuild_parameter")) {
      if (arguments.empty() || arguments[0]->kind != Kind::call) fail("a parameter has no tensor");
      return tensor(*arguments[0], depth + 1);
    }
    if (f.ends_with(" _rebuild_qtensor")) return quantized(arguments, depth);
    if (f.ends_with(" _rebuild_sparse_tensor")) return sparse(arguments, depth);
    if (!f.starts_with("torch._utils _rebuild_tensor"))
      fail("tensor {} is created by {}", io::quote_json(name_), f);
    const bool third = f.ends_with("_v3");
    if (arguments.size() < (third ? 7u : 4u))
      fail("tensor {} has {} arguments", io::quote_json(name_), arguments.size());
    const StoredType* type = third ? &type_of(*arguments[6]) : nullptr;
    return window(*arguments[0], integer(*arguments[1]), integers(*arguments[2]),
                  integers(*arguments[3]), type);
  }

  // The steps of `make`, whose errors get the tensor's name.
  template <class F>
  Tensor named(F make) const {
    try {
      return make();
    } catch (const Error& e) {
      if (e.message().starts_with('\'')) throw;
      fail("tensor {}: {}", io::quote_json(name_), e.message());
    }
  }
  void note(const std::string& what) {
    Change& c = changed_[what];
    if (c.count++ == 0) c.first = io::quote_json(name_);
  }

  // (storage, offset, sizes, strides, (scheme, scale, zero point[, axis]), ...)
  Tensor quantized(const std::vector<const PickleNode*>& arguments, int depth) {
    if (arguments.size() < 5 || arguments[4]->kind != Kind::tuple ||
        arguments[4]->items.size() < 3 || arguments[4]->items[0]->kind != Kind::global)
      fail("tensor {} is quantized, but does not say how", io::quote_json(name_));
    const auto& how = arguments[4]->items;
    const bool channels = how[0]->text.find("per_channel") != std::string::npos;
    if (channels && how.size() < 4) fail("tensor {} has no axis", io::quote_json(name_));
    const Tensor q = window(*arguments[0], integer(*arguments[1]), integers(*arguments[2]),
                            integers(*arguments[3]), nullptr, true);
    note("quantised, and made float32");
    const auto number = [&](const PickleNode& n) {
      return n.kind == Kind::call ? tensor(n, depth + 1) : scalar(n);
    };
    const Tensor scales = number(*how[1]), zeros = number(*how[2]);
    const int64_t axis = channels ? integer(*how[3]) : 0;
    return named([&] { return dequantized(q, scales, zeros, axis); });
  }
  Tensor scalar(const PickleNode& n) const {
    if (n.kind != Kind::number && n.kind != Kind::integer)
      fail("tensor {} has a {} as its scale", io::quote_json(name_), io::to_string(n.kind));
    Tensor t(Ref<detail::TensorImpl>::adopt(detail::new_tensor(Shape{}, DType::f64, cpu)));
    *static_cast<double*>(t.impl()->data) =
        n.kind == Kind::number ? n.number : static_cast<double>(n.integer);
    return t;
  }

  // (layout, (parts ..., sizes[, ...]))
  Tensor sparse(const std::vector<const PickleNode*>& arguments, int depth) {
    if (arguments.size() < 2 || arguments[0]->kind != Kind::call ||
        arguments[0]->arguments->items.empty() || arguments[1]->kind != Kind::tuple)
      fail("tensor {} is sparse, but has no layout", io::quote_json(name_));
    const std::string& layout = arguments[0]->arguments->items[0]->text;
    std::vector<Tensor> parts;
    for (const PickleNode* part : arguments[1]->items) {
      if (part->kind != Kind::call || part->text == "torch Size") {
        const std::vector<int64_t> sizes = integers(*part);
        note(fmt::format("sparse ({}), and made dense", layout));
        return named([&] { return dense_of(layout, parts, sizes); });
      }
      parts.push_back(tensor(*part, depth + 1));
    }
    fail("tensor {} is sparse, but has no sizes", io::quote_json(name_));
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
  const StoredType& type_of(const PickleNode& n) const {
    if (n.kind != Kind::global) fail("tensor {} has no dtype", io::quote_json(name_));
    const std::string_view name = short_name(n);
    if (const StoredType* t = stored_type(name)) return *t;
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
    at->second = detail::mapped_tensor(file_, data.data(), shape, DType::u8);
    return at->second;
  }

  // `type`: the dtype that the tensor names itself, where its storage has none.
  Tensor window(const PickleNode& id, int64_t offset, std::vector<int64_t> sizes,
                std::vector<int64_t> strides, const StoredType* type, bool quantized = false) {
    Budget::work(static_cast<double>(name_.size()));
    const std::string name = io::quote_json(name_);
    // ('storage', type, key, location, elements)
    if (id.kind != Kind::persistent || id.items[0]->kind != Kind::tuple ||
        id.items[0]->items.size() < 5)
      fail("tensor {} has no storage", name);
    const auto& parts = id.items[0]->items;
    if (parts[0]->kind != Kind::text || parts[0]->text != "storage" || parts[2]->kind != Kind::text)
      fail("tensor {} has a storage without a key", name);
    const StoredType& stored = type_of(*parts[1]);
    if (!type) type = &stored;
    if (type->quantized && !quantized) fail("tensor {} is {} without a scale", name, type->name);
    const int64_t claimed = integer(*parts[4]);
    const Tensor& base = storage(parts[2]->text);
    int64_t claimed_bytes;
    if (claimed < 0 ||
        __builtin_mul_overflow(claimed, static_cast<int64_t>(stored.bytes), &claimed_bytes) ||
        claimed_bytes > base.numel())
      fail("the storage of tensor {} claims {} elements, its data has {} bytes", name, claimed,
           base.numel());
    if (type->complex) {
      note(fmt::format("complex{}, and read as {} with a last dimension of 2", 8 * type->bytes,
                       to_string(type->dtype)));
      return pairs(base, offset, std::move(sizes), std::move(strides), type->dtype, name);
    }
    if (!type->convert) return view(base, offset, sizes, strides, type->dtype, name);
    note(fmt::format("{}, and read as {}", type->name, to_string(type->dtype)));
    const DType raw = type->bytes == 1   ? DType::u8
                      : type->bytes == 2 ? DType::i16
                      : type->bytes == 4 ? DType::i32
                                         : DType::i64;
    const Tensor bits = view(base, offset, sizes, strides, raw, name);
    return named([&] { return converted(bits, *type); });
  }

  // Complex numbers: their real and imaginary parts.
  Tensor pairs(const Tensor& base, int64_t offset, std::vector<int64_t> sizes,
               std::vector<int64_t> strides, DType part, const std::string& name) {
    constexpr int64_t kMost = int64_t{1} << 61;
    if (sizes.size() == kMaxRank)
      fail("tensor {} has {} dimensions, and its complex numbers are one more", name, kMaxRank);
    if (offset < 0 || offset > kMost) fail("tensor {} begins outside of its storage", name);
    for (int64_t& s : strides) {
      if (s < 0 || s > kMost) fail("tensor {} has the stride {}", name, s);
      s *= 2;
    }
    sizes.push_back(2);
    strides.push_back(1);
    return view(base, 2 * offset, sizes, strides, part, name);
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
  TorchStorages& storages_;
  struct Change {
    int64_t count = 0;
    std::string first;
  };
  std::map<std::string, Change> changed_;  ///< by what they were and are
  std::unordered_map<std::string, Tensor> bytes_;
  std::string name_;
  uint64_t shown_ = 0;
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
  const Budget budget(path.str(), MappedFile(path).size(), limits);
  return Reader(*open_torch_storages(path)).run();
}

StateDict load_torch_state(const FilePath& path, const BudgetLimits& limits) {
  const TorchValue file = load_torch(path, limits);
  const Budget budget(path.str(), MappedFile(path).size(), limits);
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
