# SPDX-License-Identifier: Apache-2.0
# Turns a translation table into a GoogleTest source: each row whose second column holds code becomes a
# test that runs it, after its table's setup (<!-- setup: ... -->). Usage:
# awk -v suite=FromPyTorch -f scripts/table_tests.awk docs/from-pytorch.md
BEGIN {
  print "// Made from a translation table by scripts/table_tests.awk."
  print "#include <gtest/gtest.h>\n#include <tandem/tandem.h>\n#include <unistd.h>"
  print "using namespace tandem;"
  print "namespace {"
  print "struct Begin {\n  Begin() {\n    init();"
  print "    if (chdir(testing::TempDir().c_str()) != 0) std::abort();  // for the files they write"
  print "  }\n} const g_begin;"
}
/^<!-- setup: .* -->$/ {
  setup = $0
  sub(/^<!-- setup: /, "", setup)
  sub(/ -->$/, "", setup)
}
/^\|/ && !/^\|---/ && !header {
  line = $0
  gsub(/\\\|/, "\001", line)
  columns = split(line, cell, "|")
  if (columns != 5) { print "#error " FILENAME ":" FNR ": a row of " columns - 2 " columns, expected 3"; next }
  code = cell[3]
  gsub(/\001/, "|", code)
  if (first) {  # the names of the columns
    first = 0
    next
  }
  if (code ~ /not there yet/) { missing++; next }
  if (code !~ /^ `.*` $/) { print "#error " FILENAME ":" FNR ": the second column is not code"; next }
  code = substr(code, 3, length(code) - 4)
  if (code !~ /;$/) code = code ";"
  printf "TEST(%s, Line%d) {\n  manual_seed(0);\n  %s\n  {\n#line %d \"%s\"\n    %s\n  }\n}\n", suite, FNR, setup, FNR, FILENAME, code
  rows++
}
/^## / { first = 1 }
END {
  if (rows < 40) print "#error " FILENAME ": only " rows + 0 " rows found"
  print "}  // namespace"
}
