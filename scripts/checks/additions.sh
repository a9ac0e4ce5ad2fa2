# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/checks/adding_* and scripts/check_additions share: taking code, registration and test lines out of a
# page and putting them into a tree. Sourced behind common.sh.

# code_block PAGE N: its Nth block of C++. plain_block PAGE N: its Nth block without a language.
code_block() {
  awk -v want="$2" '/^```/ { if (inside) inside = 0; else { inside = $0 == "```cpp" ? 1 : 2; n += inside == 1 }; next }
    inside == 1 && n == want' "$1"
}
plain_block() {
  awk -v want="$2" '/^```/ { if (inside) inside = 0; else { inside = $0 == "```" ? 1 : 2; n += inside == 1 }; next }
    inside == 1 && n == want' "$1"
}
# add_file TREE PAGE N PATH NAMESPACE INCLUDE...: block N as the new header PATH. Exit code 77 where the
# project itself holds it already, as in the clone of scripts/check_additions.
add_file() {
  local tree=$1 page=$2 n=$3 path=$4 space=$5
  shift 5
  [ ! -e "$path" ] || { echo "$path is there already"; exit 77; }
  mkdir -p "$tree/$(dirname "$path")"
  {
    printf '// SPDX-License-Identifier: Apache-2.0\n// Of %s.\n#pragma once\n\n' "$page"
    printf '#include %s\n' "$@" | sed 's,include \(tandem.*\),include "\1",; s,include \([^"].*\),include <\1>,'
    printf '\nnamespace %s {\n\n' "$space"
    code_block "$page" "$n"
    printf '\n}  // namespace %s\n' "$space"
  } >"$tree/$path"
}
# register TREE PAGE N LIST PATH: the two lines of plain block N, the include of PATH and the row, in LIST.
register() {
  local tree=$1 page=$2 n=$3 list=$4 path=$5 include row before
  before=$(wc -l <"$list")
  include=$(plain_block "$page" "$n" | sed -n 1p)
  row=$(plain_block "$page" "$n" | sed -n 2p)
  [ "$include" = "#include \"$path\"" ] || { echo "$page: its registration does not include $path"; return 1; }
  mkdir -p "$tree/$(dirname "$list")"
  awk -v include="$include" -v row="$row" '
    /^#include/ && !included { print include; included = 1 }
    { print }
    /^#define TD_FOR_EACH_/ { print row " \\" }' "$list" >"$tree/$list.new" && mv "$tree/$list.new" "$tree/$list"
  [ "$(wc -l <"$tree/$list")" = $((before + 2)) ] || { echo "$page: $list needs two lines"; return 1; }
}
# insert_row TREE LIST PATH ANCHOR ROW: the include of PATH, and ROW behind the line of LIST that holds ANCHOR.
insert_row() {
  local tree=$1 list=$2 path=$3 anchor=$4 row=$5
  grep -qF -- "$anchor" "$list" || { echo "$list does not hold: $anchor"; return 1; }
  awk -v include="#include \"$path\"" -v anchor="$anchor" -v row="$row" '
    /^#include/ && !included { print; print include; included = 1; next }
    { print } index($0, anchor) && !done { print row; done = 1 }' "$list" >"$tree/$list.new" &&
    mv "$tree/$list.new" "$tree/$list"
}
# add_test_line TREE PAGE N FILE ANCHOR: block N behind the line of FILE that holds ANCHOR.
add_test_line() {
  local tree=$1 page=$2 n=$3 file=$4 anchor=$5
  grep -qF -- "$anchor" "$file" || { echo "$file does not hold: $anchor"; return 1; }
  awk -v anchor="$anchor" -v line="$(code_block "$page" "$n")" '
    { print } index($0, anchor) && !done { print line; done = 1 }' "$file" >"$tree/$file.new" &&
    mv "$tree/$file.new" "$tree/$file"
}
