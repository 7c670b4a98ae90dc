"""Goal: a case of ./x kills follows from its seed alone, reaches every point in every layout, and
its clients tell a right answer from a wrong one.
Method: the pure parts; the rest is tested by breaking the program.
"""

import unittest

from x import kills
from x.kills import clients, plan
from x.kills.clients import Answer


class PlanTest(unittest.TestCase):
    def test_a_seed_is_a_case(self):
        for seed in range(20):
            self.assertEqual(plan.Plan.of_seed(seed), plan.Plan.of_seed(seed))

    def test_everything_is_drawn(self):
        plans = [plan.Plan.of_seed(seed) for seed in range(2000)]
        drawn = {(p.layout, p.point, p.kind) for p in plans}
        self.assertEqual(len(drawn), len(plan.LAYOUTS) * len(plan.POINTS) * 2)
        for one in plans:
            self.assertNotEqual(one.victim, one.held_back)
            self.assertLess(one.victim, one.layout.processes)

    def test_points_choose_seeds(self):
        for seed in kills.seeds_of(5, 10, [plan.IDLE]):
            self.assertEqual(plan.Plan.of_seed(seed).point, plan.IDLE)
        self.assertEqual(kills.seeds_of(7, 3, list(plan.POINTS)), [7, 8, 9])

    def test_who_serves(self):
        layout = plan.Layout(2, 2, 4)
        self.assertEqual([layout.serves(n) for n in range(4)], [True, False, True, False])
        self.assertEqual(list(plan.Layout(4, 1, 2).ranks_of(1)), [2, 3])

    def test_who_goes_on(self):
        layout = plan.Layout(2, 2, 4)
        self.assertEqual(layout.lost_with(1), {0, 1})
        self.assertEqual([layout.survives(n, 1) for n in (0, 2, 3)], [False, True, True])
        self.assertFalse(plan.Layout(4, 1, 2).survives(0, 1))


class FindingTest(unittest.TestCase):
    def finding(self, answer: Answer, may_fail: bool = True, may_be_cut: bool = False) -> str:
        return clients.finding({"prompt": "Hi"}, answer, "one two", may_fail, may_be_cut)

    def test_what_is_right(self):
        self.assertEqual(self.finding(Answer("one two", finished=True), may_fail=False), "")
        self.assertEqual(self.finding(Answer("one", error="503: rank 1 of host a is gone")), "")
        self.assertEqual(self.finding(Answer("one", cut="reset"), may_be_cut=True), "")

    def test_what_is_wrong(self):
        for answer, text in (
            (Answer("one", finished=True), "wrong answer with status 200"),
            (Answer("one three", error="gone"), "wrong tokens before gone"),
            (Answer("one", cut="reset"), "no answer and no error"),
        ):
            self.assertIn(text, self.finding(answer))
        self.assertIn("gone", self.finding(Answer(error="gone"), may_fail=False))


if __name__ == "__main__":
    unittest.main()
