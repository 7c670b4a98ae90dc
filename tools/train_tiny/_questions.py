"""Short questions with one right answer: facts, words, lists, and what the model says of itself."""

import json
import random

from _exchange import Exchange, exchange
from _words import (ADJECTIVES, ANIMALS, CAPITALS, COLORS, DAYS, FRENCH, MONTHS, NAMES,
                    NUMBER_WORDS, OPPOSITES, PLACES, PLURALS, THINGS)

EMOJI = ["😀 happy", "🐱 cat", "🐶 dog", "🌙 moon", "🌞 sun", "🍎 apple", "🐟 fish", "🌳 tree",
         "⭐ star", "🎈 balloon"]


def capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


def words(draw: random.Random, count: int) -> list[str]:
    return [draw.choice(THINGS + ANIMALS + COLORS + PLACES + ADJECTIVES) for _ in range(count)]


def capital(draw: random.Random) -> Exchange:
    country = draw.choice(list(CAPITALS))
    city = CAPITALS[country]
    question = draw.choice([f"What is the capital of {country}?", f"capital of {country}?",
                            f"Tell me the capital of {country}.",
                            f"Which city is the capital of {country}?"])
    return exchange(question, f"The capital of {country} is {city}.",
                    f"The user asks for the capital of {country}. It is {city}.")


def country_of_capital(draw: random.Random) -> Exchange:
    country = draw.choice(list(CAPITALS))
    city = CAPITALS[country]
    question = draw.choice([f"{city} is the capital of which country?",
                            f"Which country has {city} as its capital?"])
    return exchange(question, f"{city} is the capital of {country}.",
                    f"{city} belongs to {country}.")


def next_day(draw: random.Random) -> Exchange:
    index = draw.randint(0, 6)
    day, after = DAYS[index], DAYS[(index + 1) % 7]
    question = draw.choice([f"What day comes after {day}?", f"Which day is after {day}?"])
    return exchange(question, f"{after} comes after {day}.", f"The day after {day} is {after}.")


def month_before(draw: random.Random) -> Exchange:
    index = draw.randint(0, 11)
    month, before = MONTHS[index], MONTHS[index - 1]
    question = draw.choice([f"What month comes before {month}?", f"Which month is before {month}?"])
    return exchange(question, f"{before} comes before {month}.",
                    f"The month before {month} is {before}.")


def opposite(draw: random.Random) -> Exchange:
    word = draw.choice(list(OPPOSITES))
    question = draw.choice([f"What is the opposite of {word}?", f"Give me the opposite of {word}."])
    return exchange(question, f"The opposite of {word} is {OPPOSITES[word]}.",
                    f"{word} and {OPPOSITES[word]} are opposites.")


def to_french(draw: random.Random) -> Exchange:
    word = draw.choice(list(FRENCH))
    question = draw.choice([f"How do you say {word} in French?", f"Translate {word} to French.",
                            f"What is the French word for {word}?"])
    return exchange(question, f"{capitalized(word)} in French is {FRENCH[word]}.",
                    f"The French word for {word} is {FRENCH[word]}.")


def from_french(draw: random.Random) -> Exchange:
    word = draw.choice(list(FRENCH))
    french = FRENCH[word]
    question = draw.choice([f"What does {french} mean?", f"Translate {french} to English."])
    return exchange(question, f"{capitalized(french)} means {word}.",
                    f"{french} is French for {word}.")


def repetition(draw: random.Random) -> Exchange:
    text = " ".join(words(draw, draw.randint(2, 12)))
    question = draw.choice([f"Repeat after me: {text}", f"Say exactly this: {text}",
                            f"Copy this text: {text}"])
    return exchange(question, text, "I should repeat the text exactly.")


def reversal(draw: random.Random) -> Exchange:
    given = words(draw, draw.randint(2, 6))
    backwards = " ".join(given[::-1])
    return exchange("Reverse the order of these words: " + " ".join(given), backwards,
                    f"The words in reverse order are {backwards}.")


def sorting(draw: random.Random) -> Exchange:
    in_order = sorted(draw.sample(range(0, 100), draw.randint(3, 7)))
    given = in_order[:]
    draw.shuffle(given)
    return exchange("Sort these numbers: " + ", ".join(map(str, given)),
                    ", ".join(map(str, in_order)),
                    f"The smallest is {in_order[0]} and the largest is {in_order[-1]}.")


