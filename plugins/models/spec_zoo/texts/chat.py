"""Chat prompts for a model that answers, to train a draft head on its answers.

Four families, as in ``prompts-chat.jsonl``, but with other texts. edit and summarise: documentation and code of
Python's standard library, and an instruction. question and free writing: everyday subjects in sentence templates.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from spec_zoo.texts import data, tasks

Chat = list[dict[str, str]]

FAMILIES = ("question", "free writing", "question", "summarise", "free writing", "question", "edit", "free writing")
"""Used in turn. A head is needed where the answer is not in the prompt, so most prompts are of such families."""
SHORT, LONG = 250, 900
"""Characters of a piece of documentation."""

THINGS = (
    "a bridge|a volcano|a candle|a piano|a tunnel|an earthquake|a thermometer|a battery|a bicycle gear|a rainbow|"
    "a glacier|a magnet|a microscope|a telescope|a windmill|a submarine|a parachute|a greenhouse|a compass|"
    "a solar panel|a nuclear power plant|a steam engine|a zip fastener|a vacuum flask|a microwave oven|"
    "a washing machine|a fire alarm|a lift in a tall building|a barometer|a camera lens|a loudspeaker|a violin|"
    "an airship|a sailing boat|a helicopter|a satellite|an electric car|a heat pump|a search engine|"
    "a password manager|a spreadsheet|a database|a web browser|a neural network|a compiler|a hash table|"
    "a linked list|a binary tree|a sorting algorithm|a regular expression|a for loop|a dictionary in Python|"
    "a class in Python|a pull request|version control|encryption|a spider's web|an ant colony|a coral reef|a desert|"
    "a rain forest|a swamp|a river delta|a tide|a thunderstorm|a tornado|hail|fog|dew|frost|photosynthesis|"
    "evaporation|gravity|friction|buoyancy|static electricity|sound|light|heat|radiation|an atom|a molecule|"
    "a crystal|rust|salt|sugar|soap|glass|paper|steel|rubber|plastic|wool|cotton|leather|yeast|cheese|butter|"
    "chocolate|coffee|tea|honey|vinegar|olive oil|bread dough|a vaccine|blood pressure|the heart|the lungs|the liver|"
    "a fever|an allergy|sleep|memory|a muscle|a bone|a tooth|the skin|inflation|a tax|a mortgage|insurance|"
    "a stock exchange|a savings account|an election|a parliament|a constitution|a court of justice|a treaty|"
    "a trade union|a census|the Roman Empire|the Silk Road|the printing press|the Industrial Revolution|"
    "the French Revolution|the Great Wall of China|the Olympic Games|the Renaissance|a pyramid|a medieval castle|"
    "a cathedral|a novel|a sonnet|a fable|an opera|a symphony|jazz|ballet|a fresco|a photograph|chess|football|"
    "tennis|swimming|a marathon|yoga|a comet|an eclipse|a black hole|the Milky Way|the seasons|a leap year|"
    "a time zone"
).split("|")
ANIMALS = (
    "a fox|an owl|a hedgehog|a dolphin|a penguin|a camel|an elephant|a squirrel|a raven|a turtle|a horse|a goat|"
    "a wolf|a bear|a swallow|a salmon|an octopus|a bat|a frog|a snail|a butterfly|a mouse|a dog|a donkey|a whale|"
    "a lizard"
).split("|")
PEOPLE = (
    "a baker|a nurse|a teacher|a shepherd|a pilot|a gardener|a carpenter|a librarian who is afraid of books|"
    "a young queen|a retired sailor|a violin maker|a postman|a tailor|a fisherman|a shy boy|two sisters|an inventor|"
    "a bus driver|a painter|a firefighter|a photographer|a beekeeper|a mountain guide|a doctor in a small village|"
    "a street musician|an old magician|a chess player|a translator|a grandmother|a new pupil|a farmer|a miner|a cook|"
    "a widow|a judge|a programmer|a scientist in the Arctic|a knight without a horse|a thief who wants to be honest|"
    "a museum guard"
).split("|")
PLACES = (
    "in the mountains|on an island|in a desert town|in an empty hotel|on a night train|in a big city|"
    "in an old theatre|on a farm|in a school|in a hospital|at an airport|in a forest|under the sea|on a ship|"
    "in a castle|in a bakery|in a village without electricity|at the edge of a volcano|in a botanical garden|"
    "in a railway station|at a fair|in a workshop|in a flooded town|on a bridge|in a cave|in a space station|"
    "in a kingdom far away|on a roof|at a lake"
).split("|")
EVENTS = (
    "finds an old map|loses a key|receives a letter without a sender|hears a strange sound|misses the last bus|"
    "plants a tree that grows overnight|meets an old friend|learns to swim|finds a box of photographs|"
    "has to keep a secret|wins a prize by mistake|rescues an animal|builds a boat|sees the sea for the first time|"
    "forgets an important promise|discovers a hidden room|repairs a broken radio|cannot sleep|"
    "is invited to a wedding|has one day left|bakes the worst cake of the year|follows a trail of footprints|"
    "speaks with the wind"
).split("|")
MOODS = (
    "rain|autumn|the first day of spring|a long winter|an empty house|friendship|patience|the night sky|growing old|"
    "the smell of bread|a garden|a river|home|a journey|silence|a lost toy|morning|the desert|hope|courage|"
    "a city at dawn"
).split("|")
TASKS = (
    "learn a new language|keep a kitchen clean|prepare for a job interview|start to run|save money every month|"
    "plan a birthday party|grow tomatoes on a balcony|write a good letter of application|sleep better|paint a room|"
    "pack a suitcase|train a puppy|take better photographs|study for an exam|cook rice|bake a simple bread|"
    "fix a flat tyre|remove a stain from a shirt|organise a small library|choose a laptop|"
    "travel by train with small children|speak in front of many people|remember names|start a vegetable garden|"
    "make friends in a new town|care for a houseplant|save energy at home|write a short story|"
    "learn to play the guitar|clean a window|debug a program|write tests for a function|back up a computer|"
    "make a weekly meal plan|reduce waste|hang a picture|repair a wooden chair|plan a hike|organise a move|"
    "choose a gift for a colleague|deal with stress|read more books"
).split("|")
GOODS = "apples|pencils|tickets|bottles|stamps|bricks|chairs|eggs|marbles|books|tiles|roses|buttons|coins|cups".split(
    "|"
)
LANDS = (
    "Brazil|Japan|Egypt|Canada|India|Norway|Mexico|Kenya|Italy|Australia|Peru|Turkey|Vietnam|Morocco|Iceland|Greece|"
    "Argentina|Indonesia|Poland|Spain|South Africa|Thailand|Finland|Portugal|Chile|Nepal|New Zealand|Ireland"
).split("|")

ASKED = (
    "What is {thing}?",
    "How does {thing} work?",
    "Explain {thing} in simple words.",
    "Explain {thing} to a beginner and give an example.",
    "What are the most important facts about {thing}?",
    "What is the difference between {thing} and {other}?",
    "What do {thing} and {other} have in common?",
    "Why is {thing} important?",
    "What is the history of {thing}?",
    "Give three advantages and three disadvantages of {thing}.",
    "Name five interesting things about {animal}.",
    "How does {animal} live, and what does it eat?",
    "What is the difference between {animal} and {creature}?",
    "How do I {task}?",
    "What do I need in order to {task}?",
    "Give me five tips on how to {task}.",
    "Write a step by step plan for someone who wants to {task}.",
    "What are common mistakes when people {task}?",
    "What should a visitor know about {land}?",
    "What is the climate of {land} like?",
    "Which food is typical of {land}?",
    "Compare {land} and {country} in a few sentences.",
    "What is the capital of {land}, and what is it known for?",
    "{name} has {a} {goods} and buys {b} more. Then {c} of them are given away. How many {goods} are left? "
    "Show the steps.",
    "One of the {goods} costs {c} dollars. How much do {b} {goods} cost, and how much change does one get from {much}?",
    "Write a Python function that {code}, and explain how it works.",
    "What does the Python function `{function}` do? Give a short example.",
    "Is it a good idea to {task} without help? Explain your answer.",
)
CODE = (
    "reverses a string|finds the largest number of a list|checks whether a number is prime|"
    "removes duplicates from a list|computes the average of some numbers|reads a CSV file|merges two sorted lists|"
    "converts Celsius to Fahrenheit|counts the vowels of a word|flattens a nested list|"
    "computes the n-th Fibonacci number|finds the longest word|checks whether a word is a palindrome|"
    "sorts a list of names by their length|splits a list into pieces"
).split("|")
WRITTEN = (
    "Write a short story about {person} {place} who {event}.",
    "Write a short story about {person} and {animal}.",
    "Tell a fairy tale about {animal} and {creature} {place}.",
    "Write a poem about {mood}.",
    "Write a poem of three stanzas about {animal} {place}.",
    "Write a letter from {person} to a friend about {mood}.",
    "Write a letter in which {person} says thank you for {thing}.",
    "Describe a day in the life of {person}.",
    "Describe {mood} {place} as if one were there.",
    "Write a dialogue between {person} and {animal}.",
    "Write a dialogue between {person} and a child about {thing}.",
    "Write the beginning of a novel that takes place {place}.",
    "Write a diary entry of {person} who {event}.",
    "Write a short speech about {mood} for a school.",
    "Write an advertisement for {thing} that only {person} would buy.",
    "Invent a legend about {thing}.",
    "Write an e-mail to a colleague: you want to {task} and need help.",
    "Write a short essay about {mood}.",
    "Write a blog post about how to {task}.",
    "Invent a game that one can play {place}, and explain its rules.",
    "Write a news report: {person} {event} {place}.",
)
SUMMARISED = (
    "Summarise this text.\n\n{text}",
    "Summarise this text in one sentence.\n\n{text}",
    "What is this text about?\n\n{text}",
    "List the main points of this text.\n\n{text}",
    "Explain this text in simple words.\n\n{text}",
    "{text}\n\nWrite a short summary of the text above.",
)
EDITED = (
    "Rewrite this text in simpler words.\n\n{text}",
    "Correct mistakes in this text and answer with the whole text.\n\n{text}",
    "Write this text as a list.\n\n{text}",
    "Make this text shorter and keep its meaning.\n\n{text}",
    "Repeat this text and begin every sentence on a new line.\n\n{text}",
)
NAMES = "Ana|Ben|Carla|Deniz|Emil|Fatima|Georg|Hana|Igor|Julia|Kofi|Lena|Marco|Nora|Omar|Petra".split("|")


def questions(count: int, seed: int = 0) -> list[Chat]:
    """Chats of one message each; they depend on the seed and the version of the standard library only."""
    rng = random.Random(seed)
    code = data.split_files()[0]
    lists = makers(rng, code, [*data.prose()[0], *data.docstrings(code)])
    questions_seen: dict[str, None] = {}
    while len(questions_seen) < count:
        questions_seen.setdefault(lists[FAMILIES[len(questions_seen) % len(FAMILIES)]]())
    return [[{"role": "user", "content": text}] for text in questions_seen]


def makers(rng: random.Random, code: list[str], prose: list[str]) -> dict[str, Callable[[], str]]:
    """Functions that make a prompt of each family, from files and from documentation."""
    functions = sorted({name for text in code for name in _functions(text)})
    return {
        "question": lambda: _fill(rng, ASKED, function=rng.choice(functions)),
        "free writing": lambda: _fill(rng, WRITTEN),
        "summarise": lambda: rng.choice(SUMMARISED).format(text=piece(rng, prose)),
        "edit": lambda: (
            change_code(rng, code) if rng.random() < 0.5 else rng.choice(EDITED).format(text=piece(rng, prose))
        ),
    }


def _functions(text: str) -> list[str]:
    """Names of public functions that a file defines at its top."""
    lines = (line.split("(")[0] for line in text.split("\n") if line.startswith("def ") and "(" in line)
    return [line[4:] for line in lines if line[4:].isidentifier() and not line.startswith("def _")]


def _fill(rng: random.Random, sentences: tuple[str, ...], **more: str) -> str:
    """A sentence template with a subject in every placeholder."""
    thing, other = rng.sample(THINGS, 2)
    animal, creature = rng.sample(ANIMALS, 2)
    land, country = rng.sample(LANDS, 2)
    words = {"thing": thing, "other": other, "animal": animal, "creature": creature, "land": land, "country": country}
    words |= {"person": rng.choice(PEOPLE), "place": rng.choice(PLACES), "event": rng.choice(EVENTS)}
    words |= {"mood": rng.choice(MOODS), "task": rng.choice(TASKS), "goods": rng.choice(GOODS)}
    words |= {"name": rng.choice(NAMES), "code": rng.choice(CODE)}
    numbers = {"a": rng.randint(12, 60), "b": rng.randint(3, 25), "c": rng.randint(2, 9), "much": 500}
    return rng.choice(sentences).format(**words, **numbers, **more)


def piece(rng: random.Random, prose: list[str]) -> str:
    """Whole paragraphs of a text, of about the requested length."""
    while True:
        paragraphs = [p.strip() for p in rng.choice(prose).split("\n\n") if p.strip()]
        at, paragraph = rng.randrange(len(paragraphs)), ""
        while at < len(paragraphs) and len(paragraph) < SHORT:
            paragraph, at = f"{paragraph}\n\n{paragraphs[at]}".strip(), at + 1
        if SHORT <= len(paragraph) <= LONG:
            return paragraph


def change_code(rng: random.Random, code: list[str]) -> str:
    """Code, and one of the edits that the small models were trained on."""
    text = tasks.snippet(rng, code, 6, 16)
    instruction, _ = rng.choice(tasks.EDITS)(rng, text)
    return f"{instruction.lstrip('# ').capitalize()} Answer with the whole code.\n\n{text}"
