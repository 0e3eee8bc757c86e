"""An event loop of the bus's own, for async handlers of programs that have none running."""

import asyncio
import threading
from collections.abc import Collection

from unibus.threads import DaemonThread


class LoopThread:
    """Started by making it. `stop` ends the loop after what was scheduled before has run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = DaemonThread(self._run, "unibus-loop")
        try:
            self._thread.start()
        except BaseException:
            if self._thread.withdraw():
                self.loop.close()
            else:
                self.stop(0.0)
            raise

    def _run(self) -> None:
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
        """End the loop and its thread. Where one of these tasks is on it, it ends after them and is not waited for.

        It is not waited for either if its thread is one of `threads`: those that are blocked until this is over.
        """
        mine = [slot for slot in slots if slot.get_loop() is self.loop and not slot.done()]
        try:
            self.loop.call_soon_threadsafe(self._stop_after, mine)
        except RuntimeError:
            return  # It has ended already.
        if not mine and self._thread not in threads and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _stop_after(self, slots: "list[asyncio.Task[None]]") -> None:
        """On the loop."""
        left = [slot for slot in slots if not slot.done()]
        if left:
            left[0].add_done_callback(lambda _: self._stop_after(left))
        else:
            self.loop.stop()
