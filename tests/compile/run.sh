#!/bin/sh
# run.sh WARNINGS: builds program.c in many ways, each without a warning, runs it, and compares what
# it prints. Then our own sources, with warnings as errors. One job for each compiler.
set -u
warnings="$1 -Werror"
cxx_warnings=$(echo "$warnings" | sed 's/-W[a-z]*-prototypes//g')
program=tests/compile/program.c
build=build/compile

# report NAME COMMAND...: runs it; what it says is shown if it fails.
report() {
    name=$1
    shift
    if "$@" >"$out/$name.log" 2>&1; then
        echo "ok   $compiler $name"
    else
        echo "FAIL $compiler $name: $*"
        cat "$out/$name.log"
        failed=1
    fi
}

# compile NAME FLAGS...: the language is C++ where the standard is.
compile() {
    object=$1
    shift
    case "$*" in
    *-std=c++*) $cxx -x c++ $cxx_warnings "$@" -c -o "$out/$object.o" $program ;;
    *) $compiler $warnings "$@" -c -o "$out/$object.o" $program ;;
    esac
}

build_and_run() {
    compile "$@" && $cxx ${openmp:-} -o "$out/$1" "$out/$1.o" ${second:-} -lm &&
        "$out/$1" >"$out/$1.out" || { cat "$out/$1.out"; return 1; }
}

row() {
    name=$1
    report "$name" build_and_run "$@"
}

two_copies() {
    compile second "$@" -DSECOND_COPY &&
        second="$out/second.o" build_and_run two-copies "$@" -DWITH_SECOND_COPY
}

has_openmp() {
    echo 'int main(void) { return 0; }' | $compiler -fopenmp -x c -o "$out/probe" - 2>/dev/null
}

# The optimised builds are the slow ones; the options only change what is declared and included.
rows() {
    row c99-O2 -Iinclude -std=c99 -O2 $stack
    row c11-O0 -Iinclude -std=c11 -O0
    row gnu17-O3 -Iinclude -std=gnu17 -O3
    row c++11-O0 -Iinclude -std=c++11 -O0
    row c++17-O0 -Iinclude -std=c++17 -O0
    row c++20-O2 -Iinclude -std=c++20 -O2
    row no-simd -Iinclude -std=c99 -O0 -DLA_NO_SIMD
    row static -Iinclude -std=c99 -O0 -DLA_STATIC
    row static-c++11 -Iinclude -std=c++11 -O0 -DLA_STATIC
    row plain-first -Iinclude -std=c99 -O0 -DPLAIN_FIRST
    report two-copies two_copies -Iinclude -std=c99 -O0 -DLA_STATIC
    row renamed -I"$out" -std=c99 -O0 -DHEADER='"other.h"' -DLA_SELF='"other.h"'
    row renamed-no-simd -I"$out" -std=c99 -O0 -DHEADER='"other.h"' -DLA_NO_SIMD
    if has_openmp; then
        openmp=-fopenmp row openmp -Iinclude -std=c99 -O0 -fopenmp
    else
        echo "skipped: $compiler has no OpenMP here"
        [ -z "${CI:-}" ] || failed=1
    fi
    # Sums may be taken in any order here: only the exact data is checked.
    row fast-math -Iinclude -std=c99 -O3 -ffast-math
    rm -f "$out/fast-math.out"
    report own-sources ${MAKE:-make} -s CC="$compiler" BUILD="$out/own" EXTRA=-Werror \
        all "$out/own/tests"
}

compiler_job() {
    compiler=$1
    cxx=$2
    out=$build/$compiler
    failed=0
    stack= # promised to the caller; only gcc can tell
    [ "$compiler" != gcc ] || stack=-Wstack-usage=4096
    mkdir -p "$out"
    cp include/linear_attention.h "$out/other.h"
    rows
    return $failed
}

# A line is "instruction set, variant, form: hash of the bits".
compare() {
    awk -F ': ' '
        !($1 in hash) { hash[$1] = $2 }
        hash[$1] != $2 { print "FAIL " FILENAME ": " $0 ", elsewhere " hash[$1]; bad = 1 }
        { n++ }
        END { print n + 0 " results compared"; exit bad || !n }' $build/*/*.out
}

rm -rf $build
jobs=
failed=0
for pair in gcc:g++ clang:clang++; do
    if command -v ${pair%:*} >/dev/null && command -v ${pair#*:} >/dev/null; then
        compiler_job ${pair%:*} ${pair#*:} &
        jobs="$jobs $!"
    else
        echo "skipped: there is no ${pair%:*} here"
        [ -z "${CI:-}" ] || failed=1
    fi
done
for job in $jobs; do
    wait "$job" || failed=1
done
compare || failed=1
exit $failed
