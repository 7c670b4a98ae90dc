"""Configuring, building, running ctest, and starting the program that was built."""

import os
from pathlib import Path

from x import lock, packages
from x.shell import ROOT, Failed, jobs_count, replace_process, run

# ctest's own limit per test executable: far above what any takes, so that a hang ends.
TEST_SECONDS_MAX = 600
# ThreadSanitizer multiplies the time of tests whose threads wait for each other.
TSAN_TEST_SECONDS_MAX = 3 * TEST_SECONDS_MAX

# What `tandem bench` can measure, as apps/bench_verbs.h lists it.
BENCH_PARTS = ("engine", "comm", "transfer")

SERVE_USAGE = """./x serve [MODEL] [options]

Installs what is missing, builds, and runs `tandem serve` with the same words. MODEL is
models/tiny-moe, --host 127.0.0.1 and --port 8000 unless they are given."""

BENCH_USAGE = f"""./x bench [{'|'.join(BENCH_PARTS)}] [options]

Builds, and runs `tandem bench` with the same words; of the engine unless a part is named."""

# Options of `tandem serve` without a value.
SWITCHES = (
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--enable-expert-parallel",
    "--enable-eplb",
    "--disable-log-requests",
    "--log-probes",
    "--help",
    "-h",
)


def folder(preset: str) -> Path:
    return ROOT / "build" / preset


def configure(preset: str) -> None:
    """Runs CMake when the preset has no build files or older ones; Ninja sees to the rest."""
    ninja = folder(preset) / "build.ninja"
    presets = ROOT / "CMakePresets.json"
    if not ninja.exists() or ninja.stat().st_mtime < presets.stat().st_mtime:
        run(["cmake", "--preset", preset])


def build(preset: str, targets: list[str] | None = None) -> None:
    """Target `build.ninja` brings the build files up to date and compiles nothing."""
    try:
        with lock.hold(preset):
            configure(preset)
            command = ["cmake", "--build", "--preset", preset, "--parallel", str(jobs_count())]
            run(command + (["--target", *targets] if targets else []))
    except Failed as failure:
        names = packages.missing()
        if names:
            hint = f"missing packages ({' '.join(names)}): run ./x setup"
            raise Failed(f"{failure}\n{hint}") from None
        raise


def ctest(preset: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
    """One test executable after another: they use all cores themselves, and time some things."""
    seconds_max = TSAN_TEST_SECONDS_MAX if preset == "tsan" else TEST_SECONDS_MAX
    command = ["ctest", "--test-dir", str(folder(preset).relative_to(ROOT)), "--no-tests=error"]
    command += ["--output-on-failure", "--timeout", str(seconds_max), *arguments]
    run(command, environment=environment)


def sanitized_ctest(preset: str, tests: list[str] | None = None) -> None:
    """All tests or those named, without the benchmarks, which measure nothing under a sanitizer,
    and without label `slow`, which would take minutes there."""
    options = {
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"
        f":suppressions={ROOT}/tools/tsan.txt",
    }
    chosen = ["--tests-regex", f"^({'|'.join(tests)})$"] if tests else []
    ctest(preset, "--label-exclude", "^(bench|slow)$", *chosen, environment=options)


def program_path() -> Path:
    """Where the release program is, once it is built."""
    return folder("release") / "apps/tandem"


def program() -> str:
    """Builds the release program and returns its path."""
    if not (ROOT / "apps/CMakeLists.txt").exists():
        raise Failed("this checkout has no apps/ folder, so there is no tandem program to run")
    build("release", ["tandem"])
    return str(program_path())


def asks_for_help(arguments: list[str]) -> bool:
    return "--help" in arguments or "-h" in arguments


def show_help(usage: str, command: list[str]) -> None:
    """The program's own help when it is there; who asks what can be given waits for no build."""
    print(usage, flush=True)
    path = program_path()
    if path.exists():
        replace_process([str(path), *command])
    print("\nThe flags are in docs/flags.md. The program prints them here after ./x build.")


def is_positional(word: str, before: str) -> bool:
    """Whether a word is neither an option nor the value of the one before it."""
    takes_value = before.startswith("-") and "=" not in before and before not in SWITCHES
    return not word.startswith("-") and not takes_value


def names_model(arguments: list[str]) -> bool:
    """Whether --model is there, or a word that is not the value of the option before it."""
    before = ""
    for word in arguments:
        if word == "--model" or word.startswith("--model="):
            return True
        if is_positional(word, before):
            return True
        before = word
    return False


def serve_arguments(arguments: list[str]) -> list[str]:
    """`tandem serve` of what the user asked for; defaults only for what is not said."""
    has_model = names_model(arguments)
    result = ["serve"] + ([] if has_model else ["models/tiny-moe"]) + arguments
    for option, value in (("--host", "127.0.0.1"), ("--port", "8000")):
        if not any(word == option or word.startswith(option + "=") for word in arguments):
            result += [option, value]
    return result


def serve(arguments: list[str]) -> None:
    if asks_for_help(arguments):
        show_help(SERVE_USAGE, ["serve", "--help"])
        return
    packages.setup(("build",))
    path = program()
    replace_process([path, *serve_arguments(absolute_model(arguments))])


def bench_arguments(arguments: list[str]) -> list[str]:
    """`engine` unless a part of `tandem bench`, or its help, is asked for."""
    asks_for_part = bool(arguments) and arguments[0] in (*BENCH_PARTS, "--help", "-h")
    return arguments if asks_for_part else ["engine", *arguments]


def absolute_model(arguments: list[str]) -> list[str]:
    """The same with a model folder as the user sees it: ./x works from the checkout's root."""
    result = list(arguments)
    for index, word in enumerate(arguments):
        before = arguments[index - 1] if index else ""
        if word.startswith("--model="):
            result[index] = "--model=" + os.path.abspath(word.removeprefix("--model="))
        elif before == "--model" or is_positional(word, before):
            result[index] = os.path.abspath(word)
    return result


def bench(arguments: list[str]) -> None:
    command = ["bench", *bench_arguments(arguments)]
    if asks_for_help(arguments):
        show_help(BENCH_USAGE, command)
        return
    replace_process([program(), *command])
