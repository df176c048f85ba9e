#!/bin/sh
# Black-box tests of build/attend and build/text_memory. Files go to $BUILD/programs.
#     BUILD=build sh tests/programs.sh [FILTER]      FILTER: only names that contain it
LC_ALL=C
export LC_ALL
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
attend=$build/attend
text_memory=$build/text_memory
golden=tests/golden
work=$build/programs
filter=$1

rm -rf "$work"
mkdir -p "$work/in" "$work/out" || exit 1

# ---- the harness ---------------------------------------------------------------------------------

. tests/harness.sh

# launch PROGRAM ARGUMENT...: leaves $status, $work/stdout and $work/stderr.
launch() {
    "$@" > "$work/stdout" 2> "$work/stderr"
    status=$?
}

said() {
    head -c 300 "$work/stderr" | tr '\n' ' '
}

# one_line TEXT: standard error is exactly one line and contains TEXT.
one_line() {
    [ "$(wc -l < "$work/stderr")" -eq 1 ] && grep -qF -e "$1" "$work/stderr"
}

leftovers() {
    find "$work/out" -type f
}

# refused NAME OPTION ARGUMENT...: attend says one line that names OPTION, exits with 2, and leaves
# no file behind.
refused() {
    name="refuses $1" option=$2
    shift 2
    wanted "$name" || return 0
    rm -f "$work"/out/*
    launch "$attend" "$@"
    problem=
    [ $status -eq 2 ] || problem="status $status, not 2: $(said)"
    one_line "attend: $option: " || problem="$problem; does not say one line on $option: $(said)"
    [ ! -s "$work/stdout" ] || problem="$problem; standard output is not empty"
    [ -z "$(leftovers)" ] || problem="$problem; leaves $(leftovers)"
    verdict "$name" "$problem"
}

# ends NAME STATUS ARGUMENT...: attend ends with STATUS; 0: silent on standard error; 1: one line.
ends() {
    name=$1 expected=$2
    shift 2
    wanted "$name" || return 0
    rm -f "$work"/out/*
    launch "$attend" "$@"
    problem=
    [ $status -eq "$expected" ] || problem="status $status, not $expected: $(said)"
    if [ "$expected" -eq 0 ]; then
        [ ! -s "$work/stderr" ] || problem="$problem; says $(said)"
    else
        one_line 'attend: --compare: ' || problem="$problem; not one line on --compare: $(said)"
    fi
    [ -s "$work/out/o.npy" ] || problem="$problem; no output file"
    verdict "$name" "$problem"
}

# ---- .npy files, from the shell ------------------------------------------------------------------

# npy DESCR FORTRAN_ORDER SHAPE < bytes in the notation of printf
npy() {
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '$1', 'fortran_order': $2, 'shape': $3, }"
    # shellcheck disable=SC2059
    printf "$(cat)"
}

# Decimal numbers (also inf, -inf, nan), one per line, to little-endian float32 for npy.
float32() {
    awk '
        function bytes(low, high) {
            printf "\\%03o\\%03o", low % 256, int(low / 256)
            printf "\\%03o\\%03o", high % 256, int(high / 256)
        }
        $1 == "nan" { bytes(0, 32704); next }
        $1 == "inf" || $1 == "-inf" { bytes(0, $1 == "inf" ? 32640 : 65408); next }
        {
            x = $1 < 0 ? -$1 : $1 + 0
            for (e = 127; x >= 2 && e < 254; e++) x /= 2
            for (; x < 1 && e > 1; e--) x *= 2
            m = int((x < 1 ? x : x - 1) * 8388608 + 0.5)
            if (x < 1) e = 0
            m += e * 8388608
            bytes(m % 65536, int(m / 65536) + ($1 < 0 ? 32768 : 0))
        }'
}

# random COUNT SEED LOW HIGH
random() {
    awk -v n="$1" -v s="$2" -v low="$3" -v high="$4" 'BEGIN {
        for (i = 0; i < n; i++) {
            s = (s * 16807 + 11) % 2147483647
            print low + (high - low) * s / 2147483647
        }
    }'
}

# array FILE SHAPE SEED LOW HIGH: random float32 numbers; SHAPE as in "(1, 2, 3)".
array() {
    random "$(count "$2")" "$3" "$4" "$5" | float32 | npy '<f4' False "$2" > "$1"
}

# count SHAPE: its elements; 0 if there are more than a test should write.
count() {
    echo "$1" | tr -d '() ' | tr ',' '\n' | awk '
        BEGIN { n = 1 }
        NF { n *= $1 }
        END { print (n < 0 || n > 1000) ? 0 : n }'
}

# numbers FILE: the elements of a float file, one per line; none where there is no file.
numbers() {
    [ -f "$1" ] || return 0
    # shellcheck disable=SC2046
    set -- "$1" $(od -An -v -tu1 -j8 -N2 "$1")
    offset=$((10 + $2 + 256 * $3))
    case $(head -c "$offset" "$1") in *f8*) type=f8 ;; *) type=f4 ;; esac
    od -An -v -t$type -j$offset "$1" | awk '{ for (i = 1; i <= NF; i++) print $i }'
}

# close HAVE WANT TOLERANCE: says what is wrong where |have - want| > tolerance |want|.
close() {
    numbers "$1" > "$work/have"
    numbers "$2" > "$work/want"
    paste "$work/have" "$work/want" | awk -v tolerance="$3" '
        NF != 2 || $1 != $1 + 0 || $2 != $2 + 0 { bad++ }
        { d += ($1 - $2) ^ 2; w += $2 ^ 2 }
        END {
            if (bad || !NR) print "not the same number of numbers"
            else if (!(sqrt(d) <= tolerance * sqrt(w))) print "relative error " sqrt(d / w)
        }'
}

# ---- golden cases: every form, every instruction set ---------------------------------------------

# The instruction sets that the library has here. scalar must be among them.
available() {
    for isa in scalar avx2 avx512 neon; do
        "$attend" --variant deltanet --isa $isa --q $golden/delta_01/q.npy \
            --k $golden/delta_01/k.npy --v $golden/delta_01/v.npy --out "$work/out/o.npy" \
            2> /dev/null && printf '%s ' $isa
    done
}

# The log decay of a case, where its files hold it in another form.
log_decay() {
    case $1 in
    retention_*)
        numbers "$golden/$1/gamma.npy" | awk '{ printf "%.17g\n", log($1) }' > "$work/g"
        float32 < "$work/g" | npy '<f4' False "($(wc -l < "$work/g" | tr -d ' '),)" ;;
    lightning_*)
        numbers "$golden/$1/slope.npy" | awk '{ printf "%.17g\n", -$1 }' > "$work/g"
        float32 < "$work/g" | npy '<f4' False "($(wc -l < "$work/g" | tr -d ' '),)" ;;
    mamba2_*) # A dt, of two heads
        { numbers "$golden/$1/A.npy"; numbers "$golden/$1/dt.npy"; } | awk '
            NR <= 2 { A[NR - 1] = $1; next }
            { printf "%.17g\n", A[(NR - 3) % 2] * $1 }' > "$work/g"
        float32 < "$work/g" | npy '<f4' False \
            "($(sed -n 's/^B=//p' "$golden/$1/case.txt"), $(sed -n 's/^T=//p' \
                "$golden/$1/case.txt"), 2)" ;;
    *) # -exp(A_log) softplus(a + dt_bias)
        { numbers "$golden/$1/A_log.npy"; numbers "$golden/$1/dt_bias.npy"
          numbers "$golden/$1/a.npy"; } | awk '
            NR <= 2 { A[NR - 1] = exp($1); next }
            NR <= 4 { bias[NR - 3] = $1; next }
            {
                h = (NR - 5) % 2
                x = $1 + bias[h]
                printf "%.17g\n", -A[h] * (x > 30 ? x : log(1 + exp(x)))
            }' | float32 | npy '<f4' False '(1, 70, 2)' ;;
    esac > "$work/in/log_decay.npy"
    echo "$work/in/log_decay.npy"
}

# projections CASE: the name of a file with its W [H,dk,m] as [H,m,dk].
projections() {
    sizes=$(awk -F = '$1 == "H" { H = $2 } $1 == "dk" { n = $2 } $1 == "feature_dim" { m = $2 / 2 }
        END { print H ", " m ", " n }' "$golden/$1/case.txt")
    numbers "$golden/$1/W.npy" | awk -v sizes="$sizes" '{ x[NR - 1] = $1 }
        END {
            split(sizes, s, ", ")
            for (h = 0; h < s[1]; h++)
                for (j = 0; j < s[2]; j++)
                    for (k = 0; k < s[3]; k++) print x[(h * s[3] + k) * s[2] + j]
        }' | tensor "$1" "($sizes)"
    echo "$i/$1.npy"
}

# case_options CASE: the options of its files.
case_options() {
    f=$golden/$1
    case $1 in
    retention_*) echo '--variant retnet' ;;
    gdn_*) echo '--variant gated-deltanet' ;;
    mamba2_*)
        echo "--variant mamba2 --q $f/C.npy --k $f/Bm.npy --v $f/x.npy --beta $f/dt.npy"
        echo "--log-decay $(log_decay "$1")" ;;
    onnx_05) echo '--variant kda' ;;
    onnx_10) echo '--variant fwp' ;;
    linear_elu_*) echo '--variant elu' ;;
    favor_*) echo "--variant favor --projection $f/W.npy" ;;
    dpfp_*) echo '--variant dpfp' ;;
    based_*) echo '--variant based' ;;
    hedgehog_*) echo "--variant hedgehog --projection $(projections "$1") --feature-eps 1e-12" ;;
    cosformer_*) echo '--variant cosformer --position 1' ;; # they count from 1
    lightning_* | gla_* | kda_*) echo "--variant ${1%_*}" ;;
    *) echo '--variant deltanet' ;;
    esac
    for input in q k v beta; do
        [ ! -f "$f/$input.npy" ] || echo "--$input $f/$input.npy"
    done
    [ ! -f "$f/lengths.npy" ] || echo "--key-lengths $f/lengths.npy"
    [ ! -f "$f/S0.npy" ] || echo "--state-in $f/S0.npy"
    [ ! -f "$f/z0.npy" ] || echo "--norm-in $f/z0.npy"
    for input in g gk; do
        [ ! -f "$f/$input.npy" ] || echo "--log-decay $f/$input.npy"
    done
    if [ -f "$f/gamma.npy" ] || [ -f "$f/A_log.npy" ] || [ -f "$f/slope.npy" ]; then
        echo "--log-decay $(log_decay "$1")"
    fi
    # The scale of favor is in what it does to q and k: dk^-1/4.
    sed -n '
        /^qk_l2norm=yes/s/.*/--l2norm/p
        /^causal=no/s/.*/--bidirectional/p
        /^M=/s/M=/--horizon /p
        /^eps=[^ ]* added/s/eps=\([^ ]*\) .*/--eps \1/p
        /^eps=[^ ]* clamp/s/eps=\([^ ]*\) .*/--eps \1 --eps-mode max/p
        /^kind=.*hyperbolic/s/.*/--favor-kernel hyperbolic/p
        /^kind=ReLU/s/.*/--favor-kernel relu/p
        /^activation=exp_dim/s/.*/--hedgehog-kernel exp/p
        /^nu=/s/nu=/--nu /p
        /^feature_eps=/s/feature_eps=/--feature-eps /p' "$f/case.txt"
    case $1 in
    favor_*) awk -F = '$1 == "dk" { printf "--scale %.17g\n", $2 ^ -0.5 }' "$f/case.txt" ;;
    *) sed -n 's/^scale=/--scale /p' "$f/case.txt" ;;
    esac
}

