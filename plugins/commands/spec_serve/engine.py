"""The thread that owns the run. Other threads queue commands, which it executes between two steps, without blocking."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter

from spec_core import Emitted, Result, Run, Sequence, Step, UsageError
from spec_serve.counters import Counters
from spec_serve.errors import ApiError
from spec_serve.job import Accepted, Done, Drafted, Failed, Job, Progress, Prompted
from spec_serve.logs import line_of

log = logging.getLogger("spec_serve")
RETRY_SECONDS = "1"


class Engine:
    """Runs jobs until it is closed.

    :param run: only this engine may step it, submit to it or take from it.
    :param queue: how many jobs may wait for a slot.
    """

    def __init__(self, run: Run, queue: int) -> None:
        self.run = run
        self.room = run.settings.max_sequences + queue
        self.counters = Counters()
        self.counters.add_methods(sorted(run.drafters), run.settings.draft_max)
        self.finished: list[Callable[[Job, Result], None]] = []
        self.failures: list[Callable[[Job, Exception], None]] = []
        self.closing: list[Callable[[Run], None]] = []
        self.jobs: dict[Sequence, Job] = {}
        self.open: set[Job] = set()
        self.draining = False
        self.failed: BaseException | None = None
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._numbers = count()
        self._stopped = False
        run.observe(self._look)
        self._thread = Thread(target=self._serve, name="spec-serve-engine", daemon=True)

    # from any thread

    def start(self) -> None:
        self._thread.start()

    def submit(self, jobs: list[Job]) -> None:
        """Queue all of these jobs; each learns whether it was accepted. Raises ApiError if the queue is full."""
        self._check_alive()
        if len(jobs) > self.room:
            problem = f"{len(jobs)} texts, at most {self.room} run or wait at once on this server"
            raise ApiError(400, problem, "n")
        if self.draining:
            raise ApiError(503, "the server is shutting down", code="shutting_down", headers={"Retry-After": "5"})
        if len(self.open) + len(jobs) > self.room:
            headers = {"Retry-After": RETRY_SECONDS}
            occupancy = f"{len(self.open)} of {self.room} places are taken"
            raise ApiError(429, f"the server is busy: {occupancy}; try again later", code="busy", headers=headers)
        now = perf_counter()
        for job in jobs:
            job.number, job.asked = next(self._numbers), now
        self.open.update(jobs)
        self._commands.put(partial(self._submit, jobs))
        try:
            self._check_alive()  # it may have stopped before it could see these jobs
        except ApiError:
            self.open.difference_update(jobs)
            raise

    def _check_alive(self) -> None:
        if self.failed is not None:
            raise ApiError(503, "the engine has stopped after an error; see the server's log", code="engine")

    def cancel(self, jobs: Iterable[Job]) -> None:
        """Cancel jobs whose clients no longer wait."""
        for job in jobs:
            if job in self.open:
                self._commands.put(partial(self._cancel, job))

    def cancel_all(self) -> None:
        """End every text now; what it has so far is its result."""
        self.cancel(list(self.open))

    def close(self) -> None:
        """Cancel what runs, give the run's memory back, and end the thread."""
        self.draining = True
        self._commands.put(self._stop)
        if self._thread.is_alive():
            self._thread.join()

    @property
    def waiting(self) -> int:
        return sum(job.slot < 0 for job in list(self.open))

    @property
    def healthy(self) -> bool:
        return self.failed is None and self._thread.is_alive()

    # in the engine's thread

    def _serve(self) -> None:
        try:
            while not self._stopped:
                self._run_commands()
                if self.run.busy:
                    self._step()
                self._deliver()
            self._leave()
            self._deliver()
        except BaseException as error:
            log.exception("the engine stopped")
            self.failed = error
            for job in list(self.open):
                self._end(job, Failed(ApiError(500, "the engine stopped; see the server's log", code="engine")))

    def _leave(self) -> None:
        """Close the run; before it those who asked look at what it has kept."""
        for look in self.closing:
            look(self.run)
        self.run.close()

    def _run_commands(self) -> None:
        """Run all queued commands; with nothing else to run, wait for one."""
        if not self.run.busy:
            self._commands.get()()
        try:
            while True:
                self._commands.get_nowait()()
        except Empty:
            pass

    def _step(self) -> None:
        self._expire()
        try:
            events = self.run.step()
        except Exception:  # it ended every running text; each raises it when its result is taken
            log.exception("a step failed")
            return
        for seq, own_events in _by_sequence(events).items():
            if (job := self.jobs.get(seq)) is not None:
                self._progress(job, own_events)

    def _progress(self, job: Job, events: list[Emitted]) -> None:
        job.last = perf_counter()
        if not job.first:
            job.first = job.last
            self.counters.first_token(job)
        self.counters.generated += len(events)
        progress = Progress(events, job.drafted if job.trace else None)
        if job.streamed:
            job.tell(progress)
        else:  # a wake-up of the event loop for every step costs others their time
            job.steps.append(progress)

    def _deliver(self) -> None:
        """Results of texts that have ended."""
        for seq in list(self.run.results):
            job = self.jobs.pop(seq)
            try:
                result = self.run.take(seq)
            except Exception as error:
                if not isinstance(error, UsageError):
                    failed = {"request": job.request.name, **identity(job)}
                    log.error("failed %s", line_of(failed), extra={"numbers": failed}, exc_info=error)
                self.counters.record_end(job, "error")
                for report in self.failures:
                    report(job, error)
                self._end(job, Failed(error))
            else:
                self.counters.record_result(job, result)
                figures = numbers(job, result)
                log.info("%s", line_of(figures), extra={"numbers": figures})
                for tell in self.finished:
                    tell(job, result)
                self._end(job, Done(result))

    def _end(self, job: Job, message: Done | Failed) -> None:
        self.open.discard(job)
        job.tell(message)

    def _submit(self, jobs: list[Job]) -> None:
        """Submit all jobs, or none: the first refused one takes the others with it."""
        try:
            for job in jobs:
                job.seq = self.run.submit(job.request)
                self.jobs[job.seq] = job
        except Exception as error:
            self._withdraw(jobs, error)
            return
        for job in jobs:
            job.tell(Accepted())

    def _withdraw(self, jobs: list[Job], error: Exception) -> None:
        for job in jobs:
            if job.seq is not None:
                self.run.cancel(job.seq)
                self.run.results.pop(job.seq, None)
                self.jobs.pop(job.seq, None)
            self._end(job, Failed(error))

    def _cancel(self, job: Job) -> None:
        if job.seq is not None:
            self.run.cancel(job.seq)

    def _expire(self) -> None:
        now = perf_counter()
        for job in list(self.jobs.values()):
            if job.deadline is not None and now > job.deadline and not job.expired:
                job.expired = True
                self._cancel(job)

    def _stop(self) -> None:
        self._stopped = True

    def _look(self, step: Step) -> None:
        """Note at the end of every step which jobs have begun, and what was drafted."""
        self.counters.forward(step)
        for part in step.parts:
            job = self.jobs.get(part.seq)
            if job is None:
                continue
            if not job.begun:
                job.begun, job.slot = step.began, self._free_slot()
                self.counters.began(job)
                self._tell_prompted(job, job.seq.reused if job.seq else 0, 0.0)
            if not job.first:
                self._tell_prompted(job, part.seq.evaluated, perf_counter() - job.begun)
            self.counters.step(job, part)
            job.drafted = None
            if job.trace and part.draft is not None:
                path = part.full_verdict.path if part.full_verdict else ()
                job.drafted = Drafted(part.draft.ids, part.sources, path)

    def _tell_prompted(self, job: Job, processed: int, seconds: float) -> None:
        """Report how much of its prompt is evaluated, if the client asked for it."""
        if job.prompted and job.streamed and job.seq is not None:
            total = job.seq.prompt_len
            job.tell(Prompted(min(processed, total), job.seq.reused, total, seconds))

    def _free_slot(self) -> int:
        taken = {job.slot for job in self.jobs.values()}
        return next(i for i in count() if i not in taken)


def identity(job: Job) -> dict[str, str]:
    """The HTTP request of a text."""
    return {"route": job.info.route, "client": job.info.client, "request_id": job.info.request_id}


def numbers(job: Job, result: Result) -> dict[str, str | int | float | None]:
    """Numbers of a finished text, without its content."""
    stats = result.stats
    return {
        "request": job.request.name,
        "text": job.index,
        "finish": "deadline" if job.expired else result.finish_reason,
        "prompt_tokens": result.prompt_tokens,
        "cached_tokens": result.reused,
        "tokens": len(result.tokens),
        "drafted": stats["drafted"],
        "accepted": stats["accepted"],
        "wait_seconds": round(max(0.0, job.begun - job.asked), 4),
        "first_token_seconds": round(job.first - job.asked, 4) if job.first else None,
        "seconds": round(max(0.0, job.last - job.asked), 4),
        **identity(job),
    }


def _by_sequence(events: list[Emitted]) -> dict[Sequence, list[Emitted]]:
    """Events of each sequence, in order."""
    by_sequence: dict[Sequence, list[Emitted]] = {}
    for event in events:
        by_sequence.setdefault(event.seq, []).append(event)
    return by_sequence
