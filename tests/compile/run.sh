#!/bin/sh
# run.sh WARNINGS: builds program.c in many ways, each without a warning, runs it, and compares what
# it prints. Then our own sources, with warnings as errors. One job for each compiler.
set -u
warnings="$1 -Werror"
cxx_warnings=$(echo "$warnings" | sed 's/-W[a-z]*-prototypes//g')
program=tests/compile/program.c
build=build/compile

# Each value of a column meets each value of every other one: check_pairs counts. The last two are
# an option of the header, and how it is used:
#     once         by one file
#     plain-first  the implementation between plain includes
#     two-copies   two static ones in one program
#     renamed      as other.h, which includes itself by LA_SELF
#     separate     the implementation in C, in a file of its own
#     openmp       with -fopenmp
table='
clang c++11 -O0 no-features once
clang c++11 -O2 all separate
clang c++11 -O3 no-channels renamed
clang c++11 -Og no-features renamed
clang c++11 -Og static openmp
clang c++11 -flto static plain-first
clang c++17 -O0 static renamed
clang c++17 -O1 no-simd plain-first
clang c++17 -O1 static openmp
clang c++17 -O2 no-chunks once
clang c++17 -Og no-channels separate
clang c++20 -O0 static two-copies
clang c++20 -O1 all renamed
clang c++20 -O2 no-channels plain-first
clang c++20 -Os no-chunks separate
clang c++20 -flto no-features openmp
clang c11 -O1 no-simd once
clang c11 -Og no-chunks plain-first
clang c11 -Os static once
clang c17 -O1 no-features separate
clang c17 -O3 no-simd once
clang c17 -Og no-channels openmp
clang c17 -Os no-chunks renamed
clang c99 -O1 no-channels two-copies
clang c99 -O2 no-simd openmp
clang c99 -Os no-features plain-first
gcc c++11 -O1 no-chunks openmp
gcc c++11 -Os no-simd two-copies
gcc c++17 -O3 no-chunks two-copies
gcc c++17 -Og no-features two-copies
gcc c++17 -Os all openmp
gcc c++17 -flto no-channels once
gcc c++20 -O0 no-simd two-copies
gcc c++20 -O3 no-features openmp
gcc c++20 -Og no-simd separate
gcc c++20 -Os no-channels once
gcc c11 -O0 no-channels openmp
gcc c11 -O2 no-features renamed
gcc c11 -O3 all separate
gcc c11 -flto all two-copies
gcc c17 -O0 all plain-first
gcc c17 -O2 static two-copies
gcc c17 -flto no-chunks separate
gcc c99 -O0 no-chunks separate
gcc c99 -O3 static plain-first
gcc c99 -Og all once
gcc c99 -flto no-simd renamed
clang c++11 -O0 extras separate
clang c11 -O3 extras openmp
clang c99 -Os extras two-copies
gcc c++17 -O1 extras renamed
gcc c++20 -O2 extras plain-first
gcc c17 -Og extras once
gcc c99 -flto extras renamed'

check_pairs() {
    echo "$table" | awk 'NF {
            n++
            for (i = 1; i <= NF; i++) {
                values[i] += !seen[i, $i]++
                for (j = i + 1; j <= NF; j++) met[i, j] += !pair[i, $i, j, $j]++
            }
        }
        END {
            for (i = 1; i <= 5; i++) for (j = i + 1; j <= 5; j++) {
                want = values[i] * values[j] - (i == 4) # separate static functions meet nobody
                if (met[i, j] != want) {
                    print "FAIL columns " i " and " j ": " met[i, j] " pairs of " want
                    bad = 1
                }
            }
            print n " builds, pairwise"
            exit bad
        }'
}

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

# compile OBJECT FLAGS...: the language is C++ where the standard is.
compile() {
    object=$1
    shift
    case "$*" in
    *-std=c++*) $cxx -x c++ $cxx_warnings "$@" -c -o "$out/$object.o" $program ;;
    *) $compiler $warnings "$@" -c -o "$out/$object.o" $program ;;
    esac
}