# golden_case CASE FORM ISA
golden_case() {
    name="$1 $2 $3" norm=
    wanted "$name" || return 0
    rm -f "$work"/out/*
    # The peer of the onnx cases computed in float32.
    case $1 in onnx*) tolerance=1e-5 ;; favor* | hedge*) tolerance=5e-6 ;; *) tolerance=2e-6 ;; esac
    [ ! -f "$golden/$1/zT.npy" ] || norm="--norm-out $work/out/zT.npy"
    # shellcheck disable=SC2086 # options and forms are lists of words
    launch "$attend" $options --form $2 --isa "$3" --out "$work/out/o.npy" \
        --state-out "$work/out/ST.npy" $norm --compare "$golden/$1/o.npy" --tolerance $tolerance
    problem=
    [ $status -eq 0 ] || problem="status $status: $(said)"
    for state in ST zT; do
        [ -z "$problem" ] && [ -f "$golden/$1/$state.npy" ] || continue
        problem=$(close "$work/out/$state.npy" "$golden/$1/$state.npy" $tolerance)
    done
    verdict "$name" "$problem"
}

# golden_cases FORMS CASE...: the case in each of the forms, with each instruction set.
golden_cases() {
    forms=$1
    shift
    for case in "$@"; do
        [ -f "$golden/$case/o.npy" ] || { verdict "$case" 'no such case'; continue; }
        options=$(case_options "$case")
        golden_case "$case" auto auto
        for isa in $isas; do
            echo "$forms" | tr ',' '\n' > "$work/forms"
            while read -r form; do golden_case "$case" "$form" "$isa"; done < "$work/forms"
        done
    done
}

test_golden() {
    isas=$(available)
    case $isas in scalar*) ;; *) verdict 'scalar is available' "only: $isas" ;; esac
    # shellcheck disable=SC2046
    golden_cases 'auto,parallel,recurrent,chunkwise,chunkwise --chunk 1,chunkwise --chunk 64' \
        $(cd "$golden" && echo retention_[0-9]* gdn_* delta_* onnx_02)
    golden_cases 'parallel,recurrent,chunkwise,chunkwise --chunk 7' \
        linear_elu_causal_02 linear_elu_causal_04 linear_elu_noncausal_03 \
        linear_elu_noncausal_04 favor_causal_02 favor_causal_04 favor_causal_05 \
        favor_noncausal_02 favor_noncausal_04 favor_noncausal_05 cosformer_causal_02 \
        cosformer_causal_04 cosformer_noncausal_04 cosformer_noncausal_05 lightning_02 \
        lightning_05 gla_02 gla_03 gla_05 kda_02 kda_03 kda_06 mamba2_01 mamba2_03 onnx_05 onnx_10 \
        dpfp_delta_02 dpfp_delta_03 based_02 based_03 hedgehog_02 hedgehog_03 hedgehog_04
}

# attention_case CASE ISA THREADS: softmax attention against its peer
attention_case() {
    name="$1 $2 $3 threads"
    wanted "$name" || return 0
    f=$golden/$1
    rm -f "$work"/out/*
    # shellcheck disable=SC2046 # options are a list of words
    launch "$attend" --variant softmax --q "$f/q.npy" --k "$f/k.npy" --v "$f/v.npy" --isa "$2" \
        --threads "$3" --out "$work/out/o.npy" --compare "$f/o.npy" --tolerance 1e-6 \
        $(sed -n 's/^scale=/--scale /p
            s/^window=/--window /p
            /^causal=no/s/.*/--bidirectional/p' "$f/case.txt")
    problem=
    [ $status -eq 0 ] || problem="status $status: $(said)"
    verdict "$name" "$problem"
}

# size CASE KEY
size() {
    sed -n "s/^$2=//p" "$golden/$1/case.txt"
}

# as_shape CASE ARRAY SHAPE: the name of a file with its numbers in this shape.
as_shape() {
    numbers "$golden/$1/$2.npy" | tensor "$1_$2" "$3"
    echo "$i/$1_$2.npy"
}

# The state that a case of Infini-attention begins with: M = 0 and z = 1/dk where none is given.
infini_state() {
    z="(1, $(size "$1" H), $(size "$1" dk))" M="${z%)}, $(size "$1" dv))"
    case $(size "$1" init) in
    given) echo "--state-in $(as_shape "$1" M0 "$M") --norm-in $(as_shape "$1" z0 "$z")" ;;
    default)
        B=$(size "$1" B)
        random $((B * $(count "$M"))) 1 0 0 | tensor M0 "($B, ${M#*, }"
        awk -v n=$((B * $(count "$z"))) -v dk="$(size "$1" dk)" \
            'BEGIN { while (n-- > 0) printf "%.17g\n", 1 / dk }' | tensor z0 "($B, ${z#*, }"
        echo "--state-in $i/M0.npy --norm-in $i/z0.npy" ;;
    esac
}

# transposed CASE ARRAY H ROWS COLUMNS: the name of a file with each head's matrix transposed.
transposed() {
    numbers "$golden/$1/$2.npy" | awk -v h="$3" -v n="$4" -v m="$5" '{ x[NR - 1] = $1 }
        END {
            for (i = 0; i < h; i++) for (j = 0; j < m; j++) for (k = 0; k < n; k++)
                print x[(i * n + k) * m + j]
        }' | tensor "$1_$2" "($3, $5, $4)"
    echo "$i/$1_$2.npy"
}

# mapped CASE: the name of a file with the values Wv x + bv.
mapped() {
    n=$(size "$1" dk)
    { numbers "$golden/$1/Wv.npy"; numbers "$golden/$1/bv.npy"; numbers "$golden/$1/x.npy"; } |
        awk -v n="$n" '
            NR <= n * n { W[NR - 1] = $1; next }
            NR <= n * n + n { b[NR - 1 - n * n] = $1; next }
            { x[c++] = $1 }
            c == n {
                for (i = 0; i < n; i++) {
                    y = b[i]
                    for (j = 0; j < n; j++) y += W[i * n + j] * x[j]
                    printf "%.17g\n", y
                }
                c = 0
            }' | tensor "$1_v" "($(size "$1" B), $(size "$1" T), 1, $n)"
    echo "$i/$1_v.npy"
}

# system_options CASE: those of its files, for the systems of LA_EXTRAS.
system_options() {
    f=$golden/$1
    case $1 in
    infini_*)
        echo "--variant infini --segment $(size "$1" segment) --update $(size "$1" update)"
        echo "--beta $f/beta.npy $(infini_state "$1")" ;;
    linformer_*) echo "--variant linformer --scale $(size "$1" scale) --E $f/E.npy" ;;
    synthesizer_dense_*)
        echo "--variant synthesizer --kind dense --q $f/x.npy"
        echo "--w1 $f/W1.npy --b1 $f/b1.npy --w2 $f/W2.npy --b2 $f/b2.npy" ;;
    synthesizer_factorised_dense_*)
        echo "--variant synthesizer --factorised --v $(mapped "$1") --q"
        as_shape "$1" x "($(size "$1" B), $(size "$1" T), 1, $(size "$1" dk))"
        echo "--w1 $f/Wa.npy --b1 $f/ba.npy --w2 $f/Wb.npy --b2 $f/bb.npy" ;;
    synthesizer_random_*) echo "--variant synthesizer --kind random --w1 $f/R.npy" ;;
    synthesizer_factorised_random_*)
        echo "--variant synthesizer --kind random --factorised --w1 $f/R1.npy --w2"
        transposed "$1" R2 "$(size "$1" H)" "$(size "$1" rank)" "$(size "$1" L)" ;;
    hgrn_*) echo "--variant hgrn --v $f/x.npy --log-decay $f/g.npy" ;;
    esac
    for input in q k v F; do
        [ ! -f "$f/$input.npy" ] || echo "--$input $f/$input.npy"
    done
    [ ! -f "$f/h0.npy" ] || echo "--state-in $f/h0.npy"
    case $1 in linformer_*) ;; *) [ "$(size "$1" causal)" = yes ] || echo --bidirectional ;; esac
}

