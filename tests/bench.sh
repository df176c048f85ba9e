#!/bin/sh
# Black-box tests of build/bench, on tiny rows: what it says, not how fast. Files go to
# $BUILD/bench-tests.
#     BUILD=build sh tests/bench.sh [FILTER]      FILTER: only names that contain it
LC_ALL=C
export LC_ALL
cd "$(dirname "$0")/.." || exit 1
bench=${BUILD:-build}/bench
work=${BUILD:-build}/bench-tests
filter=$1
tiny='--dims 16 --heads 2 --reps 3'

rm -rf "$work"
mkdir -p "$work" || exit 1

# ---- the harness ---------------------------------------------------------------------------------

. tests/harness.sh

# launch ARGUMENT...: leaves $status, $work/stdout and $work/stderr.
launch() {
    "$bench" "$@" > "$work/stdout" 2> "$work/stderr"
    status=$?
}

said() {
    head -c 300 "$work/stderr" | tr '\n' ' '
}

# expects STATUS LINES: what is wrong with the status and the number of lines on standard error.
expects() {
    [ $status -eq "$1" ] || echo "status $status, not $1: $(said)"
    [ "$(wc -l < "$work/stderr")" -eq "$2" ] || echo "says $(said)"
}

# refused TEXT ARGUMENT...: status 2 and one line, which contains TEXT.
refused() {
    text=$1
    shift
    wanted "refuses $*" || return 0
    launch "$@"
    problem=$(expects 2 1)
    grep -qF -e "bench: $text" "$work/stderr" || problem="$problem not \"$text\": $(said)"
    [ ! -s "$work/stdout" ] || problem="$problem; standard output is not empty"
    verdict "refuses $*" "$problem"
}

# runs NAME CHECK ARGUMENT...: status 0, silent, and CHECK finds nothing wrong with what it prints.
runs() {
    name=$1 check=$2
    shift 2
    wanted "$name" || return 0
    launch "$@"
    verdict "$name" "$(expects 0 0; $check)"
}

# prints TEXT...: each is there.
prints() {
    for text; do
        grep -qF -e "$text" "$work/stdout" || echo "does not print \"$text\";"
    done
}

# rows_match PATTERN COUNT: CSV of at least COUNT rows, all of which match.
rows_match() {
    tail -n +2 "$work/stdout" > "$work/rows"
    [ "$(wc -l < "$work/rows")" -ge "$2" ] || echo "$(wc -l < "$work/rows") rows, not $2 or more;"
    ! grep -vqE -e "$1" "$work/rows" || echo "not as asked: $(grep -vE -m 1 -e "$1" "$work/rows")"
}

# ---- what is refused -----------------------------------------------------------------------------

test_refusals() {
    refused 'unknown option --foo' --foo 1
    refused 'unknown mode foo' foo
    refused 'foo is no option' --check foo
    refused '--tokens: a value is missing' --tokens
    refused '--tokens: a value is missing' --tokens 64,,128
    refused '--tokens: "x" is no number' --tokens x
    refused '--tokens: "6 4" is no number' --tokens '6 4'
    refused '--tokens: 0 is not in' --tokens 64,0
    refused '--tokens is given twice' --tokens 64 --tokens 128
    refused '--dims: "" is no number' --dims 64x
    refused '--dims: 0 is not in' --dims 64x0
    refused '--chunk: 1025 is not in' --chunk 1025
    refused '--reps: 0 is not in' --reps 0
    refused '--min-time: "-1" is not in' --min-time -1
    refused '--variant: there is no "rednet"' --variant rednet
    refused '--rule: there is no "softmax"' --rule softmax
    refused '--form: there is no "fast"' --form fast
    refused '--isa: there is no "mmx"' --isa mmx
    refused '--format: there is no "xml"' --format xml
    refused '--filter: "(" is no regular expression' --filter '('
    refused 'nothing matches' --filter nothing-of-this-name
    refused 'nothing matches; not available: --variant favor' --variant favor --decay channel
    refused 'nothing matches' --variant retnet --heads 4 --q-heads 3
    refused 'compare takes two files' compare one.json
    refused '' compare "$work/none.json" "$work/none.json"
}

