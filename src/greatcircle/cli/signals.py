"""Ctrl-C (SIGINT) and SIGTERM: what the first and the second signal do, for every command.

Python's default handler raises KeyboardInterrupt wherever the main thread happens to be. Inside a
callback of garbage collection, which JAX has, that exception is printed and lost; between two files
it leaves half a result. So `fit` is not interrupted by an exception. A thread receives the signals,
also while the main thread is inside compiled code, and acts on the phase of the command:

| phase | on the first signal |
|---|---|
| `STARTING` | the process ends; nothing was learnt or written |
| `RUNNING` | KeyboardInterrupt in the main thread, for commands other than `fit` |
| `TRAINING` | training ends after its iteration, then results are written |
| `WRITING` | results are written |
| `DONE` | the process ends; everything is written |

A second signal ends the process in every phase. Inside `held()` both wait.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from enum import Enum, auto
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Phase(Enum):
    """Phases of a command."""

    STARTING = auto()
    RUNNING = auto()
    TRAINING = auto()
    WRITING = auto()
    DONE = auto()


_ON_FIRST = {
    Phase.TRAINING: "interrupted: training ends after this iteration, then results are written; "
    "press Ctrl-C again to quit at once, without results",
    Phase.WRITING: "interrupted: results are being written; press Ctrl-C again to quit at once, "
    "without results",
}
_AT_THE_END = {
    Phase.RUNNING: "interrupted",
    Phase.DONE: "interrupted; all results were already written",
}
_SWALLOWED = 0
"""A byte that is no signal's number."""


class Handler:
    """Receives the signals of this process, once installed; until then phases do nothing."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.number = 0
        """Of the first signal; 0 if there was none."""
        self.stopped_training = False
        self._count = 0
        self._raised = False
        self._own = 0
        """Signals on their way that this object has sent itself."""
        self._lock = threading.RLock()

    @property
    def exit_code(self) -> int:
        """As a shell counts it, 128 and the signal's number; 0 without a signal."""
        return 128 + self.number if self.number else 0

    @property
    def name(self) -> str:
        """Of the first signal."""
        return signal.Signals(self.number).name

    def install(self) -> None:
        """Receive signals from now on; one that the parent process ignores stays ignored."""
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        threading.Thread(target=self._receive, daemon=True).start()
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        sys.unraisablehook = self._unraisable
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def ignore(self) -> None:
        """Let the interpreter shut down undisturbed."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def enter(self, phase: Phase) -> None:
        """Begin a phase."""
        with self._lock:
            self.phase = phase

    def held(self) -> contextlib.AbstractContextManager[Any]:
        """Keep signals waiting, for a short step that must not be cut in two."""
        return self._lock

    def end_training(self, _record: object) -> bool:
        """Report whether training must end; a callback of an estimator, called each iteration."""
        self.enter(Phase.TRAINING)
        self.stopped_training = self.number != 0
        return self.stopped_training

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        if self.phase is Phase.RUNNING and not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def _unraisable(self, lost: Any) -> None:
        """Raise a KeyboardInterrupt again that a callback has swallowed."""
        if issubclass(lost.exc_type, KeyboardInterrupt):
            self._writer.send(bytes([_SWALLOWED]))
        else:
            sys.__unraisablehook__(lost)

    def _receive(self) -> None:
        while received := self._reader.recv(1):
            if received[0] == _SWALLOWED:
                time.sleep(0.01)  # until the callback has returned
                self._raised = False
                self._interrupt_main_thread()
            elif self._own:
                self._own -= 1
            else:
                self._act(received[0])

    def _act(self, number: int) -> None:
        with self._lock:
            self.number = self.number or number
            self._count += 1
            if self._count > 1 or self.phase in (Phase.STARTING, Phase.DONE):
                self._quit(number)
            if self.phase is Phase.RUNNING and not self._raised:
                self._interrupt_main_thread()  # which may have seen it while still STARTING
            if words := _ON_FIRST.get(self.phase):
                with contextlib.suppress(OSError, ValueError):
                    print(f"greatcircle: {words}", file=sys.stderr, flush=True)

    def _interrupt_main_thread(self) -> None:
        self._own += 1
        # To that thread, because only then its waiting for a lock ends.
        signal.pthread_kill(threading.main_thread().ident or 0, self.number)

    def _quit(self, number: int) -> None:
        """End the process from this thread: the main thread may be busy for long."""
        words = _AT_THE_END.get(self.phase, "interrupted; nothing was written")
        # A progress bar has hidden the cursor, and stands on the last line.
        show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""
        try:
            os.write(2, f"{show_cursor}greatcircle: {words}\n".encode())
            if "multiprocessing" in sys.modules:
                for child in sys.modules["multiprocessing"].active_children():
                    child.terminate()
        finally:
            os._exit(128 + number)


handler = Handler()
