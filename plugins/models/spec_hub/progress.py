"""A progress bar for downloads, on a terminal only."""

from __future__ import annotations

from types import TracebackType


class DownloadProgress:
    """The bar of one model, over all its files. total: bytes."""

    def __init__(self, title: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as Speed

        console = Console(stderr=True)
        columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), Speed()
        self._bar = Progress(
            *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._bar.add_task(title, total=total)

    def __enter__(self) -> DownloadProgress:
        self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def advance(self, count: int) -> None:
        """Count downloaded bytes."""
        self._bar.advance(self._task, count)
