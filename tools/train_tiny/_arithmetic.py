"""Sums, differences and products, with the digits from the right as the thought."""

import random

from _exchange import Exchange, exchange

LARGEST = [9, 20, 99, 99, 999]  # of the operands of a sum or difference; 99 twice as often


def digits_of_sum(left: int, right: int) -> list[str]:
    steps, carry = [], 0
    while left or right or carry:
        digit = left % 10 + right % 10 + carry
        carried = f" + {carry}" if carry else ""
        steps.append(f"{left % 10} + {right % 10}{carried} = {digit}")
        carry, left, right = digit // 10, left // 10, right // 10
    return steps


def digits_of_difference(left: int, right: int) -> list[str]:
    """left >= right."""
    steps, borrowed = [], 0
    while left:
        digit = left % 10 - right % 10 - borrowed
        step = f"{left % 10} - {right % 10}" + (f" - {borrowed}" if borrowed else "")
        steps.append(step + (f" = {digit + 10} borrow 1" if digit < 0 else f" = {digit}"))
        borrowed, left, right = int(digit < 0), left // 10, right // 10
    return steps


def thought(left: int, sign: str, right: int, result: int) -> str:
    if sign == "+" and (left > 9 or right > 9):
        start = "Add the digits from the right: " + ", ".join(digits_of_sum(left, right))
    elif sign == "-" and left > 9:
        start = "Subtract the digits from the right: "
        start += ", ".join(digits_of_difference(left, right))
    else:
        return f"{left} {sign} {right} is {result}."
    return f"{start}. So {left} {sign} {right} = {result}."


def operands(draw: random.Random) -> tuple[int, int]:
    largest = draw.choice(LARGEST)
    return draw.randint(0, largest), draw.randint(0, largest)


def arithmetic(draw: random.Random) -> Exchange:
    kind = draw.random()
    if kind < 0.5:
        left, right = operands(draw)
        sign, result, word = "+", left + right, "plus"
    elif kind < 0.8:
        right, left = sorted(operands(draw))
        sign, result, word = "-", left - right, "minus"
    else:
        left, right = draw.randint(0, 12), draw.randint(0, 12)
        sign, result, word = draw.choice(["*", "×"]), left * right, "times"
    question = draw.choice([
        f"What is {left} {sign} {right}?", f"{left} {sign} {right} = ?",
        f"Compute {left} {sign} {right}.", f"How much is {left} {word} {right}?",
        f"What is {left} {word} {right}?", f"Calculate {left} {sign} {right}",
    ])
    draw.random()  # Decides nothing: the corpus that the models were trained on drew it here.
    return exchange(question, f"{left} {sign} {right} = {result}",
                    thought(left, sign, right, result))
