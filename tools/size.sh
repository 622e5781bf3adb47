#!/bin/sh
# Counts lines of Go by floor, which is the first folder below internal: those of the program, and those of its tests. Tests are files
# *_test.go and packages that only they import, whose names end in "test". Neither bench, tools nor examples count. With BASE=commit it
# also prints what that commit has, and marks floors whose program has grown by more than 5 %.
set -eu
cd "$(dirname "$0")/.."

# lines COLUMN [COMMIT] prints the files of a commit, or of the working tree with those not yet tracked: COLUMN path count.
lines() {
  if [ -n "${2:-}" ]; then
    git grep -c '' "$2" -- '*.go' | awk -F: -v column="$1" '{print column, $2, $3}'
  else
    git grep -c --untracked '' -- '*.go' | awk -F: -v column="$1" '{print column, $1, $2}'
  fi
}

base=
if [ -n "${BASE:-}" ]; then
  base=$(git rev-parse --verify --quiet "$BASE^{commit}") || { echo "There is no commit $BASE." >&2; exit 2; }
fi
{ lines now; [ -z "$base" ] || lines base "$base"; } | LC_ALL=C awk -v compare="$base" '
  $2 ~ /^(bench|tools|examples)\// {next}
  {
    n = split($2, part, "/")
    floor = n == 1 ? "j17" : part[1] == "internal" ? part[2] : part[1]
    kind = $2 ~ /_test\.go$/ || $2 ~ /[a-z]test\/[^\/]*$/ ? "tests" : "program"
    floors[floor]
    count[$1, kind, floor] += $3
    count[$1, kind, "all"] += $3
  }
  function change(kind, floor,   was, is) {
    was = count["base", kind, floor] + 0
    is = count["now", kind, floor] + 0
    return was == is ? "" : was == 0 ? sprintf("%+d", is) : sprintf("%+d %+.1f %%", is - was, 100 * (is - was) / was)
  }
  function row(floor) {
    if (!compare) {
      printf "%-12s %9d %9d\n", floor, count["now", "program", floor], count["now", "tests", floor]
      return
    }
    is = count["now", "program", floor] + 0
    was = count["base", "program", floor] + 0
    printf "%-12s %9d %9d  %-16s %9d %9d  %-16s %s\n", floor, was, is, change("program", floor),
      count["base", "tests", floor], count["now", "tests", floor], change("tests", floor), (is > 1.05 * was ? "grows" : "")
  }
  END {
    if (compare)
      printf "%-12s %9s %9s  %-16s %9s %9s\n", "floor", "program", "now", "", "tests", "now"
    else
      printf "%-12s %9s %9s\n", "floor", "program", "tests"
    for (floor in floors) name[++m] = floor
    for (i = 2; i <= m; i++) # insertion sort: awk of POSIX has none
      for (j = i; j > 1 && name[j] < name[j-1]; j--) { t = name[j]; name[j] = name[j-1]; name[j-1] = t }
    for (i = 1; i <= m; i++) row(name[i])
    row("all")
  }' | sed 's/ *$//'