# ---- what is printed -----------------------------------------------------------------------------

json_parses() {
    cp "$work/stdout" "$work/tiny.json"
    prints '"machine"' '"rows"' '"ns_per_token_head"' '"floor_share"' '"speedup_plain"' '"error"'
    ! command -v python3 > /dev/null || python3 - "$work/tiny.json" 2>&1 <<'end' | tail -n 1
import json, sys
data = json.load(open(sys.argv[1]))
names = {row["variant"] for row in data["rows"]}
assert {"retnet", "gated-deltanet", "favor", "plain-loop", "softmax"} <= names, names
for row in data["rows"]:
    assert 0 < row["floor_share"] <= 1.03 and not row["failed"] and row["samples"] == 3, row
    assert row["ns_per_token_head"] <= row["ns_per_token_head_median"], row
    assert abs(row["floor_ns"] / row["ns_per_token_head"] / row["floor_share"] - 1) < 1e-6, row
end
}

csv_is_even() {
    awk -F , 'NR == 1 { n = NF } NF != n { print "line " NR " has " NF " fields;" }
        END { if (NR < 20) print NR " lines;" }' "$work/stdout"
    rows_match '--variant' 20
    sed 's/.*,--/--/' "$work/rows" > "$work/options"
}

svg_is_whole() {
    head -n 1 "$work/plot.svg" | grep -q '<svg\|<?xml' || echo "does not begin as SVG;"
    tail -n 1 "$work/plot.svg" | grep -q '</svg>' || echo "does not end as SVG;"
    ! command -v python3 > /dev/null || python3 -c \
        'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$work/plot.svg" 2>&1 |
        tail -n 1
}

# The plot that a README shows: all lines, all lengths.
svg_is_for_a_readme() {
    svg_is_whole
    for text in retnet gla favor gated-deltanet softmax 'plain-loop retnet' 'four-sweep retnet'; do
        grep -q ">$text</text>" "$work/plot.svg" || echo "has no line for $text;"
    done
    for tokens in 64 128 1024 8192; do
        grep -q ">$tokens</text>" "$work/plot.svg" || echo "has no T = $tokens;"
    done
}

test_formats() {
    runs 'the table' 'prints cpu peak gated-deltanet plain-loop' --tokens 64 $tiny
    runs 'Markdown' 'prints |--: gated-deltanet plain-loop' --tokens 64 $tiny --format md
    runs 'JSON' json_parses --tokens 64 $tiny --format json
    runs 'CSV' csv_is_even --tokens 64 $tiny --format csv
    runs 'a plot' svg_is_whole --tokens 16,32,64 --variant gla,softmax $tiny \
        --plot "$work/plot.svg"
    runs 'a plot for a README' svg_is_for_a_readme --dims 16 --heads 1 --reps 1 \
        --plot "$work/plot.svg"
    runs 'help' 'prints --variant --min-time compare' sweep --help
    runs 'list' 'prints retnet plain-loop chunkwise scalar' list
    name='a plot that cannot be written'
    wanted "$name" || return 0
    launch --tokens 64 $tiny --plot "$work/none/plot.svg"
    verdict "$name" "$(expects 1 1)"
}

# A row's options ask for that row and no other. Names of machines and times differ.
test_options() {
    wanted 'options' || return 0
    "$bench" --variant all --baselines all --form all --layout all --decay token --gates strong \
        --state all --tokens 64 --heads 2 --q-heads 4 --batch 2 --chunk 0,16 --features 32 \
        --dims 16x8 --reps 1 --format csv 2> "$work/stderr" | tail -n +2 | sed 's/.*,--/--/' |
        awk 'NR % 18 == 1' >> "$work/options"
    while read -r options; do
        launch $options --reps 1 --format csv
        problem=$(expects 0 0)
        [ "$(sed 's/.*,--/--/' "$work/stdout" | tail -n +2)" = "$options" ] ||
            problem="$problem other rows: $(tail -n +2 "$work/stdout" | head -n 2)"
        verdict "options $options" "$problem"
    done < "$work/options"
}

