"""Chat templates of strangers: sandboxed, and rendered in processes with limits of time and memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, perf_counter, sleep

import pytest
from spec_targets.tokenizer.templates.chat import render_chat
from spec_targets.tokenizer.templates.workers import CPU_SECONDS, WORKERS_MAX, TemplateFailed, Workers, workers

from spec_core import UsageError, load

CHAT = [{"role": "user", "content": "hi"}]
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has neither these limits nor fork")


BOTH = "{% for i in range(9999) %}{% for j in range(9999) %}BODY{% endfor %}{% endfor %}"
HOSTILE = {
    "attributes of objects": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals of functions": "{{ raise_exception.__globals__ }}",
    "format strings": "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
    "changing a list": "{{ messages.append(1) }}",
    "output without end": BOTH.replace("BODY", "{{ 'x' * 1000 }}"),
    "loops without output": BOTH.replace("BODY", "{% if messages.x %}{% endif %}"),
    "silent loops": BOTH.replace("BODY", ""),
    "a huge range": "{% for i in range(10**9) %}{% endfor %}",
    "a huge power": "{{ 9 ** (9 ** 9) }}",
    "a huge text": "{{ 'x' * 999999999 }}",
    "its own exception": "{{ raise_exception('roles must alternate') }}",
    "bad syntax": "{% if %}",
    "a filter with a huge width": "{{ 'x' | center(9999999999) }}",
    "a filter that indents": "{{ ('x\\n' * 100000) | indent(100000) }}",
    "a format with a huge width": "{{ '%9999999999d' | format(1) }}",
    "a format of the text": "{{ '%9999999999d' % 1 }}",
    "a replacement": "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
    "joining in a loop": "{% set n = namespace(t='x') %}{% for i in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
    "adding in a loop": "{% set n = namespace(t='x') %}{% for i in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
    "lists in a loop": "{% set n = namespace(t=[1]) %}{% for i in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
    "batches": "{{ messages | batch(999999999, 1) | list | length }}",
    "a macro that doubles": "{% macro f(t, n) %}{{ f(t ~ t, n - 1) if n }}{% endmacro %}{{ f('x', 60) }}",
    "many tags": "{% if a %}{% endif %}" * 300_000,
    "deep expressions": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "printing in a loop": BOTH.replace("BODY", "{{ messages | pprint | length }}"),
    "a digit too many": "{{ (10 ** 99999999) | string | length }}",
    "lorem ipsum": "{{ lipsum(n=99999, max=99999) }}",
    "deep recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
}


@pytest.fixture(scope="module", autouse=True)
def short():
    """Processes with half a second, which the system makes one or two."""
    workers.close()
    for worker in workers.all:
        worker.cpu_seconds = 0.5
    yield
    workers.close()
    for worker in workers.all:
        worker.cpu_seconds = CPU_SECONDS


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_refused(name):
    """Templates are sandboxed, with limits of output and time."""
    with pytest.raises(UsageError, match="chat template"):
        text = render_chat(HOSTILE[name], [{"role": "user", "content": "x"}])
        assert text == "", text[:100]
        raise UsageError("chat template said nothing", hint="-")


@posix
def test_many_attacks_at_once_leave_the_server_its_memory():
    """Two processes at a time, each with its limit; usual chats are answered between them and after them."""
    attack = HOSTILE["joining in a loop"]
    with ThreadPoolExecutor(12) as threads:
        failed = [threads.submit(render_chat, attack, CHAT) for _ in range(12)]
        assert threads.submit(render_chat, PLAIN, CHAT).result() == "<user>hi"
    assert all(isinstance(one.exception(), UsageError) for one in failed)
    assert render_chat(PLAIN, CHAT) == "<user>hi"


SAID = {
    "bad syntax": "Expected an expression",
    "silent loops": "it took more than .* of a processor",
    "a huge text": "MiB of memory",
}


@pytest.mark.parametrize("name", SAID)
def test_the_reason_is_a_sentence_without_paths_or_a_traceback(name):
    with pytest.raises(UsageError, match=SAID[name]) as caught:
        render_chat(HOSTILE[name], CHAT)

    assert "/" not in caught.value.reason and "\n" not in caught.value.reason and len(caught.value.reason) < 400


def test_an_escape_sequence_in_a_message_of_a_template_is_not_passed_on():
    with pytest.raises(UsageError) as caught:
        render_chat("{{ raise_exception('a\x1b[2Jb') }}", CHAT)

    assert "\x1b" not in caught.value.reason


# processes


def test_a_usual_chat_takes_milliseconds_once_a_process_is_warm():
    tokenizer = load("zoo:pico", weights=False).tokenizer
    tokenizer.render(CHAT)
    took = []
    for _ in range(30):
        began = perf_counter()
        tokenizer.render(CHAT)
        took.append(perf_counter() - began)

    assert sorted(took)[15] < 0.02


def test_threads_share_a_few_processes():
    own = Workers()
    texts = [f"text {i}" for i in range(200)]
    with ThreadPoolExecutor(16) as threads:
        rendered = list(threads.map(lambda text: own.render("{{ x }}", {"x": text}, 1000), texts))
    count = sum(worker.starts for worker in own.all)
    own.close()

    assert rendered == texts and 1 <= count <= WORKERS_MAX


def test_a_killed_process_is_replaced():
    """Killed while it waits, again and again."""
    own = Workers()
    for i in range(4):
        assert own.render("{{ x }}", {"x": i}, 1000) == str(i)
        children_of(own)[0].kill()
        children_of(own)[0].wait()
    assert own.render("{{ x }}", {"x": 9}, 1000) == "9"
    own.close()


@posix
def test_a_process_that_does_not_answer_is_ended():
    own = Workers()
    own.render("a", {}, 1000)
    for worker in own.all:
        worker.seconds = 0.3
    os.kill(children_of(own)[0].pid, signal.SIGSTOP)
    with pytest.raises(TemplateFailed, match="it took more than"):
        own.render("a", {}, 1000)
    for worker in own.all:
        worker.seconds = 30.0
    assert own.render("a", {}, 1000) == "a"
    own.close()


def children_of(own: Workers) -> list[subprocess.Popen]:
    return [worker._child for worker in own.all if worker._child is not None]


@posix
def test_a_forked_child_starts_its_own_processes():
    """Even if another thread of the parent held the lock, and the parent's processes go on."""
    assert render_chat(PLAIN, CHAT) == "<user>hi"
    with workers._lock:
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if render_chat(PLAIN, CHAT) == "<user>hi" else 2
                workers.close()
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert render_chat(PLAIN, CHAT) == "<user>hi"


