# One-line verbs over the presets in CMakePresets.json.
.PHONY: demo demo-build test build configure setup dev core-only core-test asan asan-torch tsan \
	format bench docs python clean
PRESET ?= release
# Tests that compute have a processor each (tools/one-processor); two more run that wait.
TESTS_AT_ONCE := $(shell expr $$(nproc) + 2)

demo: demo-build
	@tools/demo
demo-build: configure
	@tools/progress cmake --build --preset $(PRESET) --target linerate linerate-torch
test: build
	@ctest --preset $(PRESET) -j$(TESTS_AT_ONCE) $(CTEST_ARGS)
build: configure
	@tools/progress cmake --build --preset $(PRESET)
configure: setup
	@cmake --preset $(PRESET) >build-configure.log 2>&1 || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log
setup:
	@tools/setup
core-only:
	@tools/setup --no-torch
	@cmake --preset core-only >build-configure.log 2>&1 || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log
	@tools/progress cmake --build --preset core-only --target linerate
	@echo 'Try: build/core-only/linerate explain tests/trace/fixtures/late2.rank*.json.gz'
core-test: core-only
	@cmake --build --preset core-only && ctest --preset core-only -j$(TESTS_AT_ONCE)
dev asan tsan:
	@cmake --preset $@ && cmake --build --preset $@ && ctest --preset $@ -j$(TESTS_AT_ONCE)
asan-torch:
	@cmake --preset $@ && cmake --build --preset $@ && ctest --preset $@ -j$(TESTS_AT_ONCE) && \
		ctest --preset asan-mpi -j$(TESTS_AT_ONCE)
python:
	@tools/setup --analysis
	@tools/python-package
format:
	@git ls-files '*.cpp' '*.hpp' | xargs clang-format-14 -i
bench: configure
	@cmake --build --preset $(PRESET) --target linerate_benches
	@ls build/$(PRESET)/bench
docs:
	@tools/setup --docs && tools/api-reference build/docs
clean:
	@rm -rf build
