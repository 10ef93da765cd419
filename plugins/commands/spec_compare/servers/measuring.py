"""Laps of servers: each on every batch of prompts, in turns, timed on this side."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
from spec_commands import machine
from spec_commands.prompts import Prompt
from spec_commands.servers.counters import Counters, read_counters

from spec_compare.inputs.conversation import Conversation, messages, turns_of
from spec_compare.measuring.measure import Slot, batches, schedule_laps
from spec_compare.records.record import Lap, Record, ServedText, Steps
from spec_compare.servers.asking import Server, TimedAnswer
from spec_core import Sampling

SEEDS = 1 << 31
"""Servers take seeds below this."""
LARGEST = 1 << 40
"""Max count of a text."""
LATE, WAIT = 4, 0.1
"""Times that counters are read again, and seconds between: a server may count after its answer."""


@attrs.frozen
class ServerRequestSettings:
    """Request settings of all servers. batch: prompts that are open at the same time."""

    max_tokens: int
    sampling: Sampling
    seed: int
    repeats: int
    batch: int

    def fields(self, prompt: Prompt) -> dict[str, Any]:
        """Fields of a request. With a temperature every cut is named, as the defaults of servers differ."""
        sampling = self.sampling
        fields = {"temperature": sampling.temperature}
        if sampling.temperature > 0:
            fields |= {"top_p": sampling.top_p, "top_k": sampling.top_k, "min_p": sampling.min_p}
            fields["seed"] = prompt.seed(self.seed) % SEEDS
        penalties = {name: getattr(sampling, name) for name in ("presence_penalty", "frequency_penalty")}
        return fields | {name: value for name, value in penalties.items() if value}


def measure_servers(
    servers: Sequence[Server],
    prompts: list[Prompt],
    request_settings: ServerRequestSettings,
    done: Collection[int] = (),
    on_lap: Callable[[Lap], None] = lambda lap: None,
) -> Iterator[Lap]:
    """The laps that are not done, in the order of a comparison: a warm-up, then the servers in turns."""
    groups, by_name = batches(prompts, request_settings.batch), {server.name: server for server in servers}
    left = [
        slot for slot in schedule_laps(list(by_name), len(groups), request_settings.repeats) if slot.number not in done
    ]
    for server in servers if left else ():
        run_lap(server, groups[0], request_settings, left[0], servers[0].name)
    for slot in left:
        lap = run_lap(by_name[slot.contender], groups[slot.group], request_settings, slot, servers[0].name)
        yield lap
        on_lap(lap)


def run_lap(
    server: Server, group: list[Prompt], request_settings: ServerRequestSettings, slot: Slot, baseline: str
) -> Lap:
    """Ask all prompts of a group at the same time; conversations turn by turn."""
    records: list[Record] = []
    seconds = 0.0
    answers: dict[str, list[str]] = {prompt.id: [] for prompt in group}
    for turn in range(max(map(turns_of, group))):
        talking = [prompt for prompt in group if turn < turns_of(prompt)]
        before = _counters(server, talking)
        began = time.perf_counter()
        timed = _ask_all(server, talking, answers, request_settings)
        took = time.perf_counter() - began
        seconds += took
        for prompt, one in zip(talking, timed, strict=True):
            served = _server_counts(server, one, before)
            share = took / len(talking)
            records.append(
                _record(prompt, one, served, (server.name, baseline, slot.repeat, turn), share, request_settings)
            )
            answers[prompt.id].append(one.answer.text)
    return Lap(
        server.name,
        group[0].family,
        slot.repeat,
        seconds,
        0.0,
        {},
        {},
        {},
        records,
        number=slot.number,
        load_average=machine.moment().average,
    )


def _ask_all(
    server: Server, talking: list[Prompt], answers: dict[str, list[str]], request_settings: ServerRequestSettings
) -> list[TimedAnswer]:
    def ask(prompt: Prompt) -> TimedAnswer:
        return server.ask(
            next_turn(prompt, answers[prompt.id]),
            request_settings.max_tokens,
            request_settings.fields(prompt),
            prompt.id,
        )

    if len(talking) == 1:
        return [ask(talking[0])]
    with ThreadPoolExecutor(len(talking)) as pool:
        futures = [pool.submit(ask, prompt) for prompt in talking]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def next_turn(prompt: Prompt, answers: list[str]) -> Any:
    """The prompt of the turn after these answers."""
    return messages(prompt, answers) if answers and isinstance(prompt, Conversation) else prompt.given


def _record(
    prompt: Prompt,
    timed: TimedAnswer,
    served: ServedText,
    key: tuple[str, str, int, int],
    share: float,
    request_settings: ServerRequestSettings,
) -> Record:
    """key: server, baseline, repeat and turn. share: of the text in the seconds of its batch."""
    name, baseline, repeat, turn = key
    read = timed.answer.prompt_tokens or 0
    return Record(
        contender=name,
        prompt=prompt.id,
        family=prompt.family,
        repeat=repeat,
        seed=prompt.seed(request_settings.seed) % SEEDS,
        prompt_tokens=read,
        tokens=[],
        finish="length" if timed.answer.finish == "length" else "stop",
        first_seconds=timed.first,
        decode_seconds=max(0.0, timed.last - timed.first),
        whole_seconds=share,
        cpu_seconds=0.0,
        steps=Steps(),
        draft_statistics=served.draft_statistics,
        text=timed.answer.text,
        baseline=baseline,
        turn=turn,
        reused=min(read, timed.answer.cached_tokens),
        served=served,
    )


def _counters(server: Server, talking: list[Prompt]) -> Counters | None:
    """The counters before a request, where one text alone will change them."""
    return read_counters(server.client) if server.counts and len(talking) == 1 else None


def _server_counts(server: Server, timed: TimedAnswer, before: Counters | None) -> ServedText:
    """What the answer says of its drafts, else what the counters say of them."""
    answer = timed.answer
    if answer.drafted is not None:
        return ServedText(timed.tokens, "answer", answer.drafts, answer.drafted, answer.accepted, timed.gaps)
    counts = {} if before is None else _count_differences(server, before, timed.tokens)
    drafted, accepted, drafts = (counts.get(name) for name in ("drafted", "accepted", "drafts"))
    if drafted is None or accepted is None or not 0 <= accepted <= drafted or not 0 <= (drafts or 0) <= drafted:
        return ServedText(timed.tokens, None, None, None, None, timed.gaps)
    return ServedText(timed.tokens, "/metrics", drafts, drafted, accepted, timed.gaps)


def _count_differences(server: Server, before: Counters, tokens: int) -> dict[str, int]:
    """What was counted since, if it is of this text alone; else nothing."""
    for _ in range(LATE):
        after = read_counters(server.client)
        values = {} if after is None else after - before
        counts = {name: int(value) for name, value in values.items() if abs(value) < LARGEST}
        if counts.get("tokens", tokens) == tokens:
            return counts
        time.sleep(WAIT)
    return {}