START = """
from spec_targets.tokenizer.templates.chat import render_chat
from spec_targets.tokenizer.templates.workers import workers
import os, threading
print(render_chat('{{ messages[0].content }}', [{'content': 'hi'}]))
print(*(worker._child.pid for worker in workers.all if worker._child), flush=True)
"""
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
ENDS = {
    "returns": "",
    "a thread renders": f"threading.Thread(target=render_chat, args=('{LOOPS}', [{{}}]), daemon=True).start()",
    "is killed": "os.kill(os.getpid(), 9)",
}


@posix
@pytest.mark.parametrize("how", ENDS)
def test_a_program_ends_at_once_and_leaves_no_process(how):
    """Run as plain Python, whose main module has no guard."""
    began = monotonic()
    done = subprocess.run([sys.executable, "-c", START + ENDS[how]], capture_output=True, text=True, timeout=60)
    text, pid = done.stdout.split()

    assert text == "hi" and "Traceback" not in done.stderr and monotonic() - began < 10
    assert is_gone(int(pid))


def is_gone(pid: int) -> bool:
    """Whether a process ends within seconds."""
    for _ in range(300):
        try:
            os.kill(pid, 0)
        except OSError:
            return True
        sleep(0.01)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_template_sees_nothing_of_this_process(monkeypatch):
    """Its process has other variables and files."""
    monkeypatch.setenv("SPEC_SECRET", "x")
    own = Workers()
    own.render("a", {}, 1000)
    pid = children_of(own)[0].pid
    with open(f"/proc/{pid}/environ", "rb") as file:
        assert b"SPEC_SECRET" not in file.read()
    assert len(os.listdir(f"/proc/{pid}/fd")) <= 6
    own.close()
