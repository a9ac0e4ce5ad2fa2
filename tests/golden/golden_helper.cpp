// SPDX-License-Identifier: Apache-2.0
// Reading golden cases and comparing with them.
#include "tests/golden/golden_helper.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "tandem/base/files/file.h"
#include "tandem/init.h"

namespace tandem::golden {

std::string folder() {
  const char* source = std::getenv("TANDEM_SOURCE_DIR");
  return std::string(source ? source : ".") + "/tests/golden/";
}

DType dtype_named(const std::string& name) {
#define X(id, type, text) \
  if (name == text) return DType::id;
  TD_FOR_EACH_DTYPE(X)
#undef X
  TD_FAIL(Value, "no dtype is called {}", name);
}

const File& file(const std::string& family) {
  static auto* files = new std::map<std::string, std::unique_ptr<File>>;
  std::unique_ptr<File>& f = (*files)[family];
  if (!f) {
    init();
    f = std::make_unique<File>();
    f->family = family;
    Metadata metadata;
    f->pool = load(folder() + family + ".safetensors", &metadata);
    for (const auto& [key, text] : metadata)
      if (key == "cases") f->cases = io::parse_json(text, family);
    TD_CHECK(f->cases.as_array(), Format, "{} holds no cases", family);
  }
  return *f;
}

namespace {

double double_of(const io::Json& j) {
  if (const double* d = j.as_double()) return *d;
  if (const int64_t* i = j.as_int()) return static_cast<double>(*i);
  if (const bool* b = j.as_bool()) return *b;
  const std::string* s = j.as_string();
  TD_CHECK(s, Format, "expected a number, got {}", j.kind());
  if (*s == "inf") return std::numeric_limits<double>::infinity();
  if (*s == "-inf") return -std::numeric_limits<double>::infinity();
  TD_CHECK(*s == "nan", Format, "expected a number, got {}", *s);
  return std::numeric_limits<double>::quiet_NaN();
}

Scalar scalar_of(const io::Json& j) {
  if (const int64_t* i = j.as_int()) return *i;
  if (const bool* b = j.as_bool()) return *b;
  return double_of(j);
}

}  // namespace

Case::Case(const File& f, const io::Json& json) : file_(&f), json_(&json) {
  name = *json.find("name")->as_string();
  op = *json.find("op")->as_string();
  const io::Json* inputs = json.find("inputs");
  if (!inputs) return;
  for (const io::Json& x : *inputs->as_array()) {
    const std::string* key = x.as_string();
    const io::Json* number = x.find("scalar");
    in_.push_back(key ? f.pool.at(*key) : Tensor());
    is_number_.push_back(number != nullptr);
    Scalar value;
    if (number) {
      value = scalar_of(*number);
      if (*x.find("kind")->as_string() == "float") value = value.to_double();
    }
    numbers_.push_back(value);
  }
}

const Tensor& Case::t(size_t i) const {
  static const Tensor none;
  return i < in_.size() ? in_[i] : none;
}
Operand Case::at(size_t i) const {
  if (i < in_.size() && is_number_[i]) return Operand(numbers_[i]);
  return Operand(t(i));
}
Ts Case::rest(size_t from) const {
  return Ts(in_.begin() + static_cast<ptrdiff_t>(from), in_.end());
}

const io::Json* Case::attr(const char* key) const {
  for (const char* group : {"args", "attrs"})
    if (const io::Json* g = json_->find(group))
      if (const io::Json* v = g->find(key)) return v;
  return json_->find(key);
}
int64_t Case::i(const char* key, int64_t otherwise) const {
  const io::Json* v = attr(key);
  return v ? *v->as_int() : otherwise;
}
double Case::d(const char* key, double otherwise) const {
  const io::Json* v = attr(key);
  return v ? double_of(*v) : otherwise;
}
bool Case::b(const char* key, bool otherwise) const {
  const io::Json* v = attr(key);
  return v ? *v->as_bool() : otherwise;
}
std::string Case::s(const char* key, const char* otherwise) const {
  const io::Json* v = attr(key);
  return v ? *v->as_string() : otherwise;
}
Scalar Case::number(const char* key, Scalar otherwise) const {
  const io::Json* v = attr(key);
  return v ? scalar_of(*v) : otherwise;
}
DType Case::dtype(const char* key, DType otherwise) const {
  const io::Json* v = attr(key);
  return v ? dtype_named(*v->as_string()) : otherwise;
}
IntList Case::list(const char* key, IntList otherwise) const {
  const io::Json* v = attr(key);
  if (!v) return otherwise;
  IntList out;
  if (const int64_t* one = v->as_int()) {
    out.push_back(*one);
    return out;
  }
  for (const io::Json& x : *v->as_array()) out.push_back(*x.as_int());
  return out;
}
Ts Case::list_of(const char* key) const {
  Ts out;
  const io::Json* v = json_->find(key);
  if (!v) return out;
  for (const io::Json& x : *v->as_array())
    out.push_back(x.as_string() ? file_->pool.at(*x.as_string()) : Tensor());
  return out;
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases_of(const std::string& family) {
  std::vector<Case> out;
  const File& f = file(family);
  for (const io::Json& c : *f.cases.as_array()) out.emplace_back(f, c);
  return out;
}

::testing::AssertionResult matches(const Tensor& got, const Tensor& want, double rtol,
                                   double atol) {
  auto fail = [] { return ::testing::AssertionFailure(); };
  if (!got.defined()) return fail() << "undefined, wanted " << to_string(want);
  if (got.dtype() != want.dtype() || !(got.shape() == want.shape()))
    return fail() << to_string(got.dtype()) << got.shape().to_string() << ", wanted "
                  << to_string(want.dtype()) << want.shape().to_string();
  if (!is_floating(want.dtype())) {
    if (got.to_vector<int64_t>() == want.to_vector<int64_t>()) return ::testing::AssertionSuccess();
    return fail() << to_string(got) << "\nwanted " << to_string(want);
  }
  std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (!(std::isfinite(b[i]) && std::abs(a[i] - b[i]) <= atol + rtol * std::abs(b[i])))
      return fail() << "element " << i << " is " << a[i] << ", wanted " << b[i];
  }
  return ::testing::AssertionSuccess();
}

std::string test_name(const std::string& name) {
  std::string out;
  for (char c : name) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return out;
}

}  // namespace tandem::golden
