# A C compiler and GNU make are all that `make`, `make demo` and `make test` need. A check whose
# tool is missing says so and is skipped; where CI is set in the environment, it fails.
# Everything generated goes under build/.

CFLAGS ?= -O2 -std=c99
PREFIX ?= /usr/local
LDLIBS = -lm -pthread
EXTRA =
TEST_OPTIONS =
FUZZ_TIME = 20
FUZZ_OPTIONS =
# OpenBLAS is one of the baselines of the bench where there is one; `make OPENBLAS=` leaves it out.
OPENBLAS = $(shell pkg-config --exists openblas 2>/dev/null && echo openblas)
BUILD = build

WARNINGS = -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual \
	-Wcast-align -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wdouble-promotion -Wvla
COMPILE = $(CC) -Iinclude $(CPPFLAGS) $(CFLAGS) $(WARNINGS) $(EXTRA)
COMPILE_CXX = $(CXX) -Iinclude $(CPPFLAGS) -O2 -std=c++11 \
	$(filter-out -Wstrict-prototypes -Wmissing-prototypes,$(WARNINGS)) $(EXTRA)
LINK = $(CC) $(CFLAGS) $(EXTRA) $(LDFLAGS)

HEADER = include/linear_attention.h
EXAMPLES = $(patsubst examples/%.c,$(BUILD)/%,$(wildcard examples/*.c)) $(CXX_EXAMPLES)
CXX_EXAMPLES = $(if $(shell command -v $(CXX)),$(CXX_SOURCES:examples/%.cpp=$(BUILD)/%))
CXX_SOURCES = $(wildcard examples/*.cpp)
BENCH = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard bench/*.c))
TESTS = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/*.c))
FUZZ = $(patsubst %.c,$(BUILD)/obj/%.o,tests/fuzz/input.c tests/oracle.c tests/main.c)
FUZZERS = $(BUILD)/fuzz $(BUILD)/fuzz_extras
PROGRAMS = $(EXAMPLES) $(if $(BENCH),$(BUILD)/bench)
LINTED = $(wildcard tests/*.c tests/fuzz/*.c examples/*.c bench/*.c)
SCRIPTS = $(wildcard .ci/run tests/*.sh tests/*/*.sh)
SOURCES = $(wildcard include/*.h examples/*.[ch] examples/*.cpp bench/*.[ch] \
	tests/*.[ch] tests/*/*.[ch])

VALGRIND_TESTS = promise_3_divisible_no promise_4_independent_of_what promise_5 input_good \
	input_over helpers
RUN_attend = --variant gated-deltanet --scale 0.22360679774997896 \
	$(foreach x,q k v beta,--$(x) tests/golden/gdn_02/$(x).npy) \
	--log-decay tests/golden/gdn_02/g.npy --state-in tests/golden/gdn_02/S0.npy \
	--out $(BUILD)/out.npy --compare tests/golden/gdn_02/o.npy
TSAN_TESTS = threads reentrant
# A float that no int can hold is not among gcc's `undefined`.
UNDEFINED = undefined,float-cast-overflow -fno-sanitize-recover=undefined,float-cast-overflow
FUZZ_SANITIZERS = -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
	-fno-sanitize-coverage=trace-cmp
MSAN_TESTS = forms_lengths forms_states variants_lengths variants_states bidirectional_lengths \
	serving_ragged serving_snapshots_are_what input_good promise_4_independent_of_what golden
# Compilers, and what runs their programs: the portable kernels on other machines, musl, and x86 in
# 32 bits, where the AVX ones run, too.
MACHINES = arm-linux-gnueabihf-gcc:qemu-arm riscv64-linux-gnu-gcc:qemu-riscv64 \
	s390x-linux-gnu-gcc:qemu-s390x i686-linux-gnu-gcc: musl-gcc:
MACHINE_TESTS = helpers input_good input_null input_sizes golden_cases forms_lengths forms_l2 \
	variants_features promise_3_divisible_no serving_states serving_spoilt example probe
RUN_text_memory = README.md
# What is left out here reports what the sanitizers see better, or what is meant: bits compared with
# memcmp, sizes that share a type, int products that index small arrays, _POSIX_C_SOURCE.
TIDY = -*,bugprone-*,clang-analyzer-unix*,clang-analyzer-deadcode*,$\
	-bugprone-suspicious-memory-comparison,-bugprone-easily-swappable-parameters,$\
	-bugprone-implicit-widening-of-multiplication-result,-bugprone-narrowing-conversions,$\
	-bugprone-reserved-identifier,-bugprone-macro-parentheses,$\
	-bugprone-misplaced-pointer-arithmetic-in-alloc
LIBM_NAMES = (exp|exp2|expm1|log|log1p|sqrt|fma|pow|sin|cos|sincos)f?
LIBC_NAMES = (mem(cpy|move|set|cmp)|strcmp|strlen|$(LIBM_NAMES))

# The first ```c block of the README, which is a whole program.
README_PROGRAM = awk '/^```/ { if (on) exit; on = ($$0 == "```c"); next } on' README.md

# $(call need,TOOL ...) ends a recipe whose tools are missing: well, or as a failure in CI.
need = for tool in $(1); do command -v $$tool >/dev/null || \
	{ echo "$@: skipped, there is no $$tool here"; [ -z "$$CI" ]; exit; }; done

# A plain `make` uses the processors that are there.
JOBS := $(shell nproc 2>/dev/null || echo 1)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS)
endif

