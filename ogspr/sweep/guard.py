"""Runs a command that is asked to end, and given time for it, whatever happens to those who started it.

    python -I -S guard.py PARENT COMMAND...

Schedulers kill the children of a worker that dies, and Ray its whole process group. This process is that
child. The command is a grandchild in a session of its own and gets SIGTERM when this process dies. A
program of its own, on the standard library alone, so that it takes 10 MB and starts at once.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_TRY_LATER = os.EX_TEMPFAIL


def _die_with(parent: int) -> bool:
    """SIGTERM for this process when `parent` ends; False if it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == parent


def main() -> int:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    passed_on = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
    if not _die_with(parent):
        return _TRY_LATER
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        os.setsid()
        alive = _die_with(guard)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
        if not alive:
            os._exit(_TRY_LATER)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
            os._exit(127)
    for number in passed_on:
        signal.signal(number, lambda _number, _frame: os.kill(child, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
