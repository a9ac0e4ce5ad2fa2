// SPDX-License-Identifier: Apache-2.0
// load_planetoid(): reads Planetoid's pickles. Arrays and matrices are calls with a state.
#include <algorithm>
#include <cstring>
#include <set>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/data/sets/vision_datasets.h"
#include "tandem/io/pickle/pickle_numpy.h"
#include "tandem/ops/ops.h"
#include "tandem/tensor/strided.h"

namespace tandem::data {
namespace {

using io::PickleNode;
using Use = io::PickleGlobal::Use;

constexpr const char* kMatrix = "scipy.sparse.csr csr_matrix";
/// All globals that the files name.
constexpr io::PickleGlobal kGlobals[] = {
    {"numpy.core.multiarray _reconstruct", Use::object},
    {kMatrix, Use::object},
    {"numpy dtype", Use::object},
    {"numpy ndarray"},
    {"collections defaultdict", Use::defaults},
    {"__builtin__ list"},
};

// One file and its values.
struct Source {
  Source(const std::string& folder, const std::string& name, const char* part)
      : path(folder + "/ind." + name + "." + part),
        pickle(io::read_pickle(make_ref<MappedFile>(path)->view(), "'" + path + "'", kGlobals,
                               {.text = size_t{1} << 28})),
        root(&pickle.root()) {}
  std::string path;
  io::Pickle pickle;
  const PickleNode* root;
};

void want(bool ok, const Source& s, const char* what) {
  TD_CHECK(ok, Format, "'{}': {}", s.path, what);
}

// A numpy array: its numbers and sizes.
struct Array {
  std::vector<double> v;
  std::vector<int64_t> sizes;
};
Array array_of(const PickleNode* a, const Source& s) {
  const Tensor t = io::numpy_array(*a, fmt::format("'{}'", s.path));
  Array out;
  out.sizes.assign(t.sizes().begin(), t.sizes().end());
  Budget::take(static_cast<uint64_t>(t.numel()) * sizeof(double));
  out.v.resize(static_cast<size_t>(t.numel()));
  tandem::detail::copy_row_major(*t.impl(), out.v.data(), DType::f64);
  return out;
}

// A csr_matrix as dense rows.
struct Rows {
  int64_t n = 0, columns = 0;
  std::vector<float> v;
};
Rows rows_of(const Source& s) {
  const Budget budget(s.path, s.pickle.bytes());
  want(s.root->kind == PickleNode::Kind::call && s.root->text == kMatrix && s.root->state &&
           s.root->state->kind == PickleNode::Kind::dict,
       s, "expected a csr_matrix");
  const auto member = [&](std::string_view key) -> const PickleNode* {
    const std::vector<const PickleNode*>& p = s.root->state->items;
    for (size_t i = 0; i + 1 < p.size(); i += 2)
      if (p[i]->text == key) return p[i + 1];
    TD_FAIL(Format, "'{}': the matrix has no '{}'", s.path, key);
  };
  const PickleNode* shape = member("_shape");
  want(shape->items.size() == 2, s, "a matrix must have two sizes");
  Rows out;
  out.n = shape->items[0]->integer;
  out.columns = shape->items[1]->integer;
  want(out.n >= 0 && out.columns > 0 && out.n <= (int64_t{1} << 28) / out.columns, s,
       "the matrix is too large");
  const Array ptr = array_of(member("indptr"), s), index = array_of(member("indices"), s);
  const Array data = array_of(member("data"), s);
  want(ptr.v.size() == static_cast<size_t>(out.n) + 1 && index.v.size() == data.v.size(), s,
       "the parts of the matrix do not match");
  Budget::take(static_cast<size_t>(out.n * out.columns) * sizeof(float));
  out.v.resize(static_cast<size_t>(out.n * out.columns));
  for (size_t r = 0; r < static_cast<size_t>(out.n); ++r) {
    want(ptr.v[r] >= 0 && ptr.v[r] <= ptr.v[r + 1] &&
             ptr.v[r + 1] <= static_cast<double>(data.v.size()),
         s, "rows of the matrix overlap");
    for (auto i = static_cast<size_t>(ptr.v[r]); i < static_cast<size_t>(ptr.v[r + 1]); ++i) {
      want(index.v[i] >= 0 && index.v[i] < static_cast<double>(out.columns), s,
           "a column is out of range");
      out.v[r * static_cast<size_t>(out.columns) + static_cast<size_t>(index.v[i])] =
          static_cast<float>(data.v[i]);
    }
  }
  return out;
}

// The class of each row of one-hot labels.
std::vector<int64_t> classes_of(const Source& s, int64_t& count) {
  const Array a = array_of(s.root, s);
  want(a.sizes.size() == 2 && a.sizes[1] > 0, s, "expected labels [n, classes]");
  count = a.sizes[1];
  std::vector<int64_t> out;
  for (size_t r = 0; r < static_cast<size_t>(a.sizes[0]); ++r) {
    const auto row = a.v.begin() + static_cast<int64_t>(r) * count;
    out.push_back(std::max_element(row, row + count) - row);
  }
  return out;
}

std::vector<int64_t> test_rows(const std::string& path) {
  std::vector<int64_t> out;
  const std::string text = read_file(path, size_t{1} << 26);
  int64_t n = -1;
  for (const char c : text + "\n") {
    TD_CHECK((c >= '0' && c <= '9') || c == '\n' || c == '\r', Format,
             "'{}': line {} is not a number", path, out.size() + 1);
    if (c >= '0' && c <= '9') {
      n = std::max<int64_t>(n, 0) * 10 + (c - '0');
      TD_CHECK(n < 1 << 28, Format, "'{}': line {} is too large", path, out.size() + 1);
    } else if (n >= 0) {
      out.push_back(n);
      n = -1;
    }
  }
  TD_CHECK(!out.empty(), Format, "'{}' is empty", path);
  return out;
}

Tensor mask(int64_t n, int64_t from, int64_t to) {
  const Tensor i = arange(n);
  return (i >= from) & (i < to);
}

}  // namespace

Planetoid load_planetoid(const FilePath& folder, const std::string& name) {
  const Source allx(folder.str(), name, "allx"), tx(folder.str(), name, "tx");
  const Source ally(folder.str(), name, "ally"), ty(folder.str(), name, "ty");
  const Source y(folder.str(), name, "y"), graph(folder.str(), name, "graph");
  const std::vector<int64_t> order = test_rows(folder.str() + "/ind." + name + ".test.index");
  const Rows known = rows_of(allx), tests = rows_of(tx);
  Planetoid out;
  int64_t count = 0;
  std::vector<int64_t> labels = classes_of(ally, out.num_classes);
  const std::vector<int64_t> test_labels = classes_of(ty, count);
  want(count == out.num_classes && tests.columns == known.columns &&
           tests.n == static_cast<int64_t>(order.size()) && test_labels.size() == order.size() &&
           labels.size() == static_cast<size_t>(known.n),
       tx, "the parts of the set do not match");
  // Test rows follow the others in an order of their own; rows missing from all files stay empty.
  const int64_t last = *std::max_element(order.begin(), order.end());
  want(*std::min_element(order.begin(), order.end()) >= known.n && last < 1 << 24, tx,
       "a test row is among the others");
  const int64_t nodes = last + 1;
  const auto columns = static_cast<size_t>(known.columns);
  std::vector<float> x = known.v;
  x.resize(static_cast<size_t>(nodes) * columns);
  labels.resize(static_cast<size_t>(nodes));
  for (size_t i = 0; i < order.size(); ++i) {
    const auto at = static_cast<size_t>(order[i]);
    std::copy_n(tests.v.begin() + static_cast<int64_t>(i * columns), columns,
                x.begin() + static_cast<int64_t>(at * columns));
    labels[at] = test_labels[i];
  }
  std::set<std::pair<int64_t, int64_t>> edges;
  want(graph.root->items.size() % 2 == 0 && !graph.root->items.empty(), graph,
       "expected lists of neighbours");
  for (size_t i = 0; i < graph.root->items.size(); i += 2)
    for (const PickleNode* other : graph.root->items[i + 1]->items) {
      const int64_t a = graph.root->items[i]->integer, b = other->integer;
      want(a >= 0 && a < nodes && b >= 0 && b < nodes, graph, "a node is out of range");
      if (a == b) continue;
      edges.emplace(a, b);
      edges.emplace(b, a);
    }
  std::vector<int64_t> ends;
  for (const auto& e : edges) ends.push_back(e.first);
  for (const auto& e : edges) ends.push_back(e.second);
  const auto trained = static_cast<int64_t>(classes_of(y, count).size());
  std::vector<uint8_t> tested(static_cast<size_t>(nodes));
  for (const int64_t i : order) tested[static_cast<size_t>(i)] = 1;
  out.x = tensor(x, Shape(nodes, known.columns));
  out.y = tensor(labels);
  out.edge_index = tensor(ends, Shape(int64_t{2}, static_cast<int64_t>(edges.size())));
  out.train_mask = mask(nodes, 0, trained);
  out.val_mask = mask(nodes, trained, trained + 500);
  out.test_mask = tensor(tested).to(DType::b8);
  return out;
}

}  // namespace tandem::data
