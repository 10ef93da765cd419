"""Converts llama.cpp's grammar notation (GBNF) to that of llguidance (Lark).

Rules that do not refer to themselves, directly or through others, become terminals: each is one regular expression, so
that no choice inside it depends on where a token ends. Features that Lark lacks are refused with their line.
"""

from __future__ import annotations

import json
import re

import attrs

from spec_core import UsageError

TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*)
    |(?P<line>\n)
    |(?P<define>::=)
    |(?P<name>[A-Za-z0-9][A-Za-z0-9_-]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*")
    |(?P<set>\[(?:[^\]\\\n]|\\.)*\])
    |(?P<repeat>[*+?]|\{[ ]*\d+[ ]*(?:,[ ]*\d*[ ]*)?\})
    |(?P<mark>[()|.])
    |(?P<token>!?<[^>\n]*>)""",
    re.VERBOSE,
)
ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
PLAIN = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-", "^": "^"}
ANY = "/(?s:.)/"
REPEAT_MAX = 10_000


@attrs.frozen
class Piece:
    """A part of the text. kind: the name of its group in TOKEN."""

    kind: str
    text: str
    line: int


def lark_of(text: str) -> str:
    """The grammar in Lark's notation. Raises UsageError for text that is no GBNF, or cannot be converted."""
    rules = split_rules(pieces(text))
    if "root" not in rules:
        raise UsageError("the grammar has no rule 'root'", hint='begin with root ::= "..."')
    for body in rules.values():
        for piece in body:
            if piece.kind == "name" and piece.text not in rules:
                raise piece_error(piece, f"there is no rule {piece.text!r}")
    named = names(rules)
    lines = [f"{named[name]}: {' '.join(part_in_lark(piece, named) for piece in body)}" for name, body in rules.items()]
    return "\n".join([f"start: {named['root']}", *lines])


def pieces(text: str) -> list[Piece]:
    parts, at, line = [], 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise piece_error(Piece("", text[at : at + 20].split("\n")[0], line), "this cannot be read")
        kind = match.lastgroup or ""
        if kind != "space":
            parts.append(Piece(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return parts


def split_rules(pieces: list[Piece]) -> dict[str, list[Piece]]:
    """{rule: its alternatives}. A rule ends before the next ``name ::=``; line ends mean nothing else."""
    rest = [piece for piece in pieces if piece.kind != "line"]
    rules: dict[str, list[Piece]] = {}
    body: list[Piece] | None = None
    for i, piece in enumerate(rest):
        if i + 1 < len(rest) and piece.kind == "name" and rest[i + 1].kind == "define":
            if piece.text in rules:
                raise piece_error(piece, f"the rule {piece.text!r} is defined twice")
            body = rules[piece.text] = []
        elif piece.kind != "define":
            if body is None:
                raise piece_error(piece, "a rule was expected")
            body.append(piece)
        elif rest[i - 1].kind != "name" or i == 0:
            raise piece_error(piece, "a rule's name was expected before it")
    return rules


def names(rules: dict[str, list[Piece]]) -> dict[str, str]:
    """Lark's names: of terminals in capitals. A rule that can reach itself is no terminal, nor is one that uses it."""
    waits_for = {name: {p.text for p in body if p.kind == "name"} for name, body in rules.items()}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, used in waits_for.items():
        for other in used:
            users[other].append(name)
    terminals = [name for name, used in waits_for.items() if not used]
    for terminal in terminals:  # grows while it is read
        for name in users[terminal]:
            waits_for[name].discard(terminal)
            if not waits_for[name]:
                terminals.append(name)
    capitals = set(terminals)
    return {name: f"T{i}" if name in capitals else f"r{i}" for i, name in enumerate(rules)}


def part_in_lark(piece: Piece, named: dict[str, str]) -> str:
    """One part in Lark's notation."""
    if piece.kind == "name":
        return named[piece.text]
    if piece.kind == "text":
        return json.dumps("".join(characters(piece, piece.text[1:-1])), ensure_ascii=False)
    if piece.kind == "set":
        return character_set(piece)
    if piece.kind == "repeat":
        return repeat_piece(piece)
    if piece.kind == "mark":
        return ANY if piece.text == "." else piece.text
    raise piece_error(piece, "model tokens in a grammar are not supported")


def repeat_piece(piece: Piece) -> str:
    if any(int(n) > REPEAT_MAX for n in re.findall(r"\d+", piece.text)):
        raise piece_error(piece, f"a repetition of more than {REPEAT_MAX}")
    return piece.text.replace(" ", "")


def characters(piece: Piece, text: str) -> list[str]:
    """The characters of a literal or set, escapes replaced; an escaped ``-`` or ``^`` has two."""
    chars, at = [], 0
    while at < len(text):
        match = ESCAPE.match(text, at)
        if match is None:
            chars.append(text[at])
            at += 1
            continue
        code = match[1]
        if len(code) > 1:
            chars.append(chr(min(int(code[1:], 16), 0x10FFFF)))
        elif code in PLAIN:
            chars.append(PLAIN[code])
        else:
            raise piece_error(piece, f"the escape \\{code} is not known")
        at = match.end()
    return chars


def character_set(piece: Piece) -> str:
    """``[a-z_]`` with every character as a number, since the two notations quote different ones."""
    inner = piece.text[1:-1]
    negated, inner = inner.startswith("^"), inner.removeprefix("^")
    members = characters(piece, inner)
    if not members:
        raise piece_error(piece, "a set of characters is empty")
    parts, i = [], 0
    while i < len(members):
        if i + 2 < len(members) and members[i + 1] == "-":
            parts.append(f"{number(members[i])}-{number(members[i + 2])}")
            i += 3
        else:
            parts.append(number(members[i]))
            i += 1
    return f"/[{'^' if negated else ''}{''.join(parts)}]/"


def number(c: str) -> str:
    return f"\\x{{{ord(c):X}}}"


def piece_error(piece: Piece, problem: str) -> UsageError:
    return UsageError(
        f"line {piece.line} of the grammar, at {piece.text[:40]!r}: {problem}",
        hint="correct the grammar, or write it in Lark's notation; docs/structured-output.md says what is supported",
    )