# system_case CASE ISA THREADS: its outputs and, where it has them, its final states
system_case() {
    name="$1 $2 $3 threads"
    wanted "$name" || return 0
    rm -f "$work"/out/*
    states=
    for state in state:MT norm:zT state:hT; do
        [ ! -f "$golden/$1/${state#*:}.npy" ] ||
            states="$states --${state%:*}-out $work/out/${state#*:}.npy"
    done
    # shellcheck disable=SC2086 # options and states are lists of words
    launch "$attend" $options --isa "$2" --threads "$3" --out "$work/out/o.npy" $states \
        --compare "$golden/$1/o.npy" --tolerance 2e-6
    problem=
    [ $status -eq 0 ] || problem="status $status: $(said)"
    for state in MT zT hT; do
        [ -z "$problem" ] && [ -f "$golden/$1/$state.npy" ] || continue
        problem=$(close "$work/out/$state.npy" "$golden/$1/$state.npy" 2e-6)
    done
    verdict "$name" "$problem"
}

test_systems() {
    for case in $(cd "$golden" && echo infini_* linformer_* synthesizer_* hgrn_*); do
        options=$(system_options "$case")
        for isa in auto $isas; do system_case "$case" "$isa" 1; done
        system_case "$case" auto 3
    done
}

# RWKV-4 by its formula, in float64, of 5 tokens and 3 channels that begin with a state.
rwkv4_oracle() {
    { numbers "$i/sk.npy"; numbers "$i/sv.npy"; numbers "$i/sw.npy"; numbers "$i/su.npy"
      numbers "$i/sS.npy"; } | awk -v T=5 -v C=3 '
        { x[NR - 1] = $1 }
        END {
            w = 2 * T * C; u = w + C; S = u + C
            for (c = 0; c < C; c++) {
                a[c] = x[S + c] * exp(x[S + 2 * C + c])
                b[c] = x[S + C + c] * exp(x[S + 2 * C + c])
            }
            for (t = 0; t < T; t++) for (c = 0; c < C; c++) {
                k = x[t * C + c]; v = x[T * C + t * C + c]; e = exp(x[u + c] + k)
                printf "%.17g\n", (a[c] + e * v) / (b[c] + e)
                a[c] = exp(x[w + c]) * a[c] + exp(k) * v
                b[c] = exp(x[w + c]) * b[c] + exp(k)
            }
            for (c = 0; c < C; c++) printf "%.17g\n", a[c] / b[c] > "/dev/stderr"
        }' 2> "$work/ratio"
}

# scan_parts VARIANT OPTION...: two tokens, then three more that continue: the bits of all five.
scan_parts() {
    variant=$1 problem=
    shift
    name="carries the state in files: $variant"
    wanted "$name" || return 0
    for part in '2:' '3:--state-in '; do
        n=${part%%:*} in=${part#*:}
        # shellcheck disable=SC2046,SC2086
        launch "$attend" --variant "$variant" --v "$i/sv$n.npy" ${in:+$in$work/out/S2.npy} \
            --out "$work/out/o$n.npy" --state-out "$work/out/S$n.npy" \
            $(echo "$*" | sed "s/sk.npy/sk$n.npy/")
        [ $status -eq 0 ] || problem="$problem; status $status: $(said)"
    done
    launch "$attend" --variant "$variant" --v "$i/sv.npy" --out "$work/out/o.npy" \
        --state-out "$work/out/S.npy" "$@"
    { numbers "$work/out/o2.npy"; numbers "$work/out/o3.npy"; } > "$work/parts"
    numbers "$work/out/o.npy" | cmp -s - "$work/parts" || problem="$problem; outputs differ"
    verdict "$name" "$problem$(cmp "$work/out/S.npy" "$work/out/S3.npy" 2>&1)"
}

test_scans() {
    for isa in auto $isas; do
        name="rwkv4 $isa" problem=
        wanted "$name" || continue
        rwkv4_oracle | float32 | npy '<f4' False '(1, 5, 3)' > "$i/want.npy"
        # shellcheck disable=SC2086
        launch "$attend" $rwkv4 --isa "$isa" --state-in "$i/sS.npy" --compare "$i/want.npy" \
            --tolerance 2e-6 --state-out "$work/out/S.npy"
        [ $status -eq 0 ] || problem="status $status: $(said)"
        numbers "$work/out/S.npy" | awk '{ x[NR] = $1 }
            END { for (c = 1; c <= 3; c++) printf "%.9g\n", x[c] / x[c + 3] }' |
            tensor ratio '(3,)'
        tensor want_ratio '(3,)' < "$work/ratio"
        verdict "$name" "$problem$(close "$i/ratio.npy" "$i/want_ratio.npy" 2e-6)"
    done
    scan_parts rwkv4 --k "$i/sk.npy" --log-decay "$i/sw.npy" --bonus "$i/su.npy"
    scan_parts hgrn --log-decay "$i/sw.npy"
    name='a length of 2: hgrn'
    wanted "$name" || return 0
    # shellcheck disable=SC2086
    launch "$attend" $hgrn --lengths "$i/two.npy"
    numbers "$work/out/o.npy" | awk 'NR <= 6 && !$1 { print "token " NR " is 0" }
        NR > 6 && $1 { print "goes on" }' > "$work/beyond"
    verdict "$name" "$(said)$(head -n 1 "$work/beyond")"
}

# weights NAME EXPRESSION OPTION...: the output of token t in terms of a, b and c, the values of
# tokens 0, 1 and 2.
weights() {
    name=$1 program=$2
    shift 2
    wanted "$name" || return 0
    rm -f "$work"/out/*
    numbers "$i/v.npy" | awk "
        BEGIN { OFMT = \"%.9g\" }
        { v[NR] = \$1 }
        END { for (t = 0; t < 3; t++) for (j = 1; j <= 10; j++) {
            a = v[j]; b = v[10 + j]; c = v[20 + j]
            print $program
        } }" | float32 | npy '<f4' False '(1, 3, 2, 5)' > "$work/in/want.npy"
    # shellcheck disable=SC2086
    launch "$attend" "$@" $one --compare "$work/in/want.npy" --tolerance 1e-6
    problem=
    [ $status -eq 0 ] || problem="status $status: $(said)"
    verdict "$name" "$problem"
}

# logsums NAME EXPRESSION OPTION...: the ln of the sum of token t = 1 .. 3, of two heads.
logsums() {
    name="lse of $1" program=$2
    shift 2
    wanted "$name" || return 0
    launch "$attend" "$@" --lse-out "$work/out/lse.npy"
    awk "BEGIN {
        OFMT = \"%.9g\"
        for (t = 1; t <= 3; t++) for (h = 0; h < 2; h++) print $program
    }" |
        tensor want '(1, 3, 2)'
    verdict "$name" "$(said)$(close "$work/out/lse.npy" "$i/want.npy" 1e-6)"
}

test_attention() {
    for case in $(cd "$golden" && echo softmax_* swa_*); do
        for isa in auto $isas; do attention_case "$case" "$isa" 1; done
        attention_case "$case" auto 3
    done
    # With scale 0 all logits are 0.
    weights 'softmax, alike' 't == 0 ? a : t == 1 ? (a + b) / 2 : (a + b + c) / 3' \
        --variant softmax --scale 0
    weights 'a window' 't == 0 ? a : t == 1 ? (a + b) / 2 : (b + c) / 2' \
        --variant softmax --scale 0 --window 2
    weights 'a window and a sink' 't == 0 ? a : t == 1 ? (a + b) / 2 : (a + c) / 2' \
        --variant softmax --scale 0 --window 1 --sinks 1
    weights 'both directions' '(a + b + c) / 3' --variant softmax --scale 0 --bidirectional
    weights 'sigmoid' 't == 0 ? a / 2 : t == 1 ? (a + b) / 2 : (a + b + c) / 2' \
        --variant sigmoid --scale 0
    weights 'a bias' '(t == 0 ? a : t == 1 ? a + b : a + b + c) / 4' \
        --variant sigmoid --scale 0 --bias -1.0986122886681098
    awk 'BEGIN { for (i = 0; i < 18; i++) print (i % 3 == 1 ? 0 : "-inf") }' | float32 |
        npy '<f4' False '(1, 3, 2, 3)' > "$i/logits.npy"
    weights 'logits' 't == 0 ? 0 : b' --variant softmax --logits "$i/logits.npy"
    weights 'a position' 't == 0 ? (a + b) / 2 : (a + b + c) / 3' \
        --variant softmax --scale 0 --position 1
    weights 'two keys' 't == 0 ? 0 : t == 1 ? a : (a + b) / 2' --variant softmax --scale 0 \
        --key-lengths "$i/two.npy"
    weights 'two queries' 't == 2 ? 0 : (a + b + c) / 3' --variant softmax --scale 0 \
        --bidirectional --lengths "$i/two.npy"
    random 6 1 0 0 | tensor zeroE '(3, 2)'
    random 20 1 0 0 | tensor zeroU '(5, 4)'
    random 15 1 0 0 | tensor zeroL '(3, 5)'
    random 9 1 0 0 | tensor zeroR '(3, 3)'
    printf '' | npy '<f4' False '(1, 3, 2, 0)' > "$i/nothing.npy"
    attended=$one one="--q $i/nothing.npy --k $i/nothing.npy --v $i/v.npy $out"
    weights 'logits alone' 't == 0 ? 0 : b' --variant softmax --logits "$i/logits.npy"
    one="--q $i/q.npy --v $i/v.npy $out"
    weights 'a synthesizer' 't == 0 ? a : t == 1 ? (a + b) / 2 : (a + b + c) / 3' \
        --variant synthesizer --w1 "$i/zeroU.npy" --w2 "$i/zeroL.npy"
    one="--v $i/v.npy $out"
    weights 'a window of a synthesizer' 't == 0 ? a : t == 1 ? (a + b) / 2 : (b + c) / 2' \
        --variant synthesizer --kind random --w1 "$i/zeroR.npy" --window 2
    # shellcheck disable=SC2086
    logsums synthesizer 'log(t)' --variant synthesizer --kind random --w1 "$i/zeroR.npy" $one
    one=$attended
    # shellcheck disable=SC2086
    {
        logsums softmax 'log(t)' --variant softmax --scale 0 $one
        logsums linformer 'log(2)' --variant linformer --scale 0 --E "$i/zeroE.npy" $one
    }
    # shellcheck disable=SC2086
    {
        refused 'a gate of softmax' --log-decay $softmax --log-decay "$i/g.npy"
        refused 'a state of softmax' --state-out $softmax --state-out "$work/out/S.npy"
        refused 'a form of softmax' --form $softmax --form recurrent
        refused 'a bias of softmax' --bias $softmax --bias 1
        refused 'a window of retnet' --window $retnet --window 4
        refused 'sinks without a window' --sinks $softmax --sinks 4
        refused 'a negative window' --window $softmax --window -1
        refused 'a huge window' --window $softmax --window 9007199254740991
        refused 'logits of another shape' --logits $softmax --logits "$i/g.npy"
        refused 'values of other heads' --v --variant softmax --q "$i/q.npy" --k "$i/k.npy" \
            --v "$i/one.npy" --out "$work/out/o.npy"
        refused 'heads that do not divide' --q --variant softmax --q "$i/three.npy" \
            --k "$i/k.npy" --v "$i/v.npy" --out "$work/out/o.npy"
        refused 'a length beyond' --lengths $softmax --lengths "$i/length4.npy"
    }
}

# ---- what attend must refuse ---------------------------------------------------------------------

# Small inputs of every kind: B = 1, T = 3, Hq = Hk = H = 2, dk = 4, dv = 5.
make_inputs() {
    i=$work/in
    array "$i/q.npy" '(1, 3, 2, 4)' 1 -1 1
    array "$i/k.npy" '(1, 3, 2, 4)' 2 -0.5 0.5
    array "$i/v.npy" '(1, 3, 2, 5)' 3 -1 1
    array "$i/g.npy" '(1, 3, 2)' 4 -2 0
    array "$i/heads.npy" '(2,)' 5 -1 0
    array "$i/beta.npy" '(1, 3, 2)' 6 0 1
    array "$i/wide.npy" '(1, 3, 2, 5)' 7 0 1
    array "$i/S.npy" '(1, 2, 4, 5)' 8 -1 1
    array "$i/z.npy" '(1, 2, 4)' 9 1 2
    array "$i/m.npy" '(1, 2)' 10 0 1
    array "$i/W.npy" '(6, 4)' 11 -1 1
    array "$i/W2.npy" '(6, 4)' 15 -1 1
    array "$i/channels.npy" '(1, 3, 2, 4)' 12 -1 0
    array "$i/one.npy" '(1, 3, 1, 5)' 13 -1 1
    array "$i/three.npy" '(1, 3, 3, 4)' 14 -1 1
    printf '%s' '\002\000\000\000' | npy '<i4' False '(1,)' > "$i/two.npy"
    for length in -1 2.5 4 6; do
        echo $length | float32 | npy '<f4' False '(1,)' > "$i/length$length.npy"
    done
    one="--q $i/q.npy --k $i/k.npy --v $i/v.npy --out $work/out/o.npy"
    gdn="--variant gated-deltanet --log-decay $i/g.npy --beta $i/beta.npy $one"
    # shellcheck disable=SC2034 # test_unused names them
    {
        retnet="--variant retnet --log-decay $i/heads.npy $one"
        lightning="--variant lightning --log-decay $i/heads.npy $one"
        gla="--variant gla --log-decay $i/channels.npy $one"
        rwkv6="--variant rwkv6 $one"
        rwkv7="--variant rwkv7 --a $i/k.npy --b $i/k.npy $one"
        sigmoid="--variant sigmoid $one"
    }
    for n in '' 2 3; do # all of five tokens, or the first two and the others
        for row in 'k 21 -2 2' 'v 22 -1 1'; do
            # shellcheck disable=SC2086
            set -- $row
            random 15 "$2" "$3" "$4" | awk -v n=$n 'n == "" || (n == 2) == (NR <= 6)' |
                tensor "s$1$n" "(1, ${n:-5}, 3)"
        done
    done
    array "$i/sw.npy" '(3,)' 23 -2 0
    array "$i/su.npy" '(3,)' 24 -1 1
    array "$i/sS.npy" '(1, 3, 3)' 25 0.5 1.5
    out="--out $work/out/o.npy"
    rwkv4="--variant rwkv4 --k $i/sk.npy --v $i/sv.npy --log-decay $i/sw.npy --bonus $i/su.npy $out"
    hgrn="--variant hgrn --v $i/sv.npy --log-decay $i/sw.npy $out"
    infini="--variant infini --segment 2 --beta $i/heads.npy $one"
    array "$i/E.npy" '(3, 2)' 26 -1 1
    linformer="--variant linformer --E $i/E.npy $one"
    array "$i/W1.npy" '(5, 4)' 27 -1 1
    array "$i/L5.npy" '(3, 5)' 28 -1 1
    array "$i/W3.npy" '(2, 4)' 29 -1 1
    array "$i/R.npy" '(3, 3)' 30 -1 1
    array "$i/b1.npy" '(5,)' 31 -1 1
    array "$i/b2.npy" '(3,)' 32 -1 1
    array "$i/b3.npy" '(2,)' 35 -1 1
    array "$i/c1.npy" '(6,)' 33 -1 1
    array "$i/c2.npy" '(6,)' 34 -1 1
    x="--q $i/q.npy --v $i/v.npy $out"
    dense="--variant synthesizer --w1 $i/W1.npy --w2 $i/L5.npy $x"
    products="--variant synthesizer --factorised --w1 $i/W1.npy --w2 $i/W3.npy $x"
    random="--variant synthesizer --kind random --w1 $i/R.npy --v $i/v.npy $out"
    pairs="--variant synthesizer --kind random --factorised --w1 $i/L5.npy --w2 $i/L5.npy"
    pairs="$pairs --v $i/v.npy $out"
    delta="--variant deltanet $one"
    elu="--variant elu $one"
    favor="--variant favor --projection $i/W.npy $one"
    cosformer="--variant cosformer --horizon 3 $one"
    softmax="--variant softmax $one"
    hedgehog="--variant hedgehog --projection $i/W.npy $one"
    dpfp="--variant dpfp $one"
    # shellcheck disable=SC2086
    launch "$attend" $gdn
    [ $status -ne 0 ] || mv "$work/out/o.npy" "$i/ref.npy"
}

test_numbers() {
    for row in '--scale nan' '--scale inf' '--scale -inf' '--scale 1x' '--scale 1e999' '--scale x' \
        '--scale 1e39' '--scale 0x' '--chunk -1' '--chunk 1025' '--chunk 1.5' '--chunk 4k' \
        '--chunk 99999999999999999999' '--threads 0' '--threads -2' '--threads 1025' \
        '--threads 2.' '--threads 1e2' '--repeat 0' '--repeat -1' '--repeat 1000001' '--repeat x' \
        '--form linear' '--form paralle' '--form parallel|recurrent' '--form 1' '--isa sse' \
        '--isa AVX2' '--head-map both' '--state-layout kvk' '--state-layout k'; do
        # shellcheck disable=SC2086
        refused "the value of $row" "${row%% *}" $gdn $row
    done
    for row in '--l2-eps -1' '--l2-eps x' '--l2-mode mean'; do
        # shellcheck disable=SC2086
        refused "the value of $row" "${row%% *}" $gdn --l2norm $row
    done
    for row in '--tolerance -1' '--tolerance nan' '--tolerance 1e-5x'; do
        # shellcheck disable=SC2086
        refused "the value of $row" "${row%% *}" $gdn --compare "$i/v.npy" $row
    done
    for option in --scale --form --chunk --threads; do
        # shellcheck disable=SC2086
        refused "an empty value of $option" $option $gdn $option ''
    done
}

test_options() {
    # shellcheck disable=SC2086
    {
        refused 'an unknown option' --sclae $gdn --sclae 1
        refused 'an option with an equals sign' --scale=1 $gdn --scale=1
        refused 'a stray word' word $gdn word
        refused 'an option given twice' --scale $gdn --scale 1 --scale 1
        refused 'a file given twice' --q $gdn --q $i/q.npy
        refused 'no variant' --variant $one
        refused 'nothing at all' --variant
        refused 'an unknown variant' --variant --variant soft-max $one
        refused 'a variant in capitals' --variant --variant RetNet $one
        refused 'a tolerance without --compare' --tolerance $gdn --tolerance 1
        refused 'l2-eps without --l2norm' --l2-eps $gdn --l2-eps 1e-6
        refused 'l2-mode without --l2norm' --l2-mode $gdn --l2-mode sum
        for variant in retnet lightning; do
            refused "$variant without decay" --log-decay --variant $variant $one
        done
        refused 'favor without a projection' --projection --variant favor $one
        refused 'cosformer without a horizon' --horizon --variant cosformer $one
        refused 'a state without its normaliser' --norm-in $elu --state-in $i/S.npy
        refused 'a normaliser without its state' --norm-in $elu --norm-in $i/z.npy
        refused 'a maximum with relu' --max-out $favor --favor-kernel relu --max-out $work/out/m.npy
        array "$i/S6.npy" '(1, 2, 6, 5)' 13 0 1
        array "$i/z6.npy" '(1, 2, 6)' 14 1 2
        refused 'a state without its maximum' --max-in $favor --state-in $i/S6.npy \
            --norm-in $i/z6.npy
        for length in -1 2.5 4; do
            refused "a length of $length" --lengths $gdn --lengths $i/length$length.npy
        done
        refused 'two lengths for one sequence' --lengths $gdn --lengths $i/heads.npy
        for horizon in 0 -1 nan inf x 1e16; do
            refused "a horizon of $horizon" --horizon --variant cosformer --horizon $horizon $one
        done
        refused 'a position behind the horizon' --position $cosformer --position 2
        refused 'a position that is negative' --position $cosformer --position -1
        refused 'a negative scale of favor' --scale $favor --scale -1
        refused 'a negative eps' --eps $elu --eps -1
        refused 'an unknown mode of eps' --eps-mode $elu --eps-mode mean
        refused 'an unknown kernel' --favor-kernel $favor --favor-kernel cosine
        refused 'hedgehog without a projection' --projection --variant hedgehog $one
        refused 'rff without a projection' --projection --variant rff $one
        refused 'a projection of queries of another shape' --q-projection $hedgehog \
            --q-projection $i/q.npy
        refused 'an unknown kernel' --hedgehog-kernel $hedgehog --hedgehog-kernel cosine
        refused 'nu = 0' --nu $dpfp --nu 0
        refused 'nu = 1.5' --nu $dpfp --nu 1.5
        refused 'a nu that makes too many features' --nu $dpfp --nu 1048576
        refused 'a negative scale of based' --scale --variant based --scale -1 $one
        refused 'a negative feature eps' --feature-eps $favor --feature-eps -1
    }
    for option in --q --k --v --out; do
        # shellcheck disable=SC2046,SC2086
        set -- $(echo "$gdn" | sed "s| $option [^ ]*||")
        refused "no $option" $option "$@"
    done
    for option in --variant --q --log-decay --out --scale --chunk --form --compare --state-in; do
        # shellcheck disable=SC2046,SC2086
        set -- $(echo "$gdn" | sed "s| *$option [^ ]*||")
        refused "no value after $option" $option "$@" $option
    done
    for isa in avx2 avx512 neon; do
        case " $isas" in *" $isa "*) continue ;; esac
        # shellcheck disable=SC2086
        refused "$isa, which is not here" --isa $gdn --isa $isa
    done
}

# uses VARIANT OPTION...: all other options of --help are refused by $VARIANT, alone.
uses() {
    variant=$1
    name="options that $variant does not use" problem=
    wanted "$name" || return 0
    eval "arguments=\$$variant"
    shift
    rm -f "$work"/out/*
    while read -r option kind; do
        case " $* " in *" ${option#--} "*) continue ;; esac
        case $option:$kind in
        *-out:F) value=$work/out/more.npy ;;
        *:F) value=$i/q.npy ;;
        *:?) value=1 ;;
        *) value=${kind%%|*} ;;
        esac
        # shellcheck disable=SC2086
        launch "$attend" $arguments $option $value
        [ $status -eq 2 ] && one_line "attend: $option: not used by" && [ ! -s "$work/stdout" ] ||
            problem="$problem; $option: status $status: $(said)"
    done < "$work/options"
    for option in "$@"; do
        grep -q "^--$option " "$work/options" || problem="$problem; there is no --$option"
    done
    verdict "$name" "$problem$(leftovers)"
}

test_unused() {
    "$attend" --help |
        awk '/^  --/ { print $1, substr($0, 23, 1) == " " ? "" : $2 }' > "$work/options"
    all='variant v out lengths isa threads repeat compare tolerance'
    engine="$all q k beta state-in state-out state-layout chunk scale l2norm l2-eps l2-mode"
    engine="$engine head-map"
    linear="$engine log-decay form skip out-gate"
    averages='norm-in norm-out bidirectional eps eps-mode'
    normalised="$linear $averages key-lengths"
    attention="$all q k key-lengths bidirectional scale position head-map window sinks logits"
    synthesizer="$all bidirectional window sinks lse-out kind factorised w1"
    # shellcheck disable=SC2086
    {
        for variant in retnet lightning gla; do uses $variant $linear; done
        for variant in delta gdn; do uses $variant $linear erase; done
        uses rwkv6 $linear bonus
        uses rwkv7 $linear a b
        uses dpfp $linear nu
        uses elu $normalised
        uses favor $normalised max-in max-out projection q-projection favor-kernel feature-eps
        uses hedgehog $normalised projection projection-bias q-projection q-projection-bias \
            hedgehog-kernel feature-eps
        uses cosformer $normalised horizon position
        uses softmax $attention lse-out
        uses sigmoid $attention bias
        uses infini $engine $averages segment update
        uses linformer $all q k key-lengths scale head-map lse-out E F
        uses dense $synthesizer q b1 w2 b2
        uses products $synthesizer q b1 w2 b2
        uses random $synthesizer tokens
        uses pairs $synthesizer tokens w2
        uses rwkv4 $all k log-decay bonus state-in state-out
        uses hgrn $all log-decay state-in state-out
    }
}

# requires VARIANT OPTION...: without one of them it does not run.
requires() {
    variant=$1
    shift
    for option in "$@"; do
        eval "arguments=\$$variant"
        # shellcheck disable=SC2046
        refused "$variant without $option" "$option" $(without "$option" "$arguments")
        wanted "refuses $variant without $option" && ! grep -q ': required by' "$work/stderr" &&
            verdict "says that $variant requires $option" "$(said)"
    done
}

test_required() {
    requires softmax --q --k --v --out
    requires infini --q --k --v --out --beta --segment
    requires linformer --q --k --v --out --E
    requires dense --q --v --out --w1 --w2
    requires products --q --v --out --w1 --w2
    requires random --v --out --w1
    requires pairs --v --out --w1 --w2
    requires rwkv4 --k --v --out --log-decay --bonus
    requires hgrn --v --out --log-decay
    requires rwkv7 --a --b
}

# bad_file OPTION: everything that can be wrong with the file of one option.
bad_file() {
    option=$1
    # shellcheck disable=SC2086
    arguments=$(echo "$gdn --state-in $i/S.npy" | sed "s| $option [^ ]*||")
    good="$gdn --state-in $i/S.npy --compare $i/v.npy"
    good=$(echo "$good" | sed -n "s|.* $option \([^ ]*\).*|\1|p")
    f=$i/bad.npy
    rm -f "$f"
    # shellcheck disable=SC2086
    {
        refused "a missing $option" $option $arguments $option $f
        refused "a directory as $option" $option $arguments $option $i
        : > $f
        refused "an empty $option" $option $arguments $option $f
        echo 'not an array, but long enough for the prefix' > $f
        refused "$option that is no .npy" $option $arguments $option $f
        head -c 60 $good > $f
        refused "$option, header cut short" $option $arguments $option $f
        head -c $(($(wc -c < $good) - 1)) $good > $f
        refused "$option, one byte short" $option $arguments $option $f
        { cat $good; printf x; } > $f
        refused "$option, one byte more" $option $arguments $option $f
        sed "1s/, }  /, } x/" $good > $f
        refused "$option, a bad header" $option $arguments $option $f
    }
    bad_header "<i4" False "$(shape_of "$good")"
    bad_header ">f4" False "$(shape_of "$good")"
    bad_header "<f4" True "$(shape_of "$good")"
    bad_header "<f4" False '(1, 3, 2, 1, 1)'
    bad_header "<f4" False '(6,)'
    bad_header "<f4" False '()'
    bad_header "<f4" False '(4294967296, 4294967296, 2, 2)'
    bad_header "<f4" False '(9223372036854775807, 3, 2, 0)'
    bad_header "<f4" False '(-1, 3, 2, 4)'
}

# without OPTION TEXT: the text without the option and its value.
without() {
    echo "$2" | sed "s| $1 [^ ]*||"
}

shape_of() {
    head -c 128 "$1" | sed -n "s/.*'shape': \(([^)]*)\).*/\1/p"
}

