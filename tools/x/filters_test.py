"""Goal: a filter that names no ctest is refused before a build, with what may have been meant.
Method: the text on made-up names; the verb with a ctest that knows one name and a build that fails
the test.
"""

import unittest
from unittest import mock

from x import build, filters, stages
from x.shell import Failed

CTESTS = ["comm", "rpc", "server"]
OTHERS = {"serve_test": "python3 tests/e2e/serve_test.py", "tidy": "./x tidy"}


class RefusalTest(unittest.TestCase):
    def test_names_what_is_nearest_with_its_command(self):
        self.assertEqual(
            filters.refusal("sevrer", CTESTS, OTHERS),
            "no ctest matches 'sevrer'; nearest:\n"
            "  server      ./x test server\n"
            "  serve_test  python3 tests/e2e/serve_test.py\n"
            "ctests: comm rpc server",
        )
        for given, expected in (("comms", "comm"), ("tydi", "tidy"), ("e2e", "serve_test")):
            commands = OTHERS | {name: "" for name in CTESTS}
            self.assertEqual(filters.nearest(given, commands)[0], expected)

    def test_lists_the_ctests_when_nothing_is_near(self):
        self.assertEqual(
            filters.refusal("qqq", CTESTS, OTHERS),
            "no ctest matches 'qqq'\nctests: comm rpc server",
        )


class VerbTest(unittest.TestCase):
    def verb(self, name_filter: str) -> list[str]:
        """What is done, in order, with the names that ctest would match."""
        done = []
        with (
            mock.patch.object(build, "build", lambda _, only=None: done.append(only or "build")),
            mock.patch.object(build, "ctest", lambda *_: done.append("ctest")),
            mock.patch.object(
                filters, "ctest_names", lambda name=".": [n for n in CTESTS if name in (n, ".")]
            ),
        ):
            try:
                stages.test(name_filter)
            except Failed as failure:
                done.append(str(failure).splitlines()[0])
        return done

    def test_an_unknown_filter_is_refused_before_the_build(self):
        self.assertEqual(self.verb("qqq"), [["build.ninja"], "no ctest matches 'qqq'"])
        self.assertEqual(self.verb("comm"), [["build.ninja"], "build", "ctest"])

    def test_a_broken_expression_is_told_from_one_that_matches_nothing(self):
        def ctest(*_, **__):
            return mock.Mock(stdout="")  # the complaint is on standard error, the status 0

        with mock.patch.object(filters.subprocess, "run", ctest):
            with self.assertRaisesRegex(Failed, "'\\(' is no regular expression"):
                filters.ctest_names("(")


if __name__ == "__main__":
    unittest.main()
