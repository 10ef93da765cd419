"""A process with limits: what ends it is told, the next call starts another one, and nothing is left behind."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from spec_core.toolkit.limited_process import LimitedProcess, ProcessEnded

PROGRAM = """
import sys, time, os
from spec_core.toolkit.limited_process import answer_messages

def answer(message):
    if message == b"loop":
        while True:
            pass
    if message == b"allocate":
        return bytes(len(bytearray(1 << 31)))
    if message == b"recurse":
        import ctypes
        return ctypes.string_at(0)
    if message == b"sleep":
        time.sleep(60)
    if message == b"raise":
        raise ValueError("no")
    if message == b"work":
        end = time.process_time() + 0.6
        while time.process_time() < end:
            pass
    if message == b"print":
        print("not an answer", flush=True)
    return message[::-1]

answer_messages(answer)
"""


@pytest.fixture
def process():
    process = LimitedProcess(["-c", PROGRAM], cpu_seconds=1, memory=64 << 20, seconds=20)
    yield process
    process.close()


def test_it_answers_and_stays(process):
    assert [process.call(b"abc"), process.call(b""), process.call(b"x" * 3_000_000)] == [b"cba", b"", b"x" * 3_000_000]
    assert process.starts == 1


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"loop", "more than 1 seconds of a processor"),
        (b"allocate", "code 1"),
        (b"recurse", "overflowed its stack"),
        (b"raise", "code 1"),
    ],
    ids=["loop", "allocate", "segfault", "raise"],
)
def test_a_message_that_ends_it_says_why_and_the_next_is_answered(process, message, reason):
    with pytest.raises(ProcessEnded, match=reason):
        process.call(message)

    assert process.call(b"ab") == b"ba"
    assert process.starts == 2


def test_a_process_that_sleeps_is_ended():
    process = LimitedProcess(["-c", PROGRAM])
    process.call(b"")  # it has started, which may take longer
    process.seconds = 1

    with pytest.raises(ProcessEnded, match="more than 1 seconds"):
        process.call(b"sleep")


def test_output_of_the_program_is_no_answer(process):
    assert process.call(b"print") == b"tnirp"


def test_the_limit_of_time_is_for_each_message(process):
    for _ in range(4):
        assert process.call(b"work") == b"krow"
    assert process.starts == 1


def test_threads_take_turns(process):
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: process.call(b"%d" % i)})) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {i: b"%d" % i for i in range(8)}
    assert process.starts == 1


def test_a_fork_has_a_process_of_its_own(process):
    process.call(b"a")
    pid = os.fork()
    if not pid:
        os._exit(process.call(b"child") != b"dlihc")

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert process.call(b"ab") == b"ba" and process.starts == 1


def test_an_interrupted_call_leaves_no_answer_behind(process, monkeypatch):
    process.call(b"a")
    monkeypatch.setattr("spec_core.toolkit.limited_process._read", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        process.call(b"first")
    monkeypatch.undo()

    assert process.call(b"second") == b"dnoces"


def test_close_ends_the_process(process):
    process.call(b"a")
    child = process._child
    process.close()

    assert child.poll() is not None
    assert process.call(b"ab") == b"ba"


def test_the_process_ends_with_its_parent():
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        process = LimitedProcess(["-c", PROGRAM])
        process.call(b"a")
        os.write(writer, b"%d" % process._child.pid)
        os._exit(0)
    os.waitpid(pid, 0)
    child = int(os.read(reader, 20))
    os.close(reader)
    os.close(writer)

    deadline = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(child)


def is_alive(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