# bad_header DESCR FORTRAN_ORDER SHAPE: uses $option, $arguments and $f; as many zeros as needed.
bad_header() {
    awk -v n="$(count "$3")" 'BEGIN { while (n-- > 0) printf "\\000\\000\\000\\000" }' |
        npy "$1" "$2" "$3" > "$f"
    # shellcheck disable=SC2086
    refused "$option with header $1 $2 $3" $option $arguments $option "$f"
}

test_files() {
    for option in --q --k --v --log-decay --beta --state-in --compare; do
        bad_file $option
    done
    # shellcheck disable=SC2086
    refused 'a missing --lengths' --lengths $gdn --lengths "$i/none.npy"
}

# wrong_shape OPTION SHAPE...
wrong_shape() {
    option=$1
    shift
    arguments=$(echo "${arguments_with:-$gdn --state-in $i/S.npy}" | sed "s| $option [^ ]*||")
    for shape in "$@"; do
        array "$i/shape.npy" "$shape" 1 -1 0
        # shellcheck disable=SC2086
        refused "$option of shape $shape" $option $arguments $option "$i/shape.npy"
    done
}

test_shapes() {
    wrong_shape --k '(2, 3, 2, 4)' '(1, 4, 2, 4)' '(1, 2, 2, 4)' '(1, 3, 2, 5)' '(1, 3, 2)' \
        '(1, 3, 3, 4)'
    wrong_shape --v '(2, 3, 2, 5)' '(1, 4, 2, 5)' '(1, 3, 10)'
    wrong_shape --q '(1, 3, 3, 4)' '(3, 2, 4)'
    wrong_shape --log-decay '(3,)' '(1, 3, 1)' '(1, 2, 2)' '(3, 2)' '(1, 3, 2, 1)' '(1, 3, 2, 5)'
    wrong_shape --beta '(2,)' '(1, 3, 1)' '(1, 3, 2, 4)' '(2, 3, 2)'
    wrong_shape --state-in '(1, 2, 5, 4)' '(2, 2, 4, 5)' '(2, 4, 5)' '(1, 1, 4, 5)'
    wrong_shape --compare '(1, 3, 2, 4)' '(1, 3, 10)' '(1, 2, 3, 5)'
    arguments_with="$favor --state-in $i/S6.npy --norm-in $i/z6.npy --max-in $i/m.npy"
    wrong_shape --projection '(6, 5)' '(6,)' '(1, 6, 4)' '(2, 6, 5)' '(3, 6, 4)'
    wrong_shape --norm-in '(1, 2, 4)' '(1, 6)' '(2, 2, 6)'
    wrong_shape --max-in '(2,)' '(1, 3)' '(1, 2, 1)'
    arguments_with=$favor
    wrong_shape --log-decay '(3,)' '(1, 3, 2, 4)' # its features are no channels of the keys
    arguments_with="$hedgehog --projection-bias $i/c1.npy --q-projection $i/W2.npy"
    wrong_shape --projection-bias '(5,)' '(2, 6)' '(1, 6)' '(6, 1)'
    wrong_shape --q-projection-bias '(5,)' '(2, 6)'
    arguments_with="$elu --bidirectional"
    wrong_shape --key-lengths '(2,)' '(1, 1)'
    arguments_with="$delta --skip $i/heads.npy --out-gate $i/v.npy"
    wrong_shape --skip '(1,)' '(3,)' '(2, 1)' '(2, 4)' '(1, 3, 2)' '(1, 3, 2, 5)'
    wrong_shape --out-gate '(1, 3, 2)' '(1, 3, 2, 4)' '(1, 2, 2, 5)'
    wrong_shape --erase '(1, 3, 2)' '(1, 3, 2, 5)' '(2, 4)'
    arguments_with=$rwkv6
    wrong_shape --bonus '(2,)' '(1, 4)' '(2, 5)' '(1, 3, 2)' '(1, 3, 2, 5)'
    arguments_with=$rwkv7
    wrong_shape --a '(1, 3, 2)' '(1, 3, 2, 5)' '(2, 4)'
    wrong_shape --b '(1, 3, 2)' '(1, 3, 2, 5)' '(1, 2, 2, 4)'
    arguments_with=$softmax
    wrong_shape --q '(1, 3, 2)' '(0, 3, 2, 4)' '(1, 3, 2, 0)' '(1, 3, 0, 4)'
    wrong_shape --v '(1, 3, 1, 5)' '(1, 2, 2, 5)'
    wrong_shape --logits '(1, 3, 2)' '(1, 3, 2, 4)' '(1, 3, 1, 3)'
    # shellcheck disable=SC2086
    refused 'a kv state as vk' --state-in $gdn --state-layout vk --state-in "$i/S.npy"
}

