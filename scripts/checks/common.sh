# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the checks in this folder. A check prints what is wrong and exits with 0 (fine), 1 (wrong) or
# 77 (cannot run here; the last line says why).
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
export LC_ALL=C

# Every file of the project, tracked or new, that git does not ignore; also works outside a git repository.
project_files() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -co --exclude-standard -- "$@" | sort -u | while read -r f; do [ -f "$f" ] && echo "$f"; done
  else
    find . -type f -not -path './build/*' -not -path './.git/*' | sed 's,^\./,,' | sort |
      while read -r f; do
        for pattern in "${@:-*}"; do
          # shellcheck disable=SC2053
          if [[ $f == $pattern || $f == $pattern/* ]]; then echo "$f"; break; fi
        done
      done
  fi
}
