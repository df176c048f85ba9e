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
passed=0
failed=0
tiny='--dims 16 --heads 2 --reps 3'

rm -rf "$work"
mkdir -p "$work" || exit 1

# ---- the harness ---------------------------------------------------------------------------------

# wanted NAME: does the filter let this test through?
wanted() {
    case $1 in *"$filter"*) return 0 ;; *) return 1 ;; esac
}

# verdict NAME PROBLEM: passed if there is no problem.
verdict() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $1: $2"
    fi
}

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

test_formats() {
    runs 'the table' 'prints cpu peak gated-deltanet plain-loop' --tokens 64 $tiny
    runs 'Markdown' 'prints |--: gated-deltanet plain-loop' --tokens 64 $tiny --format md
    runs 'JSON' json_parses --tokens 64 $tiny --format json
    runs 'CSV' csv_is_even --tokens 64 $tiny --format csv
    runs 'a plot' svg_is_whole --tokens 16,32,64 --variant gla,softmax $tiny \
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
        --tokens 64 --heads 2 --q-heads 4 --batch 2 --chunk 0,16 --features 32 --dims 16x8 \
        --reps 1 --format csv 2> "$work/stderr" | tail -n +2 | sed 's/.*,--/--/' |
        awk 'NR % 9 == 1' >> "$work/options"
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

test_modes() {
    runs 'check: forms' 'all_are_right 80' check --tokens 1,40 --dims 24x16 --isa all --format csv
    runs 'check: heads' 'all_are_right 80' check --tokens 40 --dims 16x24 --form all --chunk 0,7 \
        --q-heads 2,8 --k-heads 2 --batch 2 --layout all --format csv
    runs 'check: gates' 'all_are_right 80' check --tokens 40 --dims 16 --form all --chunk 0,7 \
        --decay all --gates strong --variant all --baselines all --format csv
    runs 'check: threads' 'all_are_right 8' check --tokens 2,40 --dims 48 --threads 2 --format csv
    runs 'sweep' 'prints auto: chunkwise' sweep --tokens 4,32 --variant retnet $tiny
    runs 'decode' 'rows_match ^(retnet|gla|gated-deltanet), 6' decode --batch 1 $tiny --format csv
    runs 'a filter' 'rows_match favor 1' --filter 'favor.*tokens 64' $tiny --format csv
    runs 'compare' 'prints retnet' compare "$work/tiny.json" "$work/tiny.json"
    runs 'scale' 'prints the same bits' scale --tokens 64 --threads 1,2 $tiny
    ! grep -q 'OTHER BITS' "$work/stdout" || verdict 'scale' 'other bits'
}

test_refusals
test_formats
test_options
test_modes

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
