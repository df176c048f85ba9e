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
attention=softmax,sigmoid,infini,infini-delta,linformer
synthesizers=synthesizer-d,synthesizer-fd,synthesizer-r,synthesizer-fr
extras=$attention,$synthesizers,rwkv4,hgrn

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
    refused '--rule: there is no "hgrn"' --rule hgrn
    refused '--baselines: there is no "synthesizer"' --baselines synthesizer
    refused '--form: there is no "fast"' --form fast
    refused '--isa: there is no "mmx"' --isa mmx
    refused '--format: there is no "xml"' --format xml
    refused '--filter: "(" is no regular expression' --filter '('
    refused 'nothing matches' --filter nothing-of-this-name
    refused 'nothing matches; not available: --variant favor' --variant favor --decay channel
    refused 'nothing matches' --variant retnet --heads 4 --q-heads 3
    refused 'nothing matches; not available: --variant infini-d' --variant infini-delta --k-heads 3
    refused 'nothing matches; not available: --variant synthesizer-d' --variant synthesizer-d \
        --heads 2 --q-heads 4
    refused 'nothing matches; not available: --variant synthesizer-r' --variant synthesizer-r \
        --tokens 20000
    refused 'nothing matches; not available: --variant hgrn' --variant hgrn --heads 1024 --dims 4096
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
assert not {"sigmoid", "infini", "linformer", "synthesizer-r", "rwkv4", "hgrn"} & names, names
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

# Each has a line of its own, and no other has its colour, dashes and marker.
svg_has_extras() {
    svg_is_whole
    for text in $(echo "$extras" | tr , ' '); do
        grep -qE ">$text( [^<]*)?<" "$work/plot.svg" || echo "has no line for $text;"
    done
    awk '/^<g class=.c/ { color = $2 } /^<polyline/ { dashes = $2 } /^<use/ { marker = $2 }
        /^<\/g>/ && marker { print color, dashes, marker; marker = "" }' "$work/plot.svg" |
        sort > "$work/lines"
    [ "$(uniq "$work/lines" | wc -l)" -eq 11 ] || echo "not 11 looks: $(uniq -d "$work/lines")"
}