# ---- modes ---------------------------------------------------------------------------------------

all_are_right() {
    rows_match ',[0-9.]+e-[01][0-9],false,--' "$1"
}

# Steps have a speed-up over the plain loop, and their states are in a level of the machine.
steps_are_whole() {
    cp "$work/stdout" "$work/steps.json"
    ! command -v python3 > /dev/null || python3 - "$work/steps.json" "$@" 2>&1 <<'end' | tail -n 1
import json, sys
data = json.load(open(sys.argv[1]))
rows = data["rows"]
levels = data["machine"]["levels"]
bandwidth = {level["level"]: level["write_gbps"] for level in levels}
assert len(rows) == int(sys.argv[2]), len(rows)
assert sys.argv[3] in ("any", ",".join(sorted({row["level"] for row in rows}))), rows
for row in rows:
    bytes = 4 * row["dim_k"] * row["dim_v"] * row["heads"] * row["batch"]
    holds = [level["level"] for level in levels if bytes <= 2 * level["bytes"]] + ["memory"]
    assert row["level"] == holds[0], (row, bytes)
    assert row["speedup_plain"] > 0 and not row["failed"] and row["error"] < 1e-6, row
    state = 8 * row["dim_k"] * row["dim_v"] / row["ns_per_token_head"]
    assert state < row["gbps"] < 1.2 * state, row
    share = row["gbps"] / bandwidth[row["level"]]
    assert 0 < row["level_share"] < 1.01 * share and row["floor_share"] <= 1.03, row
assert {row["layout"] for row in rows if row["variant"] == "four-sweep"} == {"vk"}
end
}

# What stands below the table follows from it: the times, and where their lines cross.
crossover_is_right() {
    awk '/^T = / { T = $3 + 0; at[n++] = T }
        $1 == "elu" { elu[T] = $5 }
        $1 == "softmax" { softmax[T] = $4 }
        / elu chunkwise .*heads=/ {
            found = 1
            for (i = 0; i < n; i++) {
                ratio = softmax[at[i]] / elu[at[i]] / $(i + 2)
                if (ratio < 0.97 || ratio > 1.03) print "ratio at T = " at[i] ": " $(i + 2) ";"
            }
            for (i = 1; i < n; i++) {
                a = softmax[at[i - 1]] - elu[at[i - 1]]
                b = softmax[at[i]] - elu[at[i]]
                if (a <= 0 && b > 0) T = at[i - 1] + (at[i] - at[i - 1]) * a / (a - b)
                if (a <= 0 && b > 0 && ($1 < 0.97 * T || $1 > 1.03 * T)) print $1 " for " T ";"
                crossed += a <= 0 && b > 0
            }
        }
        END { if (!found || crossed != 1) print "no crossover;" }' "$work/stdout"
}

sweep_is_told() {
    prints 'LA_AUTO takes' 'recurrent' 'LA_AUTO is at most 5 %' 'of 2 rows'
    grep -qE '^ +4 +(recurrent|chunkwise [a-z0-9]+|parallel) +[0-9.]+ +[a-z]' "$work/stdout" ||
        echo "no line for T = 4;"
}

scale_is_told() {
    prints 'speed-up over one thread'
    lines=$(grep -cE '^ +[0-9.]+ +[0-9.]+  same   [a-z-]+ chunkwise .*heads=2' "$work/stdout")
    [ "$lines" -eq 3 ] || echo "$lines lines with the same bits, not 3;"
}

