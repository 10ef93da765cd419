"""Sampled texts with drafts have the distribution of those without: sequential two-sample tests of the first tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs
from spec_commands.prompts import Prompt
from spec_commands.servers.counters import Counters, read_counters

from spec_audit.asks import DRAFTS, PLAIN, Ask, Side
from spec_audit.audit import Audit
from spec_audit.budget import DRAW_TOKENS, Budget, Cost
from spec_audit.promise import Failed, Report, Skipped, promise
from spec_audit.statistics import ALPHA, LOOKS, Comparison, compare_texts, least_bias, repeated_more
from spec_audit.trie import END
from spec_audit.verdict import Section

TITLE = "Distributions"
PILOT = 64
"""Draws of a prompt before its choice."""
CANDIDATES = 8
"""Prompts among which those with the best pilot are tested."""
CUTS: tuple[dict[str, float], ...] = ({"top_p": 0.8}, {"min_p": 0.1})
"""Parameters whose distribution is tested too, with a sixth of the draws."""
CELL_ALPHA = ALPHA / 2 / 4
"""False alarms of a prompt at a temperature: half of the audit's for four."""
CUT_ALPHA = ALPHA / 20
FLOOR_ALPHA = ALPHA / 20
INDEPENDENCE_ALPHA = 0.001


@attrs.frozen
class Cell:
    """A prompt with sampling parameters. draws: max of each arm."""

    name: str
    prompt: str
    fields: dict[str, float]
    draws: int
    alpha: float


@attrs.define(eq=False)
class Draws:
    """Texts of each arm, in the order in which they were asked for, and the tokens of drafts."""

    texts: dict[Side, list[str]] = attrs.field(factory=lambda: {PLAIN: [], DRAFTS: []})
    first: set[str] = attrs.field(factory=set)
    drafted: int | None = None
    accepted: int | None = None

    def counts(self, side: Side) -> Counter[str]:
        return Counter(self.texts[side])


