"""The command line of ./x."""

import argparse
import sys

from x import build, chaos, fuzzers, goldens, kills, models, packages, sims, sources, stages
from x.shell import Failed

PRESETS = ("release", "debug", "asan", "tsan")


def setup(_: argparse.Namespace) -> None:
    packages.setup()
    print("everything in tools/packages.txt is installed")


def tidy(options: argparse.Namespace) -> None:
    if options.self_test:
        stages.test_tools()
    else:
        stages.tidy_checkout()


def tsan(options: argparse.Namespace) -> None:
    tests = options.tests or []
    build.build("tsan", [f"{test}_test" for test in tests])
    build.sanitized_ctest("tsan", tests)


def run_kills(options: argparse.Namespace) -> None:
    program = options.program or build.program()
    kills.run(program, kills.seeds_of(options.seed, options.times, options.points))


def run_chaos(options: argparse.Namespace) -> None:
    program = options.program or build.program()
    chaos.run(program, options.minutes * 60, options.seed)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="./x", description="The one tool of the project.")
    verbs = top.add_subparsers(metavar="verb", required=True)

    def verb(name: str, action, text: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text)
        sub.set_defaults(action=action)
        return sub

    verb("setup", setup, "install the Debian packages of tools/packages.txt that are missing")
    sub = verb("build", lambda o: build.build(o.preset, o.target), "configure and build a preset")
    sub.add_argument("preset", nargs="?", default="release", choices=PRESETS)
    sub.add_argument("--target", action="append", help="build only this (repeatable)")
    # serve and bench take the program's own options, so main() hands those over unread.
    verb("serve", build.serve, "build, then `tandem serve [MODEL] [options]` on 127.0.0.1:8000")
    sub = verb("test", lambda o: stages.test(o.filter), "all checks; with a filter, some ctests")
    sub.add_argument("filter", nargs="?", help="regular expression over ctest names")
    sub = verb("tidy", tidy, "layers, sizes, links and words; seconds, no compiler")
    sub.add_argument("--self-test", action="store_true", help="unit tests of this tool")
    verb("headers", lambda _: sources.check_headers(), "every header of src compiles alone")
    sub = verb("format", lambda o: sources.format_sources(o.check), "clang-format all C++")
    sub.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    verb("bench", build.bench, "build, then `tandem bench [args]` (default: engine)")
    sub = verb("golden", lambda o: goldens.make(o.what), "make the expected values of tests anew")
    sub.add_argument("what", nargs="?", help="a file of tools/golden without .py")
    sub = verb("fuzz", lambda o: fuzzers.run_all(o.seconds), "run every fuzzer on its corpus")
    sub.add_argument("--seconds", type=int, default=30, help="per fuzzer (default 30)")
    verb("spin", lambda _: models.check_all(), "verify the protocol models of formal/")
    sub = verb("kills", run_kills, "kill and stop ranks of `tandem serve` at random points")
    sub.add_argument("--times", type=int, default=200, help="cases (default 200)")
    sub.add_argument("--seed", type=int, help="of the first case (default: random)")
    sub.add_argument("--points", nargs="+", choices=kills.plan.POINTS, metavar="POINT",
                     default=kills.plan.POINTS, help=f"of {', '.join(kills.plan.POINTS)}; all")
    sub.add_argument("--program", help="a tandem that is built already")
    sub = verb("chaos", run_chaos, "kill and stop workers of a cluster under load, without end")
    sub.add_argument("--minutes", type=float, default=10, help="of load (default 10)")
    sub.add_argument("--seed", type=int, help="of shape and events (default: random)")
    sub.add_argument("--program", help="a tandem that is built already")
    sub = verb("sim", lambda o: sims.sim(o.seed, o.seeds, o.hours, o.trace),
               "whole clusters in virtual time, with faults; one per seed")
    sub.add_argument("seed", nargs="?", type=int, help="of the first one (default: random)")
    sub.add_argument("--seeds", type=int, default=1, help="how many (default 1)")
    sub.add_argument("--hours", type=float, default=0, help="then random ones for so long")
    sub.add_argument("--trace", action="store_true", help="print what happens")
    sub = verb("tsan", tsan, "build and test under ThreadSanitizer")
    sub.add_argument("tests", nargs="*", help="only these, as `comm model engine ranks`")
    return top


def main(arguments: list[str]) -> int:
    sys.stdout.reconfigure(line_buffering=True)  # keeps its place among the output of programs
    try:
        if arguments[:1] == ["serve"]:
            build.serve(arguments[1:])
        elif arguments[:1] == ["bench"]:
            build.bench(arguments[1:])
        else:
            options = parser().parse_args(arguments)
            options.action(options)
    except Failed as failure:
        print(f"x: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
