"""Handling of Ctrl-C (SIGINT) and SIGTERM: what the first and the second signal do.

Python's default handler raises KeyboardInterrupt wherever the main thread happens to be. Inside a
garbage collection callback, which JAX installs, that exception is printed and lost; between two
files it would leave half a result. So `fit` is interrupted by an exception only while it chooses
among candidates, which leaves nothing half done. A thread receives
the signals, also while the main thread is inside compiled code, and acts on the phase of the
command:

| phase | on the first signal |
|---|---|
| `STARTING` | the process exits; nothing was learnt or written |
| `RUNNING` | KeyboardInterrupt in the main thread, for commands other than `fit` |
| `CHOOSING` | the same, and the library returns the best candidate so far, if there is one |
| `TRAINING` | training ends after its iteration, then results are written |
| `WRITING` | results are written |
| `DONE` | the process exits; everything is written |

A second signal exits the process in every phase. Within `deferred()` both wait.
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

__all__ = ["Handler", "Phase", "handler"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Phase(Enum):
    """Phases of a command."""

    STARTING = auto()
    RUNNING = auto()
    CHOOSING = auto()
    TRAINING = auto()
    WRITING = auto()
    DONE = auto()


_RAISING = (Phase.RUNNING, Phase.CHOOSING)
_ON_FIRST = {
    Phase.CHOOSING: "interrupted: the best candidate so far is written, if there is one; press "
    "Ctrl-C again to quit at once, without results",
    Phase.TRAINING: "interrupted: training ends after this iteration, then results are written; "
    "press Ctrl-C again to quit at once, without results",
    Phase.WRITING: "interrupted: results are being written; press Ctrl-C again to quit at once, "
    "without results",
}
_ON_EXIT = {
    Phase.RUNNING: "interrupted",
    Phase.DONE: "interrupted; all results were already written",
}
_SWALLOWED = 0
"""A byte that is not the number of a signal."""


class Handler:
    """Receive the signals of this process, once installed; before, phases have no effect."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.number = 0
        """Number of the first signal; 0 without one."""
        self.stopped_training = False
        self._count = 0
        self._raised = False
        self._own = 0
        """Number of signals that this object sent itself and has not yet received."""
        self._lock = threading.RLock()

    @property
    def exit_code(self) -> int:
        """128 plus the signal's number, as in a shell; 0 without a signal."""
        return 128 + self.number if self.number else 0

    @property
    def name(self) -> str:
        """Name of the first signal."""
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
        """Ignore signals while the interpreter shuts down."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def enter(self, phase: Phase) -> None:
        """Begin a phase."""
        with self._lock:
            self.phase = phase

    def deferred(self) -> contextlib.AbstractContextManager[Any]:
        """Defer signals during a short step that must not be interrupted."""
        return self._lock

    def end_training(self, _record: object) -> bool:
        """Return whether training must end; an estimator calls this after each iteration."""
        self.enter(Phase.TRAINING)
        self.stopped_training = self.number != 0
        return self.stopped_training

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        if self.phase in _RAISING and not self._raised:
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
            if self.phase in _RAISING and not self._raised:
                self._interrupt_main_thread()  # it may have handled the signal in STARTING
            if text := _ON_FIRST.get(self.phase):
                with contextlib.suppress(OSError, ValueError):
                    print(f"greatcircle: {text}", file=sys.stderr, flush=True)

    def _interrupt_main_thread(self) -> None:
        self._own += 1
        # A signal to that thread also interrupts its waiting for a lock.
        signal.pthread_kill(threading.main_thread().ident or 0, self.number)

    def _quit(self, number: int) -> None:
        """Exit the process from this thread: the main thread may be busy for a long time."""
        text = _ON_EXIT.get(self.phase, "interrupted; nothing was written")
        # A progress bar hides the cursor and occupies the last line.
        show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""
        try:
            os.write(2, f"{show_cursor}greatcircle: {text}\n".encode())
            if "multiprocessing" in sys.modules:
                for child in sys.modules["multiprocessing"].active_children():
                    child.terminate()
        finally:
            os._exit(128 + number)


handler = Handler()