def cost(budget: Budget) -> Cost:
    """The most that this check asks for, if each request has one text."""
    pilots = CANDIDATES * (PILOT + 16)
    each = 2 * (budget.cells * budget.draws + len(CUTS) * (budget.draws // 6 + 16))
    extra = 2 * 16 * (budget.cells + len(CUTS)) * len(LOOKS)
    return Cost(pilots + each + extra, DRAW_TOKENS * (pilots + each + extra))


def run_check(audit: Audit) -> Section:
    """Test the prompts with the best pilots at two temperatures, then cut distributions."""
    cells = choose_cells(audit)
    return Section(TITLE, tuple(_test(audit, cell.name, cell) for cell in cells))


def choose_cells(audit: Audit) -> list[Cell]:
    """The two prompts with the best pilots, of two categories, at T 0.7 and 1.0; then cut distributions."""
    chosen, draws = _best_prompts(audit), audit.budget.draws
    whole = [
        Cell(f"T = {temperature}, {p.family} {p.id}", str(p.given), {"temperature": temperature}, draws, CELL_ALPHA)
        for p in chosen
        for temperature in (0.7, 1.0)
    ]
    prompt = str(chosen[0].given)
    cuts = [(name, value) for fields in CUTS for name, value in fields.items()]
    return whole + [
        Cell(f"T = 1.0, {name} = {value}", prompt, {"temperature": 1.0, name: value}, draws // 6, CUT_ALPHA)
        for name, value in cuts
    ]


def _best_prompts(audit: Audit) -> list[Prompt]:
    """Two prompts by their pilots with drafts: accepted draft tokens, times how much the texts differ."""
    scores: list[tuple[float, float, int, Prompt]] = []
    for number, prompt in enumerate(audit.few("distributions")[:CANDIDATES]):
        cell = Cell(f"pilot {prompt.id}", str(prompt.given), {"temperature": 1.0}, PILOT, 1.0)
        answers = audit.session.ask_all(_asks(audit, cell, DRAFTS, PILOT, "pilot"))
        counts = Counter(text for answer in answers for text in answer.texts)
        accepted = sum(answer.accepted or 0 for answer in answers)
        spread = 1 - sum(c * c for c in counts.values()) / max(1, sum(counts.values())) ** 2
        scores.append((min(1.0, accepted / PILOT) * spread, spread, -number, prompt))
    ordered = [prompt for *_, prompt in sorted(scores, key=lambda score: score[:3], reverse=True)]
    other = next((p for p in ordered if p.family != ordered[0].family), None) or ordered[-1]
    return [ordered[0]] if other is ordered[0] else [ordered[0], other]


def _asks(audit: Audit, cell: Cell, side: Side, draws: int, label: str, tokens: int = DRAW_TOKENS) -> list[Ask]:
    """Requests for draws, whose seeds no other request has."""
    numbers = audit.seeds(f"{label} {side} {cell.name}")
    n = min(audit.facts.n, draws)
    several = {"n": n} if n > 1 else {}
    asks = []
    for _ in range(-(-draws // n)):
        seed = {"seed": numbers.getrandbits(31)} if audit.facts.seed else {}
        asks.append(Ask(side, cell.prompt, tokens, {**cell.fields, **several, **seed}))
    return asks


@promise("distribution at {0}")
def _test(audit: Audit, name: str, cell: Cell) -> Report:
    """Draw, look, and stop when a look alarms."""
    draws, spent = Draws(), 0.0
    before = read_counters(audit.session.clients[DRAFTS])
    comparison = compare_texts({}, {})
    for number, (part, spent) in enumerate(LOOKS):
        _draw(audit, cell, draws, number, round(part * cell.draws))
        check_independence(audit, draws)
        comparison = compare_texts(draws.counts(PLAIN), draws.counts(DRAFTS))
        if comparison.chance < cell.alpha * spent:
            break
    _count_drafts(audit, draws, before)
    return judge_draws(audit, cell, draws, comparison, spent)


def _count_drafts(audit: Audit, draws: Draws, before: Counters | None) -> None:
    """Take the counts of the server's metrics if its answers have none; those before an interruption are lost."""
    after = None if draws.accepted is not None or before is None else read_counters(audit.session.clients[DRAFTS])
    counted = {} if after is None or before is None else after - before
    if counted.get("drafted"):
        draws.drafted, draws.accepted = int(counted["drafted"]), int(counted.get("accepted", 0))


def _draw(audit: Audit, cell: Cell, draws: Draws, number: int, until: int) -> None:
    """Draw from both arms in a random order, until each has this number."""
    missing = until - len(draws.texts[PLAIN])
    if number == 0:
        firsts = audit.session.ask_all(_asks(audit, cell, PLAIN, 16, "first", 1))
        draws.first = {text for answer in firsts for text in answer.texts}
    asks = [ask for side in (PLAIN, DRAFTS) for ask in _asks(audit, cell, side, missing, f"draws {number}")]
    order = list(range(len(asks)))
    audit.seeds(f"order {number} {cell.name}").shuffle(order)
    answers = dict(zip(order, audit.session.ask_all([asks[i] for i in order]), strict=True))
    for i, ask in enumerate(asks):
        answer = answers[i]
        if answer.refused:
            raise Skipped(f"refused ({answer.status}): {answer.error}")
        draws.texts[ask.side] += answer.texts
        if ask.side == DRAFTS and answer.accepted is not None:
            draws.accepted = (draws.accepted or 0) + answer.accepted
            draws.drafted = (draws.drafted or 0) + (answer.drafted or 0)


def check_independence(audit: Audit, draws: Draws) -> None:
    """Raise Skipped if plain draws are no sample of independent texts, or if plain differs from plain."""
    plain = draws.texts[PLAIN]
    if len(set(plain)) == 1:
        raise Skipped("every plain draw is the same text: one draw is repeated, or the prompt has one continuation")
    if min(repeated_more(plain, lag) for lag in {1, audit.facts.n}) < INDEPENDENCE_ALPHA / 2:
        raise Skipped("draws with different seeds are not independent without drafts")
    half = len(plain) // 2
    drift = compare_texts(Counter(plain[:half]), Counter(plain[half:]))
    if drift.chance < FLOOR_ALPHA / len(LOOKS):
        raise Skipped(f"plain differs from plain (p = {drift.chance:.1g}): the server drifts")


def judge_draws(audit: Audit, cell: Cell, draws: Draws, comparison: Comparison, spent: float) -> Report:
    """The report after the last look. Raises Failed if it alarms."""
    shown = f"{len(draws.texts[PLAIN]):,} draws of each arm, p = {comparison.chance:.2g}{_acceptance_words(draws)}"
    if comparison.chance < cell.alpha * spent:
        several = {"n": audit.facts.n} if audit.facts.n > 1 else {}
        worst = comparison.worst_excess
        where = f"; {describe_symbol(worst.beginning, worst.symbol, worst.shares)}" if worst else ""
        raise Failed(shown + where, Ask(DRAFTS, cell.prompt, DRAW_TOKENS, {**cell.fields, **several}))
    if draws.accepted == 0:
        raise Skipped(f"no draft token was accepted: {shown}")
    return shown, describe_power(comparison, cell, draws.first)


def _acceptance_words(draws: Draws) -> str:
    if draws.accepted is None:
        return "; the server does not count drafts"
    return f"; {draws.accepted:,} of {draws.drafted:,} draft tokens accepted"


def describe_symbol(beginning: str, symbol: str, shares: Sequence[float]) -> str:
    """A difference in words, the plain share first."""
    following = "the end" if symbol == END else repr(symbol)
    plain, drafts = (f"{100 * share:.1f} %" for share in shares)
    return f"after {beginning[-30:]!r}, {following} has {plain} without drafts and {drafts} with"


def describe_power(comparison: Comparison, cell: Cell, first: set[str]) -> str:
    """The smallest bias that would have been found with 99 %."""

    starts = tuple(text for text in first if text)
    best = least_bias(comparison.symbols, cell.alpha, lambda beginning: not beginning.startswith(starts))
    if best is None:
        return "no bias would be found: too few draws"
    symbol, bias = best
    plain = symbol.shares[0]
    return f"finds {100 * plain:.1f} % that becomes {100 * (plain + bias):.1f} % (99 %)"
