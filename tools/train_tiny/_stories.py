"""Short stories of eight sentences from a fixed grammar. Every variant of a sentence is made before
one is chosen: the draws, and so the corpus of a seed, do not depend on the choice."""

import random

from _words import ADJECTIVES, ANIMALS, COLORS, DAYS, FEELINGS, NAMES, NUMBER_WORDS, PLACES, THINGS


def with_article(word: str) -> str:
    return ("an " if word[0] in "aeiou" else "a ") + word


def story(draw: random.Random, name: str | None = None, animal: str | None = None,
          thing: str | None = None, place: str | None = None) -> str:
    """What is not given is drawn."""
    pick = draw.choice
    name, animal = name or pick(NAMES), animal or pick(ANIMALS)
    thing, place = thing or pick(THINGS), place or pick(PLACES)
    friend = pick([other for other in NAMES if other != name])
    colored = with_article(pick(COLORS))
    described = with_article(pick(ADJECTIVES))
    feeling, last_feeling = pick(FEELINGS), pick(FEELINGS)
    sentences = [
        pick([f"Once upon a time, there was {described} {animal} who lived near the {place}.",
              f"One {pick(DAYS)} morning, {name} went to the {place} with {described} {animal}.",
              f"In a quiet village there lived a child named {name}."]),
        pick([f"{name} had {colored} {thing} and carried it everywhere.",
              f"One day {name} found {colored} {thing} under a tree.",
              f"{name} wanted {colored} {thing} more than anything."]),
        pick([f"But the {thing} fell into the water, and {name} felt {feeling}.",
              f"Then the {animal} took the {thing} and ran away.",
              f"Suddenly the wind blew and the {thing} was gone."]),
        pick([f"{friend} saw what had happened and came to help.",
              f"The {animal} looked at {name} and began to speak.",
              f"\"Do not worry,\" said {friend}. \"We will find it together.\""]),
        pick([f"They looked in the {pick(PLACES)}, behind the {pick(PLACES)} and under the "
              f"{pick(THINGS)}.",
              f"They walked for {NUMBER_WORDS[draw.randint(2, 12)]} hours until they came to the "
              f"{pick(PLACES)}.",
              f"They asked the {pick(ANIMALS)}, but the {pick(ANIMALS)} had not seen it."]),
        pick([f"At last they found the {thing} beside the {place}.",
              f"In the end the {animal} gave the {thing} back.",
              f"When the sun went down, the {thing} was shining in the grass."]),
        pick([f"{name} was {last_feeling} and thanked {friend}.",
              f"From that day on, {name} and the {animal} were friends.",
              f"{name} shared the {thing} with {friend}, and they were both {last_feeling}."]),
        pick(["The end.", f"And {name} never forgot that day.",
              "Then they all went home for supper."]),
    ]
    if draw.random() < 0.3:
        del sentences[draw.randint(2, 5)]
    return " ".join(sentences)
