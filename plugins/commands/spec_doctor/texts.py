"""Ten short texts of different kinds that a head continues."""

TEXTS = (
    "def read_lines(path):\n    with open(path) as file:\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "import os\n\nfor name in sorted(os.listdir('.')):\n    if name.endswith('.py'):\n",
    "The weather in the north of the country was cold in March, and the farmers",
    "Q: What is the capital of France?\nA: The capital of France is",
    "To make tea, first boil the water. Then",
    "1. Read the file.\n2. Check that it is not empty.\n3.",
    '{"name": "Anna", "age": 31, "city": "Bern"}\n{"name": "Paul", "age": 28, "city":',
    "    total = 0\n    for value in values:\n        total += value\n    return total\n\n\ndef average(values):\n",
    "In 1969 two people walked on the moon. They had travelled for three days, and when they",
)