.ONESHELL:
.SHELLFLAGS = -ec
.SUFFIXES:
.DELETE_ON_ERROR:
.PHONY: all help test demo bench examples check check-asan check-ubsan check-tsan check-valgrind \
	check-compile check-arm check-include check-symbols check-style check-lint check-fuzz check-msan \
	check-coverage check-budget check-machines \
	install uninstall clean FORCE

all: $(PROGRAMS) ## Build the examples and the bench (the default)
	@$(if $(CXX_EXAMPLES),,echo 'no C++ compiler here: skipped $(CXX_SOURCES)')

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' Makefile

test: $(BUILD)/attend $(BUILD)/text_memory $(BUILD)/bench
test: $(BUILD)/tests ## Run the tests; the last line says: N passed, N failed
	@{
		for script in $(wildcard tests/programs.sh tests/bench.sh); do
			BUILD=$(BUILD) sh $$script || echo "failed: $$script, status $$?"
		done >$(BUILD)/programs.log 2>&1 &
		$(BUILD)/tests $(TEST_OPTIONS) || echo "failed: $(BUILD)/tests, status $$?"
		wait
		cat $(BUILD)/programs.log
	} 2>&1 | tee $(BUILD)/test.log
	awk '/^[0-9]+ passed, [0-9]+ failed/ { passed += $$1; failed += $$3 }
		/^failed: .*, status [0-9]+$$/ { bad++ }
		END {
			if (failed < bad) failed = bad
			printf "%d passed, %d failed\n", passed, failed
			exit failed > 0 || passed == 0
		}' $(BUILD)/test.log

demo: $(BUILD)/text_memory ## Predict a text byte by byte, the layer's state as the only memory
	@$(BUILD)/text_memory README.md

bench: $(BUILD)/bench ## Measure the kernels against the limits of this machine
	@$(BUILD)/bench

check: test examples check-include check-symbols check-style check-lint check-compile check-asan
check: check-tsan check-msan check-valgrind check-arm check-machines check-budget check-coverage
check: check-fuzz ## All of the checks below but one, and the tests

check-asan: ## The tests with the sanitizers of addresses and of undefined behaviour
	@$(MAKE) BUILD=build/asan TEST_OPTIONS='--thin 12' \
		EXTRA='-g -O1 -fsanitize=address,$(UNDEFINED)' test

check-ubsan: ## The tests with the undefined behaviour sanitizer alone
	@$(MAKE) BUILD=build/ubsan TEST_OPTIONS='--thin 4' \
		EXTRA='-g -O1 -fsanitize=$(UNDEFINED)' test

check-tsan: ## The tests that start threads, with the thread sanitizer
	@$(MAKE) BUILD=build/tsan EXTRA='-g1 -O1 -fsanitize=thread' build/tsan/tests
	build/tsan/tests --thin 4 $(TSAN_TESTS)

