// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/external.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "tandem/base/budget.h"
#include "tandem/base/files/file.h"
#include "tandem/io/protobuf.h"

namespace tandem::onnx {
namespace {

// Which fields of a message lead to tensors (onnx.proto).
enum class Kind : uint8_t { model, graph, function, node, attribute, sparse, tensor, entry };
struct Lead {
  Kind in;
  uint32_t field;
  Kind to;
};
constexpr Lead kLeads[] = {
    {Kind::model, 7, Kind::graph},       {Kind::model, 25, Kind::function},
    {Kind::graph, 1, Kind::node},        {Kind::graph, 5, Kind::tensor},
    {Kind::graph, 15, Kind::sparse},     {Kind::function, 7, Kind::node},
    {Kind::node, 5, Kind::attribute},    {Kind::attribute, 5, Kind::tensor},
    {Kind::attribute, 6, Kind::graph},   {Kind::attribute, 10, Kind::tensor},
    {Kind::attribute, 11, Kind::graph},  {Kind::attribute, 22, Kind::sparse},
    {Kind::attribute, 23, Kind::sparse}, {Kind::sparse, 1, Kind::tensor},
    {Kind::sparse, 2, Kind::tensor},     {Kind::tensor, 13, Kind::entry},
};

struct Found {
  std::vector<std::string> order;
  std::set<std::string> known;
};

void read_entry(io::ProtoReader r, Found& found) {
  std::string key, value;
  while (r.next()) {
    if (r.field() == 1) key = r.text();
    if (r.field() == 2) value = r.text();
  }
  if (key == "location" && found.known.insert(value).second) found.order.push_back(value);
}

void look(io::ProtoReader r, Kind kind, Found& found) {
  if (kind == Kind::entry) return read_entry(r, found);
  while (r.next()) {
    const auto* lead = std::find_if(std::begin(kLeads), std::end(kLeads), [&](const Lead& l) {
      return l.in == kind && l.field == r.field();
    });
    if (lead != std::end(kLeads)) look(r.message(), lead->to, found);
  }
}

}  // namespace

std::vector<std::string> external_locations(const std::string& path) {
  const MappedFile file(path);
  const Budget budget(path, file.size());
  io::ProtoDocument document(file.view(), "'" + path + "'");
  Found found;
  look(document.reader(), Kind::model, found);
  return found.order;
}

}  // namespace tandem::onnx