test_system_shapes() {
    arguments_with="$infini --state-in $i/S.npy --norm-in $i/z.npy"
    wrong_shape --k '(1, 2, 2, 4)' '(1, 3, 3, 4)'
    wrong_shape --beta '(1,)' '(2, 4)' '(1, 3, 2)' '(1, 3, 2, 5)'
    wrong_shape --state-in '(2, 4, 5)' '(1, 2, 5, 4)' '(1, 1, 4, 5)'
    wrong_shape --norm-in '(1, 2, 5)' '(2, 4)'
    arguments_with="$linformer --F $i/E.npy"
    wrong_shape --E '(2, 2)' '(3,)' '(3, 0)' '(0, 2)' '(1, 3, 2)' '(1, 2, 3, 2)'
    wrong_shape --F '(3, 3)' '(4, 2)' '(1, 3, 2)' '(3,)'
    wrong_shape --v '(1, 3, 1, 5)' '(1, 2, 2, 5)'
    arguments_with="$dense --b1 $i/b1.npy --b2 $i/b2.npy"
    wrong_shape --q '(1, 4, 2, 4)' '(1, 3, 2)'
    wrong_shape --v '(1, 3, 1, 5)' '(2, 3, 2, 5)'
    wrong_shape --w1 '(5, 5)' '(5,)' '(3, 5, 4)' '(0, 4)'
    wrong_shape --w2 '(2, 5)' '(3, 4)' '(3,)' '(1, 3, 5)'
    wrong_shape --b1 '(4,)' '(1, 5)' '(5, 2)' '(2, 5, 1)'
    wrong_shape --b2 '(4,)' '(1, 3)' '(3, 2)'
    arguments_with="$products --b2 $i/b3.npy"
    wrong_shape --w2 '(2, 5)' '(2,)' '(3, 2, 4)' '(0, 4)'
    wrong_shape --b2 '(3,)' '(2, 3)'
    arguments_with=$random
    wrong_shape --w1 '(2, 2)' '(3, 4)' '(3,)' '(1, 3, 3)' '(1, 1, 3, 3)'
    wrong_shape --v '(1, 3, 2)' '(0, 3, 2, 5)' '(1, 3, 0, 5)' '(1, 3, 2, 0)'
    arguments_with=$pairs
    wrong_shape --w2 '(3, 4)' '(2, 5)' '(4, 5)' '(1, 3, 5)'
    arguments_with="$rwkv4 --state-in $i/sS.npy"
    wrong_shape --k '(0, 5, 3)' '(1, 5, 0)' '(1, 5, 1, 3)'
    wrong_shape --v '(1, 5, 4)' '(1, 4, 3)' '(5, 3)'
    wrong_shape --log-decay '(2,)' '(1, 5, 2)' '(1, 3)' '(1, 4, 3)'
    wrong_shape --bonus '(2,)' '(1, 3)' '(1, 5, 3)'
    wrong_shape --state-in '(1, 3)' '(1, 3, 2)' '(1, 2, 3)' '(3, 3)'
    arguments_with=$hgrn
    wrong_shape --v '(5, 3)' '(0, 5, 3)' '(1, 5, 0)'
    wrong_shape --state-in '(3,)' '(1, 2)' '(1, 3, 3)'
    arguments_with=
}

