// SPDX-License-Identifier: Apache-2.0
// Tables: statistics, schemas and their violations, drift between two sets.
#include "tandem/data/table_stats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/io/io_helper.h"

namespace tandem::data {
namespace {

TableStats of(const std::string& text) { return table_stats(io::Csv::parse(text), "t"); }

const char* const kPeople =
    "age,name,score,city\n31,Ann,1.5,Ulm\n, Bob ,2.5,Ulm\n45,Cid,NA,Bonn\n27,Dan,-1e2,Ulm\n";

TEST(TableStats, OfColumns) {
  const TableStats t = of(kPeople);
  EXPECT_EQ(t.rows, 4);
  ASSERT_EQ(t.columns.size(), 4u);
  const ColumnStats &age = t.columns[0], &name = t.columns[1], &score = t.columns[2],
                    &city = t.columns[3];
  EXPECT_EQ(age.type, ColumnType::integer);
  EXPECT_EQ(age.missing, 1);
  EXPECT_EQ(age.low, 27);
  EXPECT_EQ(age.high, 45);
  EXPECT_EQ(age.median, 31);
  EXPECT_NEAR(age.mean, 103.0 / 3, 1e-12);
  EXPECT_EQ(name.type, ColumnType::text);
  EXPECT_EQ(name.distinct, 4);
  EXPECT_EQ(score.type, ColumnType::number);
  EXPECT_EQ(score.missing, 1);
  EXPECT_EQ(score.low, -100);
  EXPECT_EQ(city.frequent[0], (std::pair<std::string, int64_t>("Ulm", 3)));
}

TEST(TableStats, FilesOfSeveralForms) {
  TempFolder f;
  write_file(f / "head.csv", "a,b\n1,x\n2,y\n");
  write_file(f / "bare.csv", "1,x\n2,y\n");
  write_file(f / "texts.csv", "kind,colour\nbig,red\nsmall,red\nbig,blue\n");
  write_file(f / "t.tsv", "a\tb\n1\t2\n");
  write_file(f / "r.jsonl",
             "{\"a\": 1, \"b\": \"x\"}\n\n{\"a\": 2.5}\n{\"b\": null, \"c\": true}\n");
  EXPECT_EQ(read_table_stats(f / "head.csv").rows, 2);
  EXPECT_EQ(read_table_stats(f / "bare.csv").rows, 2);
  EXPECT_EQ(read_table_stats(f / "bare.csv").columns[0].name, "column 1");
  EXPECT_EQ(read_table_stats(f / "bare.csv", true).rows, 1);
  EXPECT_EQ(read_table_stats(f / "texts.csv").columns[1].name, "colour");
  EXPECT_EQ(read_table_stats(f / "t.tsv").columns.size(), 2u);
  const TableStats j = read_table_stats(f / "r.jsonl");
  EXPECT_EQ(j.rows, 3);
  EXPECT_EQ(j.find("a")->missing, 1);
  EXPECT_EQ(j.find("b")->missing, 2);
  EXPECT_EQ(j.find("c")->missing, 2);
  EXPECT_EQ(j.find("c")->rows, 3);
  const std::pair<const char*, const char*> kBroken[] = {
      {"{\"a\": 1}\n{\"a\": \n", "line 2"},
      {"[1, 2]\n", "expected an object, got array"},
      {"{\"a\": {\"b\": 1}}\n", "'a' is an object"},
  };
  for (const auto& [text, want] : kBroken) {
    write_file(f / "x.jsonl", text);
    const std::string what = error_of([&] { read_table_stats(f / "x.jsonl"); });
    EXPECT_EQ(what.rfind("Format: ", 0), 0u) << what;
    EXPECT_NE(what.find(want), what.npos) << what;
  }
  EXPECT_EQ(error_of([&] { read_table_stats(f / "none.csv"); }).rfind("Io: ", 0), 0u);
}

TEST(Schema, FindsWhatBreaksIt) {
  const Schema s = infer_schema(of(kPeople));
  EXPECT_TRUE(validate(of(kPeople), s).empty());
  const Schema back = Schema::from_json(io::parse_json(s.to_json().dump()), "s");
  EXPECT_EQ(back.to_json().dump(), s.to_json().dump());
  struct Row {
    const char *table, *column, *what;
  };
  const Row kRows[] = {
      {"age,name,score\n31,Ann,1\n", "city", "the column is missing"},
      {"age,name,score,city,extra\n31,Ann,1,Ulm,1\n", "extra", "no such column"},
      {"age,name,score,town,city\n31,Ann,1,x,Ulm\n", "town", "no such column"},
      {"agee,name,score,city\n31,Ann,1,Ulm\n", "agee", "did you mean 'age'?"},
      {"age,name,score,city\nold,Ann,1,Ulm\n", "age",
       "is of type text, expected integer (such as 'old')"},
      {"age,name,score,city\n31.5,Ann,1,Ulm\n", "age", "is of type number, expected integer"},
      {"age,name,score,city\n99,Ann,1,Ulm\n", "age", "99 is above 45"},
      {"age,name,score,city\n30,Ann,-101,Ulm\n", "score", "-101 is below -100"},
      {"age,name,score,city\n30,Ann,inf,Ulm\n", "score", "infinite"},
      {"age,name,score,city\n30,Ann,1,Rome\n", "city", "does not know, such as 'Rome'"},
      {"age,name,score,city\n,Ann,1,Ulm\n,Bob,1,Ulm\n30,Cid,1,Ulm\n", "age",
       "2 of 3 values are missing"},
      {"age,name,score,city\n", "", "0 rows, expected at least 1"},
  };
  for (const Row& r : kRows) {
    bool found = false;
    std::string all;
    for (const Anomaly& a : validate(of(r.table), s)) {
      found = found || (a.column == r.column && a.what.find(r.what) != std::string::npos);
      all += a.column + ": " + a.what + "\n";
    }
    EXPECT_TRUE(found) << r.what << " not in\n" << all;
  }
  const std::pair<const char*, const char*> kBroken[] = {
      {"[]", "expected an object"},
      {"{}", "\"columns\" expects a list"},
      {"{\"columns\": [{\"name\": \"a\", \"typ\": \"text\"}]}", "did you mean 'type'?"},
      {"{\"columns\": [{\"name\": \"a\", \"type\": \"words\"}]}", "there is no type 'words'"},
      {"{\"columns\": [{\"name\": \"a\", \"type\": \"text\", \"low\": \"x\"}]}",
       "expected a number"},
      {"{\"columns\": [{\"name\": \"a\", \"type\": \"text\", \"values\": [1]}]}",
       "must be strings"},
  };
  for (const auto& broken : kBroken) {
    const std::string what =
        error_of([&] { Schema::from_json(io::parse_json(broken.first), "s.json"); });
    EXPECT_EQ(what.rfind("Format: s.json", 0), 0u) << what;
    EXPECT_NE(what.find(broken.second), what.npos) << what;
  }
}

TEST(Drift, OfNumbersAndTexts) {
  std::string a = "x,kind,same\n", b = a, c = a;
  for (int i = 0; i < 2000; ++i) {
    a += fmt::format("{},{},{}\n", i, i % 4 ? "red" : "blue", i % 7);
    b += fmt::format("{},{},{}\n", i + 0.25, i % 4 ? "red" : "blue", i % 7);
    c += fmt::format("{},{},{}\n", i + 1000, i % 4 ? "blue" : "green", i % 7);
  }
  for (const Drift& d : drift(of(a), of(a))) EXPECT_EQ(d.jensen_shannon, 0) << d.column;
  for (const Drift& d : drift(of(a), of(b))) EXPECT_LT(d.jensen_shannon, 1e-3) << d.column;
  const std::vector<Drift> d = drift(of(a), of(c));
  ASSERT_EQ(d.size(), 3u);
  EXPECT_EQ(d[2].column, "same");
  EXPECT_EQ(d[2].jensen_shannon, 0);
  // Half of x moved beyond the first set's end: p is flat over 20 bins, q has half in the last one.
  for (const Drift& one : d) {
    if (one.column == "x") {
      double want = 0;
      for (int k = 0; k < 20; ++k) {
        const double p = 0.05, q = k < 10 ? 0 : k < 19 ? 0.05 : 0.55, m = (p + q) / 2;
        want += 0.5 * p * std::log2(p / m) + (q > 0 ? 0.5 * q * std::log2(q / m) : 0);
      }
      EXPECT_NEAR(one.jensen_shannon, want, 5e-3);
    }
    if (one.column == "kind") {
      EXPECT_NEAR(one.l_infinity, 0.75, 1e-9);
    }
  }
}

}  // namespace
}  // namespace tandem::data
