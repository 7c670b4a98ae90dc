"""The words that the synthetic chats are made of. Their order decides what a seed draws, so a
change here makes another corpus."""

NAMES = """
    Anna Ben Clara David Emma Felix Grace Hugo Iris Jack Kate Leo Mia Noah Olive Paul Rosa Sam
    Tess Victor Wendy Yara Zoe Omar Lucy Max Nina Oscar Ruby Theo
""".split()
ANIMALS = """
    cat dog fox rabbit bear owl mouse horse duck frog turtle bird goat sheep bee lion whale crow
    wolf deer
""".split()
THINGS = """
    ball kite book lamp key box hat drum cup map stone coin bell boat cake apple pear ring rope
    flute basket candle clock letter shell
""".split()
PLACES = """
    garden forest river beach market school farm hill library kitchen station village castle
    bridge island harbor meadow barn
""".split()
COLORS = """
    red blue green yellow white black purple orange brown pink gray golden silver
""".split()
FEELINGS = """
    happy sad proud tired brave curious afraid calm excited lonely grateful surprised
""".split()
ADJECTIVES = """
    small big old new shiny heavy tiny quiet loud bright soft warm cold clever kind strange
""".split()
DAYS = """
    Monday Tuesday Wednesday Thursday Friday Saturday Sunday
""".split()
MONTHS = """
    January February March April May June July August September October November December
""".split()
NUMBER_WORDS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen twenty
""".split()
OPPOSITES = {
    "hot": "cold", "big": "small", "up": "down", "day": "night", "happy": "sad", "fast": "slow",
    "old": "new", "wet": "dry", "open": "closed", "light": "dark", "early": "late",
    "full": "empty", "hard": "soft", "near": "far", "high": "low", "loud": "quiet", "rich": "poor",
    "strong": "weak", "clean": "dirty", "left": "right",
}
PLURALS = {word: word + "s" for word in THINGS + ANIMALS} | {
    "box": "boxes", "mouse": "mice", "fox": "foxes", "wolf": "wolves", "sheep": "sheep",
    "deer": "deer",
}
FRENCH = {
    "cat": "chat", "dog": "chien", "house": "maison", "water": "eau", "bread": "pain",
    "book": "livre", "sun": "soleil", "moon": "lune", "red": "rouge", "blue": "bleu",
    "green": "vert", "one": "un", "two": "deux", "three": "trois", "friend": "ami",
    "school": "école", "apple": "pomme", "milk": "lait", "night": "nuit", "day": "jour",
    "hello": "bonjour", "goodbye": "au revoir", "thanks": "merci", "king": "roi", "queen": "reine",
    "bird": "oiseau", "fish": "poisson", "tree": "arbre", "flower": "fleur", "horse": "cheval",
}
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "Greece": "Athens", "Poland": "Warsaw", "Austria": "Vienna",
    "Belgium": "Brussels", "Netherlands": "Amsterdam", "Sweden": "Stockholm", "Norway": "Oslo",
    "Denmark": "Copenhagen", "Finland": "Helsinki", "Ireland": "Dublin", "Iceland": "Reykjavik",
    "Hungary": "Budapest", "Romania": "Bucharest", "Bulgaria": "Sofia", "Croatia": "Zagreb",
    "Serbia": "Belgrade", "Ukraine": "Kyiv", "Russia": "Moscow", "Turkey": "Ankara",
    "Egypt": "Cairo", "Morocco": "Rabat", "Kenya": "Nairobi", "Ghana": "Accra", "Nigeria": "Abuja",
    "Ethiopia": "Addis Ababa", "Senegal": "Dakar", "Japan": "Tokyo", "China": "Beijing",
    "India": "New Delhi", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Indonesia": "Jakarta",
    "Philippines": "Manila", "South Korea": "Seoul", "Mongolia": "Ulaanbaatar",
    "Nepal": "Kathmandu", "Iran": "Tehran", "Iraq": "Baghdad", "Israel": "Jerusalem",
    "Jordan": "Amman", "Lebanon": "Beirut", "Canada": "Ottawa", "Mexico": "Mexico City",
    "Cuba": "Havana", "Brazil": "Brasília", "Argentina": "Buenos Aires", "Chile": "Santiago",
    "Peru": "Lima", "Colombia": "Bogotá", "Ecuador": "Quito", "Uruguay": "Montevideo",
    "Australia": "Canberra", "New Zealand": "Wellington", "the United Kingdom": "London",
    "the United States": "Washington", "Switzerland": "Bern", "Czechia": "Prague",
    "Slovakia": "Bratislava", "Estonia": "Tallinn", "Latvia": "Riga", "Lithuania": "Vilnius",
}