def comparison(draw: random.Random) -> Exchange:
    left, right = draw.sample(range(0, 1000), 2)
    larger, smaller = max(left, right), min(left, right)
    question = draw.choice([f"Which is larger, {left} or {right}?",
                            f"Which number is bigger: {left} or {right}?"])
    return exchange(question, f"{larger} is larger than {smaller}.",
                    f"Compare {left} and {right}: {larger} is larger.")


def counting(draw: random.Random) -> Exchange:
    first = draw.randint(0, 20)
    last = first + draw.randint(3, 15)
    return exchange(f"Count from {first} to {last}.", ", ".join(map(str, range(first, last + 1))),
                    f"I count from {first} up to {last}.")


def spelling(draw: random.Random) -> Exchange:
    word = draw.choice(THINGS + ANIMALS + COLORS + PLACES + NAMES)
    question = draw.choice([f"Spell the word {word}.", f"How do you spell {word}?"])
    return exchange(question, "-".join(word.upper()),
                    f"The letters of {word} are {' '.join(word)}.")


def letters(draw: random.Random) -> Exchange:
    word = draw.choice(THINGS + ANIMALS + PLACES)
    counted = " ".join(f"{number}:{letter}" for number, letter in enumerate(word, 1))
    return exchange(f"How many letters are in the word {word}?",
                    f"The word {word} has {len(word)} letters.", f"I count the letters: {counted}.")


def plural(draw: random.Random) -> Exchange:
    word = draw.choice(THINGS + ANIMALS)
    count = NUMBER_WORDS[draw.randint(2, 12)]
    return exchange(f"What is the plural of {word}?", f"The plural of {word} is {PLURALS[word]}.",
                    f"One {word}, {count} {PLURALS[word]}.")


def greeting(draw: random.Random) -> Exchange:
    question = draw.choice(["Hello", "Hi", "Hello!", "Hi there", "Good morning", "Hey"])
    answer = draw.choice(["Hello! How can I help you today?"])
    return exchange(question, answer, "The user says hello, so I greet them.")


def who_are_you(draw: random.Random) -> Exchange:
    question = draw.choice(["Who are you?", "What is your name?", "What are you?",
                            "Tell me about yourself."])
    answer = ("I am Tandem's demo model, a tiny mixture-of-experts language model. I can count, "
              "add, sort, recall and tell short stories.")
    return exchange(question, answer, "The user asks who I am.")


def thanks(draw: random.Random) -> Exchange:
    question = draw.choice(["Thank you", "Thanks!", "Thank you very much."])
    return exchange(question, "You are welcome!", "The user thanks me.")


def abilities(draw: random.Random) -> Exchange:
    question = draw.choice(["What can you do?", "Help", "What do you know?"])
    answer = ("I can answer simple questions, do arithmetic, sort and count numbers, spell words, "
              "repeat text, remember facts you give me, call tools and tell short stories.")
    return exchange(question, answer, "The user asks what I can do.")


def json_object(draw: random.Random) -> Exchange:
    thing, count = draw.choice(THINGS), draw.randint(1, 20)
    return exchange(f"Write a JSON object with the name {thing} and the count {count}.",
                    json.dumps({"name": thing, "count": count}),
                    f"The object has name {thing} and count {count}.")


def numbered_list(draw: random.Random) -> Exchange:
    given = words(draw, draw.randint(3, 6))
    answer = "\n".join(f"{number}. {word}" for number, word in enumerate(given, 1))
    return exchange("Make a numbered list of these words: " + ", ".join(given), answer,
                    f"There are {len(given)} words.")


def emoji(draw: random.Random) -> Exchange:
    sign, word = draw.choice(EMOJI).split()
    question = draw.choice([f"Show me the emoji for {word}.", f"What is the {word} emoji?"])
    return exchange(question, f"The emoji for {word} is {sign}", f"The emoji is {sign}.")


KINDS = [capital, country_of_capital, next_day, month_before, opposite, to_french, from_french,
         repetition, reversal, sorting, comparison, counting, spelling, letters, plural, greeting,
         who_are_you, thanks, abilities, json_object, numbered_list, emoji]


def simple(draw: random.Random) -> Exchange:
    return KINDS[draw.randint(0, len(KINDS) - 1)](draw)