test_modes() {
    runs 'check: forms' 'all_are_right 80' check --tokens 1,40 --dims 24x16 --isa all --format csv
    runs 'check: heads' 'all_are_right 80' check --tokens 40 --dims 16x24 --form all --chunk 0,7 \
        --q-heads 2,8 --k-heads 2 --batch 2 --layout all --format csv
    runs 'check: gates' 'all_are_right 80' check --tokens 40 --dims 16 --form all --chunk 0,7 \
        --decay all --gates strong --variant all --baselines all --format csv
    runs 'check: no state' 'all_are_right 80' check --tokens 1,3,40 --dims 24x16 --state none \
        --baselines all --chunk 0,7 --format csv
    runs 'check: steps' 'all_are_right 80' check --tokens 1,3 --dims 17x5 --decay all --form auto \
        --variant all --baselines all --q-heads 8 --format csv
    runs 'check: threads' 'all_are_right 8' check --tokens 2,40 --dims 48 --threads 2 --format csv
    runs 'sweep' sweep_is_told sweep --tokens 4,32 --variant retnet $tiny
    runs 'decode' 'steps_are_whole 36 any' decode --batch 1,8,250 --dims 32 --heads 4 --reps 3 \
        --check --format json
    runs 'decode: levels' 'steps_are_whole 9 L2,L3,memory' decode --variant retnet --reps 1 \
        --check --baselines plain-loop,four-sweep --layout vk --format json
    runs 'crossovers' crossover_is_right --variant elu,softmax --tokens 32,1024,2048 --dims 64 \
        --heads 2
    runs 'a filter' 'rows_match favor 1' --filter 'favor.*tokens 64' $tiny --format csv
    runs 'compare' 'prints retnet' compare "$work/tiny.json" "$work/tiny.json"
    runs 'scale' scale_is_told scale --tokens 64 --threads 1,2 $tiny
}

# ---- wrong rows ----------------------------------------------------------------------------------

# The bench with a plain loop that is off by 0.1 % of the usual size in one element, or one head.
build_wrong() {
    cat > "$work/wrong.c" <<'end'
#include "bench.h"
#include <math.h>
#include <stdlib.h>
bench_run __real_bench_run_plain_loop, __wrap_bench_run_plain_loop;
void __wrap_bench_run_plain_loop(const bench_row *row, const bench_data *data, int64_t thread) {
    const char *what = getenv("WRONG");
    const int64_t width = row->heads * row->dim_v, n = row->batch * row->tokens * width;
    double sum = 0.0;
    int64_t i;
    __real_bench_run_plain_loop(row, data, thread);
    for (i = 0; i < n; ++i) sum += (double)data->out[i] * (double)data->out[i];
    for (i = 0; i < n; ++i)
        if (what[0] == 'h' ? i % width >= width - row->dim_v : i == atoi(what))
            data->out[i] += 1e-3f * (float)sqrt(sum / (double)n);
}
end
    ${CC:-cc} -Iinclude -Ibench -o "$work/wrong" "$work/wrong.c" -Wl,--wrap=bench_run_plain_loop \
        "${BUILD:-build}"/obj/bench/*.o $(pkg-config --libs openblas 2> /dev/null) -lm -pthread \
        2> "$work/wrong.log"
}

# finds WRONG FAILED NAME: all rows, three of each variant, have this error; FAILED of them fail.
finds() {
    WRONG=$1 "$work/wrong" check --variant plain-loop --rule all --tokens 1,100,1000 --dims 64 \
        --format csv > "$work/stdout" 2> "$work/stderr"
    status=$?
    flag=$([ "$2" -eq 0 ] && echo false || echo true)
    verdict "$3" "$(expects $(($2 > 0)) "$2"; rows_match ",$flag,--variant plain-loop" $all)"
}

test_wrong() {
    wanted 'check: wrong' || return 0
    if ! build_wrong; then
        echo "skipped: the check of wrong rows, which this linker or these objects do not allow"
        return 0
    fi
    all=$((3 * $("$bench" list | grep -c '^variant ')))
    finds -1 0 'check: wrong: nothing'
    finds 0 $all 'check: wrong: the first element'
    finds 70 $all 'check: wrong: an element'
    finds head $all 'check: wrong: a head'
}

test_refusals
test_formats
test_options
test_modes
test_wrong

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