check-valgrind: ## Some of the tests in valgrind, with each instruction set it has
	@$(call need,valgrind)
	$(MAKE) BUILD=build/valgrind EXTRA='-g -O1 -DTEST_TIGHT' build/valgrind/tests
	valgrind -q --error-exitcode=1 --leak-check=full build/valgrind/tests --thin 4 \
		$(VALGRIND_TESTS)

check-msan: ## Some of the tests with the memory sanitizer of clang
	@$(call need,clang)
	$(MAKE) BUILD=build/msan CC=clang CXX=none OPENBLAS= \
		EXTRA='-g1 -O1 -fsanitize=memory -fno-sanitize-recover=all' build/msan/tests
	build/msan/tests --thin 8 $(MSAN_TESTS)

# In the portable build each line is compiled once. Lines of the other passes are not counted.
check-coverage: ## Lines of the header that the tests run, in the portable build: 95 % or more
	@$(call need,gcc gcov)
	build=build/coverage
	rm -f $$build/obj/tests/*.gcda
	$(MAKE) BUILD=$$build CC=gcc CXX=none CFLAGS='-O1 -std=c99' \
		EXTRA='--coverage -DLA_NO_SIMD' $$build/tests
	$$build/tests --thin 8 $$($$build/tests --list | grep -v _stack) > $$build/tests.log ||
		{ cat $$build/tests.log; exit 1; }
	gcov -o $$build/obj/tests $$build/obj/tests/main.gcda > $$build/gcov.log
	mv *.gcov $$build
	awk -F : '$$1 ~ /#####/ { print "not run:" $$2 ":" $$3; missed++ }
		$$1 ~ /[0-9]/ { run++ }
		END {
			percent = 100 * run / (run + missed)
			printf "%.1f %% of %d lines\n", percent, run + missed
			exit !(percent >= 95)
		}' $$build/linear_attention.h.gcov

# A slow machine is no fault of the header: the oracle of the tests is what the time is compared to,
# the shortest of three times each, since the machine may have something else to do.
check-budget: ## Seconds to compile the implementation, its size, its stack
	@$(call need,gcc size)
	mkdir -p $(BUILD)
	seconds() {
		(gcc -Iinclude -O2 -std=c99 "$$@" -c -o $(BUILD)/budget.o; times) |
			awk 'END { split($$1, part, "[ms]"); print 60 * part[1] + part[2] }' # user time
	}
	implementation() {
		echo '#include "linear_attention.h"' > $(BUILD)/budget.c
		seconds -Wstack-usage=4096 -Werror -DLA_IMPLEMENTATION "$$@" $(BUILD)/budget.c
	}
	at_most() {
		echo "$$1: $$2, at most $$3"
		awk "BEGIN { exit !($$2 <= $$3) }" || bad=1
	}
	text() { size $(BUILD)/budget.o | awk 'END { print $$1 }'; }
	bad=0
	least() { echo "$$1 $$2" | awk '{ print ($$1 < $$2 ? $$1 : $$2) }'; }
	# samples of one length: short ones find the fast moments of a shared machine, long ones do not
	fifteen() { for j in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do seconds tests/oracle.c; done |
		awk '{ s += $$1 } END { print s }'; }
	oracle=1000 compile=1000
	for i in 1 2 3; do
		oracle=$$(least $$oracle $$(fifteen))
		compile=$$(least $$compile $$(implementation))
	done
	at_most 'seconds to compile' $$compile \
		$$(awk "BEGIN { print ($$oracle > 10 ? $$oracle : 10) }")
	at_most 'bytes, all of it' $$(text) 500000
	implementation -DLA_EXTRAS >/dev/null
	at_most 'bytes, with extras' $$(text) 600000
	implementation -DLA_NO_SIMD >/dev/null
	at_most 'bytes, the portable kernels' $$(text) 200000
	implementation -DLA_NO_SIMD -DLA_NO_CHUNKS -DLA_NO_FEATURES >/dev/null
	at_most 'bytes, recurrent, identity' $$(text) 80000
	implementation -DLA_NO_SIMD -DLA_NO_CHUNKS -DLA_NO_CHANNELS >/dev/null
	at_most 'bytes, recurrent, gates per token' $$(text) 80000
	exit $$bad

check-compile: ## Builds of all sorts, warnings as errors: compilers, standards, levels, options
	@MAKE='$(MAKE)' sh tests/compile/run.sh '$(WARNINGS)'

# A finding is left in build/fuzz; `build/fuzz/fuzz FILE` (or fuzz_extras) repeats it.
# Without the entropic schedule and the hooks of memcmp it is three times as fast.
check-fuzz: ## Any bytes as layers, calls and data, for FUZZ_TIME seconds: clang and libFuzzer
	@case '$(FUZZ_TIME)' in '' | *[!0-9]* | 0) echo 'FUZZ_TIME is not seconds'; exit 2 ;; esac
	$(call need,clang)
	mkdir -p build/fuzz/corpus build/fuzz/corpus_extras
	echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
		clang -fsanitize=fuzzer -x c -o build/fuzz/probe - 2>build/fuzz/probe.log || {
			echo "$@: skipped, this clang has no libFuzzer"
			[ -z "$$CI" ]
			exit
		}
	$(MAKE) CC=clang BUILD=build/fuzz LDFLAGS=-fsanitize=fuzzer,address,undefined \
		EXTRA='-g1 -O1 $(FUZZ_SANITIZERS)' build/fuzz/fuzz build/fuzz/fuzz_extras
	fuzz() { # target, seconds, corpora; the first one grows
		target=build/fuzz/$$1
		seconds=$$2
		shift 2
		$$target -max_total_time=$$seconds -max_len=512 -len_control=0 -timeout=60 -entropic=0 \
			-use_cmp=0 -print_final_stats=1 -artifact_prefix=build/fuzz/ $(FUZZ_OPTIONS) \
			"$$@" >$$target.log 2>&1 || { cat $$target.log; exit 1; }
		grep -E '^(Done|stat::)|DONE' $$target.log
	}
	half=$$(( ($(FUZZ_TIME) + 1) / 2 ))
	fuzz fuzz $$half build/fuzz/corpus tests/fuzz/corpus
	fuzz fuzz_extras $$half build/fuzz/corpus_extras tests/fuzz/corpus_extras

check-arm: ## All tests on aarch64, in an eighth of all ways: a cross compiler and qemu
	@$(call need,aarch64-linux-gnu-gcc qemu-aarch64)
	tests=build/arm/tests
	$(MAKE) CC=aarch64-linux-gnu-gcc CXX=none LDFLAGS=-static BUILD=build/arm $$tests
	run() { qemu-aarch64 $$tests --thin 8 $$1 >$$tests.$$2 2>&1 && bad=0 || bad=$$?; return $$bad; }
	bad=0
	run promise 1 & promises=$$!
	run "$$(qemu-aarch64 $$tests --list | grep -v promise)" 2 || bad=1
	wait $$promises || bad=1
	cat $$tests.1 $$tests.2
	for level in -O0 -O3; do
		aarch64-linux-gnu-gcc -static -Iinclude -std=gnu17 $$level $(WARNINGS) -Werror \
			-o build/arm/program$$level tests/compile/program.c -lm
		qemu-aarch64 build/arm/program$$level >build/arm/program$$level.out || bad=1
	done
	diff build/arm/program-O0.out build/arm/program-O3.out || bad=1
	exit $$bad

check-machines: ## Some of the tests on 32-bit arm, riscv64, s390x, 32-bit x86, and with musl
	@$(call need,$(subst :, ,$(MACHINES)))
	for machine in $(MACHINES); do # each one's tests run while the next one's are built
		compiler=$${machine%:*}
		build=build/$$compiler
		rm -f $$build/passed
		$(MAKE) CC=$$compiler CXX=none CFLAGS='-O1 -std=c99' LDFLAGS=-static BUILD=$$build \
			EXTRA=-Wno-double-promotion $$build/tests # s390x evaluates float as double
		{
			$${machine#*:} $$build/tests --thin 8 $(MACHINE_TESTS) && touch $$build/passed
		} >$$build/tests.log 2>&1 &
	done
	wait
	cat $(foreach machine,$(MACHINES),build/$(firstword $(subst :, ,$(machine)))/tests.log)
	ls $(foreach machine,$(MACHINES),build/$(firstword $(subst :, ,$(machine)))/passed)

check-include: ## The README's program, with the installed header; the header's table of contents
	@mkdir -p $(BUILD)
	$(README_PROGRAM) > $(BUILD)/readme.c
	stage='$(CURDIR)/$(BUILD)/stage'
	rm -rf "$$stage"
	$(MAKE) -s DESTDIR="$$stage" PREFIX=/opt/la install
	flags="-I$$stage/opt/la/include -lm"
	! command -v pkg-config >/dev/null || flags=$$(PKG_CONFIG_SYSROOT_DIR="$$stage" \
		PKG_CONFIG_PATH="$$stage/opt/la/share/pkgconfig" pkg-config --cflags --libs linear_attention)
	$(CC) $(CFLAGS) $(WARNINGS) -Werror -o $(BUILD)/readme $(BUILD)/readme.c $$flags
	$(BUILD)/readme | tee $(BUILD)/readme.txt
	grep -q '^success' $(BUILD)/readme.txt
	$(MAKE) -s DESTDIR="$$stage" PREFIX=/opt/la uninstall
	test -z "$$(find "$$stage" -type f)" || { echo "uninstall left files"; exit 1; }
	awk '/CONTENTS/ && !tags { contents = 1 }
		{
			found = 0
			for (line = $$0; match(line, /\[LA-[0-9]+\]/); line = substr(line, RSTART + RLENGTH)) {
				tag = substr(line, RSTART, RLENGTH)
				count[tag]++
				if (contents) tags += !listed[tag]++
				found = 1
			}
			if (tags && !found) contents = 0
		}
		END {
			if (!tags) bad = 1
			for (tag in listed) if (count[tag] != 2 || listed[tag] != 1) {
				print tag ": " count[tag] + 0 " times, " listed[tag] + 0 " of them in the contents"
				bad = 1
			}
			print "sections in the contents: " tags + 0
			exit bad
		}' $(HEADER)

check-symbols: ## Names: la_* defined, libc and libm used, one variable; with LA_STATIC none defined
	@$(call need,nm)
	mkdir -p $(BUILD)
	object() {
		echo '#include "linear_attention.h"' | $(CC) -Iinclude -O2 -fno-pic -DLA_IMPLEMENTATION \
			$$2 -x c -c -o $(BUILD)/$$1.o -
	}
	bad=0
	none() { [ -z "$$2" ] || { echo "$$1:"; echo "$$2"; bad=1; } }
	object symbols -DLA_EXTRAS
	o=$(BUILD)/symbols.o
	none 'external' "$$(nm -g --defined-only $$o | awk '$$NF !~ /^la_/')"
	none 'not allowed' "$$(nm -u $$o | awk '$$NF !~ /^($(LIBC_NAMES))$$/')"
	none 'a second variable' "$$(nm $$o | awk '$$2 ~ /[bBdDC]/ && n++')"
	object static '-DLA_STATIC -DLA_EXTRAS'
	none 'external with LA_STATIC' "$$(nm -g --defined-only $(BUILD)/static.o)"
	echo "$$(nm -g --defined-only $(BUILD)/symbols.o | grep -c ' T la_') external functions"
	exit $$bad

check-style: ## No long lines, no tabs, no trailing blanks, no long functions
	@export LC_ALL=C.UTF-8
	bad=0
	! grep -nE '^.{101,}' $(SOURCES) $(SCRIPTS) Makefile || bad=1
	! grep -nE '[[:blank:]]+$$' $(SOURCES) $(SCRIPTS) Makefile $(wildcard *.md) || bad=1
	! grep -n "$$(printf '\t')" $(SOURCES) $(SCRIPTS) || bad=1
	[ $$bad = 0 ]
	$(call need,ctags)
	ctags --language-force=C --kinds-C=f --fields=+ne --output-format=u-ctags -f - $(SOURCES) |
		awk -F '\t' '{
			for (i = 4; i <= NF; i++) {
				if ($$i ~ /^line:/) first = substr($$i, 6)
				if ($$i ~ /^end:/) last = substr($$i, 5)
			}
			n++
			if (last - first >= 80) { print $$2 ": " $$1 ": " last - first + 1 " lines"; bad = 1 }
		}
		END { print n + 0 " functions"; exit bad || !n }'

check-lint: ## cppcheck and clang-tidy
	@$(call need,cppcheck)
	cppcheck -q -j $(JOBS) --std=c99 --enable=warning,performance,portability --inline-suppr \
		--suppress=uninitvar:$(HEADER) --suppress=resourceLeak:tests/golden.h \
		--error-exitcode=1 -DLA_NO_SIMD -Iinclude $(LINTED)
	$(call need,clang-tidy)
	printf '%s\n' $(LINTED) | xargs -P $(JOBS) -I {} clang-tidy --quiet --warnings-as-errors='*' \
		--checks='$(TIDY)' {} -- -std=c99 -Iinclude 2>/dev/null

examples: $(EXAMPLES) ## Build and run every example
	@$(foreach example,$(EXAMPLES),echo '== $(example)'; $(example) $(RUN_$(notdir $(example)));)

install: ## Install the header and its .pc file (DESTDIR, PREFIX=/usr/local)
	@root='$(DESTDIR)$(PREFIX)'
	version=$$(awk '/^#define LA_VERSION / {
		printf "%d.%d.%d", $$3 / 10000, $$3 / 100 % 100, $$3 % 100 }' $(HEADER))
	install -d "$$root/include" "$$root/share/pkgconfig"
	install -m 644 $(HEADER) "$$root/include"
	cat > "$$root/share/pkgconfig/linear_attention.pc" <<-end
		prefix=$(PREFIX)
		includedir=\$${prefix}/include

		Name: linear_attention
		Description: Linear attention for the CPU in one C header
		Version: $$version
		Cflags: -I\$${includedir}
		Libs: -lm
	end
	echo "installed linear_attention $$version in $$root"

uninstall: ## Remove what install has put there
	@rm -f '$(DESTDIR)$(PREFIX)/include/linear_attention.h'
	rm -f '$(DESTDIR)$(PREFIX)/share/pkgconfig/linear_attention.pc'

clean: ## Remove build/
	@rm -rf build

# Objects depend on the headers they include (.d) and on the command that compiles them (flags).
$(EXAMPLES): $(BUILD)/%: $(BUILD)/obj/examples/%.o
$(CXX_EXAMPLES): LINK = $(CXX) -O2 $(EXTRA) $(LDFLAGS)
$(BUILD)/bench: $(BENCH)
ifneq ($(OPENBLAS),)
$(BUILD)/bench: LDLIBS += $(shell pkg-config --libs $(OPENBLAS))
$(BUILD)/obj/bench/baselines.o: TUNE += -DBENCH_WITH_OPENBLAS \
	$(shell pkg-config --cflags $(OPENBLAS))
endif
# What the library is compared to gets what a compiler can do for it.
$(BUILD)/obj/bench/baselines.o: TUNE += -O3
$(BUILD)/obj/bench/machine.o: TUNE += -DBENCH_FLAGS='"$(strip $(CPPFLAGS) $(CFLAGS) $(EXTRA))"'
$(BUILD)/tests: $(TESTS)
# libFuzzer brings its own main; that of the tests comes along with their harness.
$(FUZZERS): $(FUZZ)
$(BUILD)/fuzz: $(patsubst %,$(BUILD)/obj/tests/fuzz/%.o,fuzz case)
$(BUILD)/fuzz_extras: $(patsubst %,$(BUILD)/obj/tests/fuzz/%.o,extras extra extra_oracle)
$(FUZZERS): TUNE += -Dmain=main_of_tests -Wno-missing-prototypes
$(PROGRAMS) $(BUILD)/tests $(FUZZERS):
	@echo 'LINK $@'
	$(LINK) -o $@ $^ $(LDLIBS)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	echo 'CC $@'
	$(COMPILE) $(TUNE) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	echo 'CXX $@'
	$(COMPILE_CXX) -MMD -MP -c -o $@ $<

$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	echo '$(COMPILE) $(CXX) $(LDFLAGS)' | cmp -s - $@ || echo '$(COMPILE) $(CXX) $(LDFLAGS)' > $@

-include $(wildcard $(BUILD)/obj/*/*.d $(BUILD)/obj/*/*/*.d)