test_system_values() {
    # shellcheck disable=SC2046,SC2086
    {
        for segment in 0 -1 1.5 x 281474976710657; do
            refused "a segment of $segment" --segment $(without --segment "$infini") \
                --segment $segment
        done
        refused 'an unknown update' --update $infini --update add
        refused 'the form of a segment' --form $infini --form auto
        refused 'an unknown kind' --kind $dense --kind factorised
        refused 'more tokens than keys' --tokens $random --tokens 4
        refused 'more tokens than a number' --tokens $random --tokens 1e3
        refused 'a length beyond a scan' --lengths $hgrn --lengths $i/length6.npy
        refused 'a length beyond a segment' --lengths $infini --lengths $i/length4.npy
        refused 'a length beyond the keys' --key-lengths $softmax --key-lengths $i/length4.npy
        refused 'half a key' --key-lengths $softmax --key-lengths $i/length2.5.npy
        refused 'lengths of keys, causal' --key-lengths $elu --key-lengths $i/two.npy
        refused 'a skip in both directions' --skip $elu --bidirectional --skip $i/heads.npy
        refused 'a bias without its projection' --q-projection-bias $hedgehog \
            --q-projection-bias $i/c1.npy
        refused 'a memory without its normaliser' --norm-in $infini --state-in $i/S.npy
        refused 'a horizon before the last token' --horizon --variant cosformer --horizon 1 $one
    }
    for row in "--E $linformer" "--w1 $dense" "--bonus $rwkv4"; do
        option=${row%% *}
        # shellcheck disable=SC2046
        refused "a missing $option" "$option" $(without "$option" "${row#* }") "$option" \
            "$i/none.npy"
    done
}

test_outputs() {
    o=$work/out
    inputs=$(echo "$gdn" | sed 's| --out [^ ]*||')
    mkdir -p "$work/folder"
    # shellcheck disable=SC2046,SC2086
    {
        refused 'an output in no folder' --out $inputs --out $o/none/o.npy
        refused 'a state in no folder' --state-out $gdn --state-out $o/none/S.npy
        refused 'a folder as the output' --out $inputs --out $work/folder
        refused 'a folder as the state' --state-out $gdn --state-out $work/folder
        refused 'one file for two outputs' --state-out $gdn --state-out $o/o.npy
        refused 'an output over the reference' --out $inputs --out $i/v.npy --compare $i/v.npy
        refused 'an empty output name' --out $inputs --out ''
        refused 'timing what cannot be written' --out $inputs --out $o/none/o.npy --repeat 2
        refused 'an output over the reference, by another name' --out $inputs --out $i/./v.npy \
            --compare $i/v.npy
        [ ! -e /dev/full ] || refused 'a full device' --state-out $gdn --state-out /dev/full
        refused 'a name of two lines' --q $(without --q "$gdn") --q "$i/q
.npy"
        refused 'an option of two lines' '--q?x' $gdn '--q
x' 1
    }
    [ "$(wc -c < "$i/v.npy")" -eq 248 ] || verdict 'keeps the reference' 'v.npy has changed'
}

# An older result survives a refusal.
test_older_output() {
    name='keeps an older output when refusing'
    wanted "$name" || return 0
    echo old > "$work/out/o.npy"
    # shellcheck disable=SC2086
    launch "$attend" $gdn --state-in "$i/v.npy"
    problem=
    [ $status -eq 2 ] || problem="status $status"
    [ "$(cat "$work/out/o.npy")" = old ] || problem="$problem; it has changed"
    verdict "$name" "$problem"
}

# ---- what attend must do -------------------------------------------------------------------------

# same NAME FILE FILE
same() {
    wanted "$1" || return 0
    verdict "$1" "$(cmp "$2" "$3" 2>&1)"
}

# tensor NAME SHAPE < the numbers
tensor() {
    float32 | npy '<f4' False "$2" > "$i/$1.npy"
}

# The convention probes, exact in binary: K = 2, V = 1, T = 2, S0 = (1, -2).
test_probes() {
    printf '1\n2\n1\n-1\n' | tensor pq '(1, 2, 1, 2)'
    printf '1\n0\n0.5\n0.5\n' | tensor pk '(1, 2, 1, 2)'
    printf '2\n3\n' | tensor pv '(1, 2, 1, 1)'
    printf '1\n-2\n' | tensor pS '(1, 1, 2, 1)'
    printf '1\n-2\n' | tensor pSvk '(1, 1, 1, 2)'
    printf '0.5\n1.5\n' | tensor pbeta '(1, 2, 1)'
    printf '%s\n' -0.69314718055994531 -1.3862943611198906 | tensor pg '(1, 2, 1)'
    printf '0\n0\n' | tensor pzero '(1, 2, 1)'
    pv=$i/pv.npy
    probe 'no decay' retnet '-1 5' '4.5 -0.5' --log-decay "$i/pzero.npy"
    probe 'fast weights' fwp '-1 5' '4.5 -0.5'
    probe 'decay' retnet '0.5 0.875' '2.125 1.25' --log-decay "$i/pg.npy"
    probe 'write strength' mamba2 '-0.5 0.625' '2.625 2' --log-decay "$i/pg.npy" \
        --beta "$i/pbeta.npy"
    probe 'delta' deltanet '-2.5 3.5' '3.9375 0.4375' --beta "$i/pbeta.npy"
    probe 'gated delta' gated-deltanet '-0.75 0.5625' '2.5390625 1.9765625' \
        --log-decay "$i/pg.npy" --beta "$i/pbeta.npy"
    printf '%s\n' -0.69314718055994531 0 -1.3862943611198906 -0.69314718055994531 |
        tensor pA '(1, 2, 1, 2)'
    printf '0.25\n2\n' | tensor pbonus '(1, 2)'
    printf '0.25\n2\n0.25\n2\n' | tensor pbonuses '(1, 2, 1, 2)'
    printf '%s\n' -1 0 -0.5 -0.5 | tensor pa '(1, 2, 1, 2)'
    printf '%s\n' 0.5 0 0.75 0.75 | tensor pb '(1, 2, 1, 2)'
    printf '%s\n' 0.5 0.5 1.5 1.5 | tensor perase '(1, 2, 1, 2)'
    probe 'rwkv6' rwkv6 '-2.5 1.875' '2.125 0.5' --log-decay "$i/pA.npy" --bonus "$i/pbonus.npy"
    probe 'rwkv6, a bonus per token' rwkv6 '-2.5 1.875' '2.125 0.5' --log-decay "$i/pA.npy" \
        --bonus "$i/pbonuses.npy"
    probe 'rwkv7' rwkv7 '-2 1.5' '2 0.5' --log-decay "$i/pA.npy" --a "$i/pa.npy" --b "$i/pb.npy"
    probe 'erase gate' gdn2 '-2.75 1.3125' '2.8203125 1.5078125' --log-decay "$i/pA.npy" \
        --beta "$i/pbeta.npy" --erase "$i/perase.npy"
    printf '2\n' | tensor pD '(1,)'
    printf '2\n' | tensor pDwide '(1, 1)'
    printf '64\n32\n' | tensor pz '(1, 2, 1, 1)' # z / (1 + exp(-z)) is z there
    probe 'skip and gate' fwp '192 352' '4.5 -0.5' --skip "$i/pD.npy" --out-gate "$i/pz.npy"
    probe 'skip per channel' fwp '3 11' '4.5 -0.5' --skip "$i/pDwide.npy"
    pv=$i/pv8.npy # the same 2 and 3 in float64
    printf '%s' '\000\000\000\000\000\000\000\100' '\000\000\000\000\000\000\010\100' |
        npy '<f8' False '(1, 2, 1, 1)' > "$pv"
    probe 'delta, float64' deltanet '-2.5 3.5' '3.9375 0.4375' --beta "$i/pbeta.npy"
}

# probe NAME VARIANT OUTPUTS FINAL_STATE OPTION...
probe() {
    name="probe: $1" variant=$2 outputs=$3 final=$4
    shift 4
    wanted "$name" || return 0
    for layout in kv vk; do
        state="--state-in $i/pS.npy"
        [ $layout = kv ] || state="--state-in $i/pSvk.npy"
        # shellcheck disable=SC2086
        launch "$attend" --variant "$variant" --q "$i/pq.npy" --k "$i/pk.npy" --v "$pv" \
            $state --state-layout $layout --out "$work/out/o.npy" \
            --state-out "$work/out/S.npy" "$@"
        have="$(said)$(numbers "$work/out/o.npy" | xargs) | $(numbers "$work/out/S.npy" | xargs)"
        problem=
        [ "$have" = "$outputs | $final" ] || problem="$layout: $have, not $outputs | $final"
        verdict "$name, $layout" "$problem"
    done
}