test_formats() {
    runs 'the table' 'prints cpu peak gated-deltanet plain-loop' --tokens 64 $tiny
    runs 'Markdown' 'prints |--: gated-deltanet plain-loop' --tokens 64 $tiny --format md
    runs 'JSON' json_parses --tokens 64 $tiny --format json
    runs 'CSV' csv_is_even --tokens 64 $tiny --format csv
    runs 'a plot' svg_is_whole --tokens 16,32,64 --variant gla,softmax $tiny \
        --plot "$work/plot.svg"
    runs 'a plot of extras' svg_has_extras --tokens 16,32 --variant "$extras" $tiny \
        --plot "$work/plot.svg"
    runs 'a plot for a README' svg_is_for_a_readme --dims 16 --heads 1 --reps 1 \
        --plot "$work/plot.svg"
    runs 'help' 'prints --variant --min-time compare' sweep --help
    runs 'list' "prints retnet plain-loop chunkwise scalar $(echo "$extras" | tr , ' ')" list
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
        awk 'NR % 18 == 1 || /^--variant (infini-delta|linformer|hgrn) .*--state/' \
            >> "$work/options"
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
    rows_match ',(0|[0-9.]+e-[01][0-9]),false,--' "$1"
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

# What floors count, worked out here token by token.
extras_are_counted() {
    cp "$work/stdout" "$work/extras.json"
    ! command -v python3 > /dev/null || python3 - "$work/extras.json" 2>&1 <<'end' | tail -n 1
import json, sys
T, H, dk, dv, k, N, a, b = 40, 2, 16, 8, 6, 16, 6, 7
rows = {row["variant"]: row for row in json.load(open(sys.argv[1]))["rows"]}
pairs = sum(t + 1 for t in range(T))
near = sum(t % N + 1 for t in range(T))
far = sum(min(2 * dk * dv, 2 * (t // N * N) * (dk + dv)) for t in range(T))
infini = 2 * near * (dk + dv) + far + T * 2 * dk * dv - dk * dv
qkvo, xvo, kvo = 2 * dk + 2 * dv, dk + 2 * dv, 3 * dv
want = {  # flops of a head; floats of tensors of a token, of weights of all, of a state
    "softmax": (2 * pairs * (dk + dv), qkvo, 0, 0),
    "sigmoid": (2 * pairs * (dk + dv), qkvo, 0, 0),
    "infini": (infini, qkvo, H, dk * dv + dk),
    "infini-delta": (infini + far, qkvo, H, dk * dv + dk),
    "linformer": (T * 4 * k * (dk + dv), qkvo, 2 * T * k, 0),
    "synthesizer-d": (2 * T * dk * k + 2 * pairs * (k + dv), xvo, k * dk + k + T * k + T, 0),
    "synthesizer-fd": (2 * T * dk * (a + b) + pairs * (1 + 2 * dv), xvo, (a + b) * (dk + 1), 0),
    "synthesizer-r": (2 * pairs * dv, 2 * dv, pairs, 0),
    "synthesizer-fr": (2 * pairs * (k / H + dv), 2 * dv, 2 * T * k, 0),
    "rwkv4": (10 * (T - 1) * dv, kvo, 2 * H * dv, 3 * dv),
    "hgrn": (2 * (T - 1) * dv, kvo, 0, dv),
}
assert rows.keys() == want.keys(), rows.keys()
for name, (flops, tensors, weights, state) in want.items():
    row = rows[name]
    ns = row["ns_per_token_head"]
    bytes = 4 * (tensors + weights / H / T + state / T)
    assert abs(row["gflops"] * ns * T / flops - 1) < 1e-6, (row, flops / T)
    assert abs(row["gbps"] * ns / bytes - 1) < 1e-6, (row, bytes)
    assert 0 < row["floor_share"] <= 1.03 and row["speedup_plain"] is None, row
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
    lines=$(grep -cE '^ +[0-9.]+ +[0-9.]+  same   [a-z0-9-]+ .*heads=2' "$work/stdout")
    [ "$lines" -eq "$1" ] || echo "$lines lines with the same bits, not $1;"
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
    runs 'check: extras' 'all_are_right 90' check --variant "$extras" --tokens 2,40 --dims 24x16 \
        --chunk 0,7 --features 6 --state all --format csv
    runs 'check: extras: heads' 'all_are_right 10' check --variant "$attention" --tokens 40 \
        --dims 16x24 --heads 4 --q-heads 2,8 --k-heads 2 --batch 2 --chunk 7 --format csv
    runs 'check: extras: threads' 'all_are_right 22' check --variant "$extras" --tokens 3,40 \
        --dims 48 --threads 2 --batch 2 --gates strong --format csv
    runs 'extras: floors' extras_are_counted --variant "$extras" --tokens 40 --dims 16x8 \
        --heads 2 --reps 3 --features 6 --chunk 16 --format json
    runs 'extras: scale' 'scale_is_told 11' scale --variant "$extras" --tokens 40 \
        --threads 1,2 --dims 128 --heads 2 --reps 3
    runs 'sweep' sweep_is_told sweep --tokens 4,32 --variant retnet $tiny
    runs 'decode' 'steps_are_whole 36 any' decode --batch 1,8,250 --dims 32 --heads 4 --reps 3 \
        --check --format json
    runs 'decode: levels' 'steps_are_whole 9 L2,L3,memory' decode --variant retnet --reps 1 \
        --check --baselines plain-loop,four-sweep --layout vk --format json
    runs 'crossovers' crossover_is_right --variant elu,softmax --tokens 32,1024,2048 --dims 64 \
        --heads 2
    runs 'a filter' 'rows_match favor 1' --filter 'favor.*tokens 64' $tiny --format csv
    runs 'compare' 'prints retnet' compare "$work/tiny.json" "$work/tiny.json"
    runs 'scale' 'scale_is_told 3' scale --tokens 64 --threads 1,2 $tiny
}

# ---- wrong rows ----------------------------------------------------------------------------------

# The bench with an oracle that is off by 0.1 % of the usual size in one element, or one head. (What
# it has no number for, which is one token of many where there is no state, is zero.)
build_wrong() {
    cat > "$work/wrong.c" <<'end'
#include "bench.h"
#include <math.h>
#include <stdlib.h>
void __real_bench_oracle(const bench_row *, const bench_data *, int, double *, double *);
void __wrap_bench_oracle(const bench_row *row, const bench_data *data, int passes, double *out,
                         double *size) {
    const char *what = getenv("WRONG");
    const int64_t width = row->heads * row->dim_v, n = row->batch * row->tokens * width;
    double sum = 0.0;
    int64_t i;
    __real_bench_oracle(row, data, passes, out, size);
    for (i = 0; i < n; ++i) sum += out[i] * out[i];
    for (i = 0; i < n; ++i)
        if (what[0] == 'h' ? i % width >= width - row->dim_v : i == atoi(what))
            out[i] += 1e-3 * sqrt(sum / (double)n);
}
end
    ${CC:-cc} -Iinclude -Ibench -o "$work/wrong" "$work/wrong.c" -Wl,--wrap=bench_oracle \
        "${BUILD:-build}"/obj/bench/*.o $(pkg-config --libs openblas 2> /dev/null) -lm -pthread \
        2> "$work/wrong.log"
}

# finds WRONG FAILED NAME ROWS...: all rows have this error; FAILED of them fail.
finds() {
    wrong=$1 failing=$2 name=$3
    shift 3
    WRONG=$wrong "$work/wrong" check "$@" --dims 64 --format csv > "$work/stdout" 2> "$work/stderr"
    status=$?
    flag=$([ "$failing" -eq 0 ] && echo false || echo true)
    verdict "$name" "$(expects $((failing > 0)) "$failing"; rows_match ",$flag,--variant" "$all")"
}

# finds_all NAME COUNT ROWS...: the COUNT rows are right, and each of these errors fails them all.
finds_all() {
    rows=$1 all=$2
    shift 2
    finds -1 0 "$rows: nothing" "$@"
    finds 0 "$all" "$rows: the first element" "$@"
    finds 70 "$all" "$rows: an element" "$@"
    finds head "$all" "$rows: a head" "$@"
}

test_wrong() {
    wanted 'check: wrong' || return 0
    if ! build_wrong; then
        echo "skipped: the check of wrong rows, which this linker or these objects do not allow"
        return 0
    fi
    variants=$("$bench" list | grep -c '^variant ')
    finds_all 'check: wrong' $((3 * variants)) --variant plain-loop --rule all --tokens 1,100,1000
    finds_all 'check: wrong: extras' 33 --variant "$extras" --isa scalar --chunk 0 \
        --tokens 1,100,1000
}

test_refusals
test_formats
test_options
test_modes
test_wrong

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
