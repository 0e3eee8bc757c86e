"""An event loop of the bus's own, in a daemon thread: for async handlers of programs without a running loop."""

import asyncio
import threading
from collections.abc import Collection

from unibus.threads import DaemonThread


class LoopThread:
    """Starts with its construction. `stop` ends the loop after the callbacks that were scheduled before."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = DaemonThread(self._run, "unibus-loop")
        try:
            self._thread.start()
        except BaseException:  # No thread, or Ctrl-C: the thread may run nevertheless.
            if self._thread.withdraw():
                self.loop.close()
            else:
                self.stop(0.0)
            raise

    def _run(self) -> None:
        # The same steps as asyncio.run: cancel the tasks that are left, let them end, close the async generators and
        # the loop. asyncio would report a task that is left pending as destroyed.
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def stop(
        self,
        timeout_s: float | None = None,
        slots: "Collection[asyncio.Task[None]]" = (),
        threads: Collection[threading.Thread] = (),
    ) -> None:
        """End the loop and its thread, and wait for the thread.

        If one of the tasks `slots` runs on this loop, the loop ends after them, and the caller does not wait: they are
        handlers that wait for the caller. Nor does it wait if the thread is one of `threads`, which are blocked in
        close(). Either wait would be a deadlock.
        """
        mine = [slot for slot in slots if slot.get_loop() is self.loop and not slot.done()]
        # Through the queue of the loop, so that everything scheduled before still runs.
        try:
            self.loop.call_soon_threadsafe(self._stop_after, mine)
        except RuntimeError:
            return  # The loop has ended already.
        if not mine and self._thread not in threads and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _stop_after(self, slots: "list[asyncio.Task[None]]") -> None:
        """On the loop's thread: stop the loop once all of the slots have ended."""
        left = [slot for slot in slots if not slot.done()]
        if left:
            # One callback at a time is enough: it checks the rest again when the first slot has ended.
            left[0].add_done_callback(lambda _: self._stop_after(left))
        else:
            self.loop.stop()