test_compare() {
    # shellcheck disable=SC2086
    {
        ends 'runs gated-deltanet' 0 $gdn
        ends 'equals its own output' 0 $gdn --compare $i/ref.npy --tolerance 0
        ends 'exits with 1 beyond the tolerance' 1 $gdn --compare $i/v.npy
        ends 'passes within a wide tolerance' 0 $gdn --compare $i/v.npy --tolerance 100
        { random 29 3 -1 1; echo nan; } | tensor nan '(1, 3, 2, 5)'
        ends 'fails on NaN in the reference' 1 $gdn --compare $i/nan.npy --tolerance 1e30
        nan=$(echo "$gdn" | sed "s|$i/v.npy|$i/nan.npy|")
        ends 'fails on NaN in the output' 1 $nan --compare $i/ref.npy --tolerance 1e30
        ends 'fails on NaN against NaN' 1 $nan --compare $i/nan.npy --tolerance 1e30
        zeros=$(echo "$gdn" | sed "s|$i/v.npy|$i/zero.npy|")
        random 30 1 0 0 | tensor zero '(1, 3, 2, 5)'
        ends 'takes zero for zero' 0 $zeros --compare $i/zero.npy
        ends 'takes nothing for zero' 1 $gdn --compare $i/zero.npy --tolerance 1e30
    }
}

# runs_like NAME FILE OPTION...: the same bits as in FILE.
runs_like() {
    name=$1 file=$2
    shift 2
    # shellcheck disable=SC2086
    ends "$name" 0 $gdn "$@"
    same "$name: the same bits" "$work/out/o.npy" "$file"
}

test_runs() {
    runs_like 'three threads' "$i/ref.npy" --threads 3
    runs_like 'more threads than heads' "$i/ref.npy" --threads 64
    runs_like 'an absurd repeat' "$i/ref.npy" --repeat 3
    name='prints ns_per_token_head MIN MEDIAN'
    wanted "$name" && verdict "$name" "$(awk '
        NR != 1 || NF != 3 || $1 != "ns_per_token_head" || !($2 > 0 && $2 <= $3) { print }
        END { if (NR != 1) print NR " lines" }' "$work/stdout")"
}

# States handed from call to call, in files, give what one call gives: the same bits.
test_split() {
    for part in 1 2; do
        for row in 'q 8 1 -1 1' 'k 8 2 -0.5 0.5' 'v 10 3 -1 1' 'd 8 12 -1 0'; do
            # shellcheck disable=SC2086
            set -- $row
            random $((3 * $2)) "$3" "$4" "$5" | awk -v w="$2" -v part=$part \
                'part == 1 ? NR <= w : NR > w' |
                tensor "$1$part" "(1, $part, 2, $(($2 / 2)))"
        done
    done
    for layout in kv vk; do
        carries elu
        carries favor --projection "$i/W.npy" --feature-eps 0.001
        carries favor --projection "$i/W.npy" --favor-kernel hyperbolic
        carries favor --projection "$i/W.npy" --favor-kernel relu --log-decay "$i/heads.npy"
        carries cosformer --horizon 3
        carries dpfp --nu 2
        carries based --log-decay "$i/heads.npy"
        carries hedgehog --projection "$i/W.npy" --q-projection "$i/W2.npy"
        carries rff --projection "$i/W.npy" --scale 0.5
        carries mapped
        carries retnet --log-decay "$i/heads.npy"
        carries lightning --log-decay "$i/heads.npy"
        carries gla
        carries deltanet
        carries gated-deltanet --log-decay "$i/heads.npy"
        carries kda
        carries mamba2 --log-decay "$i/heads.npy"
        carries fwp
        carries infini --segment 1 --beta "$i/heads.npy"
        carries infini --segment 1 --beta "$i/heads.npy" --update delta
    done
}

# carry NAME INPUT OPTION...: one call that reads and writes the files of the state.
carry() {
    files=$1 input=$2
    shift 2
    state=
    for part in state $parts; do
        state="$state --$part-out $i/${files}_$part.npy"
        [ "$input" = none ] || state="$state --$part-in $i/${files}_$part.npy"
    done
    case " $* " in *' infini '*) form= ;; *) form='--form recurrent' ;; esac
    # shellcheck disable=SC2086
    launch "$attend" $form --state-layout $layout $state "$@"
    [ $status -eq 0 ] || problem="$problem; status $status: $(said)"
}

