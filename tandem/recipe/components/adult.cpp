// SPDX-License-Identifier: Apache-2.0
// The data set "adult" (UCI census): numbers standardised by the training set, texts one-hot, y:
// more than 50K. A run keeps what the training set says of each column.
#include <cmath>
#include <cstdlib>
#include <map>

#include "tandem/io/csv.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/components/source_fields_internal.h"

namespace tandem::recipe {
namespace {

constexpr size_t kColumns = 14;

bool is_number(size_t c) { return c == 0 || c == 2 || c == 4 || (c >= 10 && c <= 12); }

std::string text_of(const io::Csv& table, size_t row, size_t column) {
  std::string_view f = table.field(row, column);
  while (!f.empty() && f.front() == ' ') f.remove_prefix(1);
  while (!f.empty() && (f.back() == '.' || f.back() == ' ')) f.remove_suffix(1);
  return std::string(f);
}

double number_of(const io::Csv& table, size_t row, size_t column) {
  const double v = std::atof(text_of(table, row, column).c_str());
  // Capital gain and loss span five decades.
  return column == 10 || column == 11 ? std::log1p(v) : v;
}

/// What the training set says of a column: mean and deviation of numbers, or the values of texts
/// in the order of their first row.
struct Column {
  double mean = 0, deviation = 1;
  std::vector<std::string> values = {};
};

class Columns {
 public:
  explicit Columns(const io::Csv& train) : columns_(kColumns) {
    const auto n = static_cast<double>(train.rows());
    for (size_t c = 0; c < kColumns; ++c) {
      double sum = 0, squares = 0;
      std::map<std::string, size_t> seen;
      for (size_t r = 0; r < train.rows(); ++r) {
        if (!is_number(c)) {
          const std::string text = text_of(train, r, c);
          if (seen.emplace(text, seen.size()).second) columns_[c].values.push_back(text);
          continue;
        }
        const double v = number_of(train, r, c);
        sum += v;
        squares += v * v;
      }
      if (!is_number(c)) continue;
      const double mean = sum / n;
      columns_[c].mean = mean;
      columns_[c].deviation = std::sqrt(std::max(squares / n - mean * mean, 1e-12));
    }
  }
  explicit Columns(const io::Json& kept) {
    TD_CHECK(kept.as_array() && kept.as_array()->size() == kColumns, Format,
             "data.json: \"columns\" expects {} columns", kColumns);
    for (const io::Json& j : *kept.as_array()) {
      Column one;
      const auto number = [&](const char* key) {
        const io::Json* v = j.find(key);
        TD_CHECK(v && (v->as_double() || v->as_int()), Format,
                 "data.json: a column expects \"values\", or \"mean\" and \"deviation\"");
        return v->as_double() ? *v->as_double() : static_cast<double>(*v->as_int());
      };
      if (const io::Json* values = j.find("values"); values && values->as_array())
        for (const io::Json& v : *values->as_array())
          one.values.push_back(v.as_string() ? *v.as_string() : "");
      else
        one = {.mean = number("mean"), .deviation = number("deviation")};
      columns_.push_back(std::move(one));
    }
  }
  io::Json to_json() const {
    io::Json::Array out;
    for (const Column& c : columns_) {
      io::Json::Array values;
      for (const std::string& v : c.values) values.emplace_back(v);
      out.push_back(values.empty() ? io::Json::Object{{"mean", c.mean}, {"deviation", c.deviation}}
                                   : io::Json::Object{{"values", std::move(values)}});
    }
    return out;
  }
  /// The rows as x, f32 [rows, width]; unknown texts are zeros.
  Tensor features(const io::Csv& table) const {
    size_t width = 0;
    for (const Column& c : columns_) width += std::max<size_t>(c.values.size(), 1);
    std::vector<float> x(table.rows() * width);
    for (size_t r = 0; r < table.rows(); ++r) {
      float* cell = &x[r * width];
      for (size_t c = 0; c < kColumns; ++c) {
        const Column& column = columns_[c];
        if (is_number(c)) {
          *cell++ = static_cast<float>((number_of(table, r, c) - column.mean) / column.deviation);
          continue;
        }
        const auto& values = column.values;
        const auto it = std::find(values.begin(), values.end(), text_of(table, r, c));
        if (it != values.end()) cell[it - values.begin()] = 1;
        cell += values.size();
      }
    }
    return tensor(x, {static_cast<int64_t>(table.rows()), static_cast<int64_t>(width)});
  }

 private:
  std::vector<Column> columns_;
};

data::TensorDataset dataset(const io::Csv& table, const Columns& columns) {
  std::vector<int64_t> y;
  for (size_t r = 0; r < table.rows(); ++r) y.push_back(text_of(table, r, kColumns) == ">50K");
  return data::TensorDataset(columns.features(table), tensor(y));
}

struct AdultSource {
  std::string root = {};
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    root_field(v, root,
               "folder of adult-train.csv and adult-test.csv; default: TANDEM_DATA's tabular");
    batches.fields(v);
  }
};
RecipeData adult(const AdultSource& a, const Options& o, uint64_t seed) {
  const std::string root = root_of(o, a.root, "tabular");
  const io::Csv train = io::Csv::read(root + "/adult-train.csv", {.header = false}),
                test = io::Csv::read(root + "/adult-test.csv", {.header = false});
  TD_CHECK(train.columns() == kColumns + 1 && test.columns() == kColumns + 1, Format,
           "'{}': adult expects {} columns", root, kColumns + 1);
  const Columns columns(train);
  RecipeData d = batches(a.batches, seed,
                         {.train = samples(dataset(train, columns), seed),
                          .test = samples(dataset(test, columns), seed)});
  d.info["classes"] = 2;
  d.facts.classes = {"<=50K", ">50K"};
  d.facts.kept = io::Json::Object{{"columns", columns.to_json()}};
  return d;
}

// Lines of the files that the data came in, with or without the last column.
Preparation adult_rows(const AdultSource&, const Options&, const RunData& run) {
  return {SampleKind::table, [columns = Columns(kept(run, "columns"))](std::string_view bytes,
                                                                       const std::string& name) {
            const io::Csv rows = io::Csv::parse(std::string(bytes), {.header = false}, name);
            TD_CHECK(rows.columns() == kColumns || rows.columns() == kColumns + 1, Value,
                     "'{}' has {} columns, adult has {}", name, rows.columns(), kColumns);
            return PreparedBatch{{columns.features(rows)}};
          }};
}

}  // namespace

std::span<const DataRow> census_sources() {
  static constexpr DataRow kRows[] = {
      prepared_row<AdultSource, adult, adult_rows>("adult",
                                                   "The UCI Adult census: numbers standardised by "
                                                   "the training set, texts one-hot; the class "
                                                   "says whether somebody earns more than 50K.",
                                                   "{type: adult, root: census}"),
  };
  return kRows;
}

}  // namespace tandem::recipe
