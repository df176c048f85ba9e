# What the black-box tests share: `. tests/harness.sh`, with $filter set.
passed=0
failed=0

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