# carries VARIANT OPTION...
carries() {
    name="carries the state in files: $* $layout" variant=$1 problem=
    shift
    wanted "$name" || return 0
    rm -f "$work"/out/* "$i"/carried_* "$i"/whole_*
    case "$variant $*" in
    *relu* | infini* | elu* | cosformer* | based* | hedgehog* | rff* | mapped*) parts=norm ;;
    favor*) parts='norm max' ;;
    *) parts= ;;
    esac
    gates() { case $variant in gla | kda) echo "--log-decay $1" ;; esac; }
    place() { [ "$variant" != cosformer ] || echo "--position $1"; }
    # shellcheck disable=SC2046
    for part in 1 2; do
        input=carried
        [ $part = 2 ] || input=none
        carry carried $input --variant "$variant" --q "$i/q$part.npy" --k "$i/k$part.npy" \
            --v "$i/v$part.npy" --out "$work/out/o$part.npy" $(gates "$i/d$part.npy") \
            $(place $((part - 1))) "$@"
    done
    # shellcheck disable=SC2046,SC2086
    carry whole none --variant "$variant" $one $(gates "$i/channels.npy") "$@"
    for part in state $parts; do
        problem="$problem$(cmp "$i/carried_$part.npy" "$i/whole_$part.npy" 2>&1)"
    done
    { numbers "$work/out/o1.npy"; numbers "$work/out/o2.npy"; } > "$work/parts"
    numbers "$work/out/o.npy" | cmp -s - "$work/parts" || problem="$problem; outputs differ"
    verdict "$name" "$problem"
}

# each_head NAME FIRST SECOND BOTH OPTION...: with the options BOTH head 0 is what it is with FIRST,
# and head 1 with SECOND.
each_head() {
    name="of each head: $1" first=$2 second=$3 both=$4 problem=
    shift 4
    wanted "$name" || return 0
    for row in "a $first" "b $second" "o $both"; do
        # shellcheck disable=SC2086
        launch "$attend" "$@" ${row#* } --out "$work/out/${row%% *}.npy"
        problem=$problem$(said)
    done
    for file in a b; do numbers "$work/out/$file.npy" > "$work/$file"; done
    cmp -s "$work/a" "$work/b" && problem="$problem; both are the same"
    paste "$work/a" "$work/b" | awk '{ print int((NR - 1) / 5) % 2 ? $2 : $1 }' > "$work/want"
    numbers "$work/out/o.npy" | cmp -s - "$work/want" || problem="$problem; outputs differ"
    verdict "$name" "$problem"
}

# two SHAPE FILE FILE: one file of the two.
two() {
    both=two_$(basename "$2" .npy)
    { numbers "$2"; numbers "$3"; } | tensor "$both" "$1"
    echo "$i/$both.npy"
}

# of_each OPTION SHAPE LOW HIGH ARGUMENTS: another array in the place of its own for head 1
of_each() {
    own=$(echo "$5" | sed -n "s|.* $1 \([^ ]*\).*|\1|p")
    shape=${2#(2, }
    array "$i/second.npy" "(${shape%)},)" 99 "$3" "$4"
    # shellcheck disable=SC2046
    each_head "$1" "$1 $own" "$1 $i/second.npy" "$1 $(two "$2" "$own" "$i/second.npy")" \
        $(without --out "$(without "$1" "$5")")
}

test_heads() {
    of_each --E '(2, 3, 2)' -1 1 "$linformer"
    of_each --F '(2, 3, 2)' -1 1 "$linformer --F $i/E.npy"
    of_each --w1 '(2, 5, 4)' -1 1 "$dense"
    of_each --w2 '(2, 3, 5)' -1 1 "$dense"
    of_each --b1 '(2, 5)' -1 1 "$dense --b1 $i/b1.npy --b2 $i/b2.npy"
    of_each --b2 '(2, 3)' -1 1 "$dense --b1 $i/b1.npy --b2 $i/b2.npy"
    of_each --w2 '(2, 2, 4)' -1 1 "$products"
    of_each --w1 '(2, 3, 3)' -1 1 "$random"
    of_each --w2 '(2, 3, 5)' -1 1 "$pairs"
    of_each --projection '(2, 6, 4)' -1 1 "$favor"
    inputs=$(without --out "$one")
    # shellcheck disable=SC2086
    for bias in --projection-bias "--q-projection $i/W2.npy --q-projection-bias"; do
        q=$(echo "$bias" | sed -n "s|W2|two_W2|p")
        two '(2, 6, 4)' "$i/W2.npy" "$i/W2.npy" > "$work/name"
        each_head "${bias##* }" "--projection $i/W.npy $bias $i/c1.npy" \
            "--projection $i/W.npy $bias $i/c2.npy" \
            "--projection $(two '(2, 6, 4)' "$i/W.npy" "$i/W.npy") ${q:-$bias} $(two '(2, 6)' \
                "$i/c1.npy" "$i/c2.npy")" --variant hedgehog $inputs
    done
}

# The learned map of a peer, of keys whose values are 1: it is what the state holds.
test_biased_projection() {
    name='a projection with a bias' f=hedgehog_map_fla_01
    wanted "$name" || return 0
    x=$(as_shape $f x '(28, 1, 1, 12)')
    random 28 1 1 1 | tensor ones '(28, 1, 1, 1)'
    launch "$attend" --variant hedgehog --hedgehog-kernel joint --q "$x" --k "$x" \
        --v "$i/ones.npy" --projection $golden/$f/W.npy --projection-bias $golden/$f/b.npy \
        --out "$work/out/o.npy" --state-out "$work/out/S.npy"
    verdict "$name" "$(said)$(close "$work/out/S.npy" $golden/$f/phi.npy 2e-6)"
}

# What the memory alone says in the second segment, by the same memory in both directions: the
# scale is not the memory's.
test_memory() {
    name='the memory of a segment'
    wanted "$name" || return 0
    printf '100\n100\n' | tensor certain '(2,)'
    # shellcheck disable=SC2046,SC2086
    {
        launch "$attend" $elu --bidirectional --key-lengths "$i/two.npy" --eps 0.5
        problem=$(said)
        numbers "$work/out/o.npy" | tail -n 10 | tensor want '(10,)'
        launch "$attend" $(without --beta "$infini") --beta "$i/certain.npy" --eps 0.5 --scale 2
    }
    numbers "$work/out/o.npy" | tail -n 10 | tensor have '(10,)'
    verdict "$name" "$problem$(said)$(close "$i/have.npy" "$i/want.npy" 2e-6)"
}

# The last token of a random Synthesizer, alone.
test_last_token() {
    name='the last token of a synthesizer'
    wanted "$name" || return 0
    # shellcheck disable=SC2086
    launch "$attend" $random
    numbers "$work/out/o.npy" | tail -n 10 | tensor want '(1, 1, 2, 5)'
    problem=$(said)
    # shellcheck disable=SC2086
    launch "$attend" $random --tokens 1 --compare "$i/want.npy" --tolerance 1e-6
    [ $status -eq 0 ] || problem="$problem; status $status: $(said)"
    verdict "$name" "$problem"
}

# ahead COUNT FILE: its first numbers.
ahead() {
    numbers "$2" | head -n "$1"
}

# With a length of 2 the third token is as if it were not there: its outputs are 0.
test_lengths() {
    for variant in elu favor gla gdn; do
        name="a length of 2: $variant"
        wanted "$name" || continue
        eval "arguments=\$$variant"
        # shellcheck disable=SC2154
        arguments=$(echo "$arguments" | sed 's|--out [^ ]*||')
        # shellcheck disable=SC2086
        {
            launch "$attend" $arguments --form recurrent --out "$work/out/all.npy"
            problem=$(said)
            launch "$attend" $arguments --form recurrent --out "$work/out/o.npy" \
                --lengths "$i/two.npy"
            problem="$problem$(said)"
        }
        { ahead 20 "$work/out/all.npy"; random 10 1 0 0; } | tensor length '(1, 3, 2, 5)'
        verdict "$name" "$problem$(cmp "$work/out/o.npy" "$i/length.npy" 2>&1)"
    done
    name='a length of 2: the keys of a bidirectional layer'
    wanted "$name" || return 0
    for x in k v; do
        ahead 20 "$i/$x.npy" | awk -v n=$(($(numbers "$i/$x.npy" | wc -l) / 3 * 2)) 'NR <= n' |
            tensor "fewer_$x" "(1, 2, 2, $(($(numbers "$i/$x.npy" | wc -l) / 6)))"
    done
    # shellcheck disable=SC2086
    launch "$attend" $elu --bidirectional --key-lengths "$i/two.npy"
    problem=$(said)
    launch "$attend" --variant elu --bidirectional --q "$i/q.npy" --k "$i/fewer_k.npy" \
        --v "$i/fewer_v.npy" --out "$work/out/fewer.npy"
    verdict "$name" "$problem$(said)$(close "$work/out/o.npy" "$work/out/fewer.npy" 0)"
}

# The state of a causal run, read by queries alone, gives the last token's output again; a
# projection for each head that is the same for all gives what a shared one gives.
test_reading() {
    for x in k:4 v:5; do
        printf '' | npy '<f4' False "(1, 0, 2, ${x#*:})" > "$i/no_${x%:*}.npy"
    done
    { numbers "$i/W.npy"; numbers "$i/W.npy"; } | tensor WW '(2, 6, 4)'
    for row in "elu" "favor --projection $i/W.npy" "favor --projection $i/WW.npy"; do
        name="reads a state without keys: $row"
        wanted "$name" || continue
        max=
        case $row in favor*) max=max ;; esac
        ins= outs=
        for part in state norm $max; do
            ins="$ins --$part-in $work/out/read_$part.npy"
            outs="$outs --$part-out $work/out/read_$part.npy"
        done
        # shellcheck disable=SC2086
        {
            launch "$attend" --variant $row $one $outs
            problem=$(said)
            launch "$attend" --variant $row --bidirectional --q "$i/q.npy" --k "$i/no_k.npy" \
                --v "$i/no_v.npy" --out "$work/out/read.npy" $ins
        }
        for file in o read; do
            numbers "$work/out/$file.npy" | tail -n 10 | tensor "last_$file" '(1, 1, 2, 5)'
        done
        verdict "$name" "$problem$(said)$(close "$i/last_read.npy" "$i/last_o.npy" 2e-6)"
    done
    name='a projection for each head'
    wanted "$name" || return 0
    # shellcheck disable=SC2086
    {
        launch "$attend" $favor
        mv "$work/out/o.npy" "$work/out/shared.npy"
        launch "$attend" --variant favor --projection "$i/WW.npy" $one
    }
    verdict "$name" "$(said)$(cmp "$work/out/o.npy" "$work/out/shared.npy" 2>&1)"
}

test_empty() {
    name='no tokens hand the state through'
    wanted "$name" || return 0
    for row in 'q 4' 'k 4' 'v 5'; do
        printf '' | npy '<f4' False "(1, 0, 2, ${row#* })" > "$i/empty_${row% *}.npy"
    done
    launch "$attend" --variant deltanet --q "$i/empty_q.npy" --k "$i/empty_k.npy" \
        --v "$i/empty_v.npy" --state-in "$i/S.npy" --out "$work/out/o.npy" \
        --state-out "$work/out/S.npy"
    problem=
    [ $status -eq 0 ] || problem="status $status: $(said)"
    verdict "$name" "$problem$(cmp "$work/out/S.npy" "$i/S.npy" 2>&1)"
    # shellcheck disable=SC2086
    refused 'timing no tokens' --repeat --variant deltanet --q "$i/empty_q.npy" \
        --k "$i/empty_k.npy" --v "$i/empty_v.npy" --out "$work/out/o.npy" --repeat 2
}

# A pipe is written to, not replaced by a file.
test_pipe() {
    name='writes into a pipe'
    wanted "$name" && mkfifo "$work/pipe" || return 0
    cat "$work/pipe" > "$work/piped" &
    # shellcheck disable=SC2046
    launch "$attend" $(echo "$gdn" | sed "s|--out [^ ]*|--out $work/pipe|")
    problem=
    [ -p "$work/pipe" ] || problem='it is no pipe any more'
    if [ $status -eq 0 ] && [ -z "$problem" ]; then wait $!; else kill $!; fi
    verdict "$name" "$problem$(cmp "$work/piped" "$i/ref.npy" 2>&1)"
}

test_help() {
    name='lists its options'
    wanted "$name" || return 0
    launch "$attend" --help
    problem=
    [ $status -eq 0 ] || problem="status $status"
    for option in variant form chunk isa bidirectional scale eps eps-mode l2norm l2-eps horizon \
        position head-map state-layout threads repeat q k v log-decay beta projection favor-kernel \
        q-projection hedgehog-kernel nu feature-eps l2-mode lengths state-in norm-in max-in out \
        state-out norm-out max-out compare tolerance window sinks bias logits lse-out erase bonus \
        a b key-lengths projection-bias q-projection-bias skip out-gate segment update E F kind \
        factorised w1 b1 w2 b2 tokens; do
        grep -q "^  --$option " "$work/stdout" || problem="$problem; not --$option"
    done
    for variant in elu mapped softmax sigmoid infini linformer synthesizer rwkv4 hgrn; do
        grep -q "^Variants:.* $variant\b" "$work/stdout" || problem="$problem; not $variant"
    done
    verdict "$name" "$problem"
}

# ---- text_memory ---------------------------------------------------------------------------------

# complains NAME ARGUMENT...: one line, status 2, nothing on standard output.
complains() {
    name="text_memory: $1"
    shift
    wanted "$name" || return 0
    launch "$text_memory" "$@"
    problem=
    [ $status -eq 2 ] || problem="status $status, not 2"
    one_line 'text_memory: ' || problem="$problem; not one line: $(said)"
    [ ! -s "$work/stdout" ] || problem="$problem; standard output is not empty"
    verdict "$name" "$problem"
}

# The two tables: order-0 first, numbers in range, the delta rule clearly ahead in the second.
check_tables() {
    awk '
        function fail(text) { if (!failed++) print text }
        /, [0-9]+ bytes/ { table++; rows = 0 }
        $0 ~ / %/ {
            for (n = 1; $n != "%"; n++) ;
            bits = $(n - 2)
            hits = $(n - 1)
            if (!rows++ && $1 != "order-0") fail("the first line is not order-0")
            if (!(bits > 0 && bits < 16 && hits >= 0 && hits <= 100)) fail("odd numbers: " $0)
            if ($1 != "order-0" && !($(n + 1) + 0 > 0)) fail("no speed: " $0)
            b[table, $1] = bits
            h[table, $1] = hits
            last = rows
        }
        END {
            if (table != 2 || last != 18) fail(table " tables, " last " lines in the last")
            if (!(b[2, "deltanet"] < b[2, "retnet"] - 0.5)) fail("delta rule not ahead in bits")
            if (!(h[2, "deltanet"] > h[2, "retnet"] + 10)) fail("delta rule not ahead in top-1")
            if (!(b[2, "deltanet"] < b[2, "order-0"] - 0.5)) fail("delta rule not ahead of order-0")
        }' "$work/stdout"
}

test_text() {
    complains 'a missing file' "$work/none.txt"
    complains 'a directory' "$work"
    : > "$work/empty.txt"
    complains 'an empty file' "$work/empty.txt"
    complains 'two files' "$work/in/q.npy" "$work/in/k.npy"
    random 1500 4 97 123 | awk '{ printf "%c", int($1) }' > "$work/letters.txt"
    name='text_memory: two tables'
    wanted "$name" || return 0
    launch "$text_memory" "$work/letters.txt"
    problem=
    [ $status -eq 0 ] || problem="status $status: $(said)"
    [ ! -s "$work/stderr" ] || problem="$problem; says $(said)"
    verdict "$name" "$problem$(check_tables)"
    printf '\000' > "$work/byte.bin"
    launch "$text_memory" "$work/byte.bin"
    problem=
    [ $status -eq 0 ] || problem="status $status: $(said)"
    verdict 'text_memory: one zero byte' "$problem$(check_tables)"
}

make_inputs
test_golden
test_attention
test_systems
test_scans
test_numbers
test_options
test_unused
test_required
test_files
test_shapes
test_system_shapes
test_system_values
test_outputs
test_older_output
test_probes
test_compare
test_runs
test_split
test_lengths
test_heads
test_biased_projection
test_memory
test_last_token
test_reading
test_empty
test_pipe
test_help
test_text

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