# link_and_run NAME FLAGS...: NAME.o and the objects or options in $with
link_and_run() {
    name=$1
    shift
    $cxx "$@" -o "$out/$name" "$out/$name.o" $with -lm &&
        "$out/$name" >"$out/$name.out" || { cat "$out/$name.out"; return 1; }
}

# build NAME LEVEL USE FLAGS...
build() {
    name=$1 level=$2 use=$3 with=
    shift 3
    [ $level != -flto ] || level='-O2 -flto'
    case $use in
    once) compile $name -Iinclude $level "$@" ;;
    plain-first) compile $name -Iinclude $level "$@" -DPLAIN_FIRST ;;
    two-copies)
        with="$out/$name-second.o"
        compile $name-second -Iinclude $level "$@" -DLA_STATIC -DSECOND_COPY &&
            compile $name -Iinclude $level "$@" -DLA_STATIC -DWITH_SECOND_COPY
        ;;
    renamed)
        compile $name -I"$out" $level "$@" -DHEADER='"other.h"' -DLA_SELF='"other.h"'
        ;;
    separate)
        with="$out/$name-library.o"
        echo '#include "linear_attention.h"' | $compiler $warnings -DLA_IMPLEMENTATION -Iinclude \
            $level $(echo "$*" | sed 's/-std=[^ ]*//') -x c -c -o "$with" - &&
            compile $name -Iinclude $level "$@" -DPLAIN
        ;;
    openmp)
        with=-fopenmp
        compile $name -Iinclude $level "$@" -fopenmp
        ;;
    esac && link_and_run $name $level
}

option_of() {
    case $1 in
    all) ;;
    *) echo "-DLA_$(echo "$1" | tr a-z- A-Z_)" ;;
    esac
}

rows() {
    echo "$table" | grep "^$compiler " >"$out/rows"
    while read -r _ standard level option use; do
        name=$standard$level-$option-$use
        if [ $use = openmp ] && ! has -fopenmp || [ $level = -flto ] && ! has -flto; then
            echo "skipped: $compiler $name: nothing to link with here"
            [ -z "${CI:-}" ] || failed=1
            continue
        fi
        report $name build $name $level $use -std=$standard $(option_of $option)
    done <"$out/rows"
}

has() {
    echo 'int main(void) { return 0; }' | $compiler $1 -x c -o "$out/probe" - 2>/dev/null
}

# With -Ofast, next to the results without it.
fast() {
    with="$out/precise.o"
    compile precise -Iinclude -std=c99 -O1 -DLA_EXTRAS -DLA_STATIC -DSECOND_COPY -DPRECISE &&
        compile fast -Iinclude -std=c99 -Ofast -DLA_EXTRAS -DLA_STATIC -DFAST &&
        link_and_run fast -Ofast
}

# Where compilers may put any product into an addition; bits stay what they are elsewhere.
contracted() {
    with=
    compile contracted -Iinclude -std=c99 -O3 -ffp-contract=fast -DLA_EXTRAS &&
        link_and_run contracted
}

# A renamed copy that finds another version where it includes itself must not compile.
other_version() {
    sed 's/^\(#define LA_VERSION\) .*/\1 9999/; s/LA_VERSION != [0-9]*/LA_VERSION != 9999/' \
        include/linear_attention.h >"$out/newer.h"
    grep -q 'LA_VERSION 9999' "$out/newer.h" || return
    echo '#include "newer.h"' | $compiler -DLA_IMPLEMENTATION -I"$out" -Iinclude -fsyntax-only \
        -x c - 2>"$out/version.txt" && return 1
    grep 'another version of itself' "$out/version.txt"
}

compiler_job() {
    compiler=$1
    cxx=$2
    out=$build/$compiler
    failed=0
    mkdir -p "$out"
    cp include/linear_attention.h "$out/other.h"
    rows
    report contracted contracted
    report fast fast
    rm -f "$out/fast.out" # its bits are its own
    report other-version other_version
    report own-sources ${MAKE:-make} -s CC="$compiler" BUILD="$out/own" EXTRA=-Werror \
        all "$out/own/tests"
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
check_pairs || failed=1
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
