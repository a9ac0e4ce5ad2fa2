// SPDX-License-Identifier: Apache-2.0
// The writing half of torch_file.h: data.pkl by hand, one stored member per storage.
#include <map>
#include <set>

#include "tandem/io/pickle/pickle.h"
#include "tandem/io/zip_internal.h"
#include "tandem/tensor/strided.h"
#include "tandem/weights/torch_file.h"

namespace tandem::weights {
namespace {

const char* storage_of(DType t) {
  constexpr const char* kNames[kDTypeCount] = {
      "DoubleStorage", "FloatStorage", "HalfStorage", "BFloat16Storage", "LongStorage",
      "IntStorage",    "ShortStorage", "CharStorage", "ByteStorage",     "BoolStorage"};
  return kNames[static_cast<int>(t)];
}

/// The content of one member of the zip file: dense bytes shared by some tensors.
struct Piece {
  DType dtype;
  int64_t elements = 0;
  const char* begin = nullptr;
  std::vector<char> copy;  // if the tensor itself is not dense
};

class Writer {
 public:
  void value(const TorchValue& v, int depth = 0) {
    TD_CHECK(depth <= 60, Value, "save_torch: values are nested more than 60 deep");
    if (v.is_none())
      out_.none();
    else if (const bool* b = v.as_bool())
      out_.boolean(*b);
    else if (const int64_t* i = v.as_int())
      out_.integer(*i);
    else if (const double* d = v.as_double())
      out_.number(*d);
    else if (const std::string* s = v.as_string())
      out_.text(*s);
    else if (const Tensor* t = v.as_tensor())
      tensor(*t);
    else if (const TorchValue::Dict* dict = v.as_dict())
      write_dict(*dict, depth);
    else
      write_list(v, depth);
  }

  void save(const FilePath& path) {
    const std::string pickle = out_.finish();
    io::ZipWriter zip(path);
    zip.add("archive/data.pkl", {pickle}, false);
    zip.add("archive/byteorder", {"little"}, false);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& p = pieces_[i];
      const char* data = p.copy.empty() ? p.begin : p.copy.data();
      const size_t bytes = static_cast<size_t>(p.elements) * size_of(p.dtype);
      zip.add("archive/data/" + std::to_string(i), {std::string_view(data, bytes)}, false);
    }
    zip.add("archive/version", {"3\n"}, false);
    zip.commit();
  }

 private:
  void write_dict(const TorchValue::Dict& dict, int depth) {
    std::set<std::string> texts;
    std::set<int64_t> numbers;
    out_.empty_dict();
    out_.mark();
    for (const auto& [key, item] : dict) {
      TD_CHECK(key.as_string() || key.as_int(), Value,
               "save_torch: a key of a dict is neither a string nor an integer");
      TD_CHECK(key.as_string() ? texts.insert(*key.as_string()).second
                               : numbers.insert(*key.as_int()).second,
               Value, "save_torch: a key appears twice in a dict");
      value(key, depth + 1);
      value(item, depth + 1);
    }
    out_.setitems();
  }
  void write_list(const TorchValue& v, int depth) {
    if (!v.is_tuple()) out_.empty_list();
    out_.mark();
    for (const TorchValue& item : *v.as_list()) value(item, depth + 1);
    if (v.is_tuple())
      out_.tuple();
    else
      out_.appends();
  }

  void tensor(const Tensor& t) {
    TD_CHECK(t.defined(), Value, "save_torch: a tensor was never given a value");
    TD_CHECK(!t.is_symbolic(), Unsupported,
             "save_torch: a tensor is a value inside a trace\nSave outside it.");
    const size_t i = piece_of(t);
    const Piece& p = pieces_[i];
    out_.global("torch._utils", "_rebuild_tensor_v2");
    out_.mark();
    out_.mark();
    out_.text("storage");
    out_.global("torch", storage_of(p.dtype));
    out_.text(std::to_string(i));
    out_.text("cpu");
    out_.integer(p.elements);
    out_.tuple();
    out_.persistent();
    const bool dense = p.copy.empty() && p.begin;
    out_.integer(dense ? (static_cast<const char*>(t.impl()->data) - p.begin) /
                             static_cast<int64_t>(size_of(p.dtype))
                       : 0);
    integers(t.sizes());
    std::vector<int64_t> steps(static_cast<size_t>(t.dim()));
    int64_t step = 1;
    for (size_t k = steps.size(); k-- > 0;) {
      steps[k] = step;
      step *= std::max<int64_t>(t.sizes()[k], 1);
    }
    integers(steps);
    out_.boolean(false);
    out_.global("collections", "OrderedDict");
    out_.empty_tuple();
    out_.reduce();
    out_.tuple();
    out_.reduce();
  }
  template <class List>
  void integers(const List& list) {
    out_.mark();
    for (const int64_t n : list) out_.integer(n);
    out_.tuple();
  }

  /// The piece that contains t: an existing one with the same bytes, or a new one.
  size_t piece_of(const Tensor& t) {
    const auto* data = static_cast<const char*>(t.impl()->data);
    const bool dense = t.is_contiguous() && t.numel() > 0 && is_host(t.device());
    if (dense) {
      auto [at, fresh] = known_.try_emplace({data, t.dtype(), t.numel()}, pieces_.size());
      if (!fresh) return at->second;
    }
    Piece p{.dtype = t.dtype(), .elements = t.numel()};
    if (dense) {
      p.begin = data;
    } else if (t.numel() > 0) {
      p.copy.resize(static_cast<size_t>(t.numel()) * size_of(t.dtype()));
      detail::copy_row_major(*t.impl(), p.copy.data(), t.dtype());
    }
    pieces_.push_back(std::move(p));
    return pieces_.size() - 1;
  }

  io::PickleWriter out_;
  std::vector<Piece> pieces_;
  std::map<std::tuple<const char*, DType, int64_t>, size_t> known_;
};

}  // namespace

void save_torch(const TorchValue& value, const FilePath& path) {
  Writer w;
  w.value(value);
  w.save(path);
}

}  // namespace tandem::weights
