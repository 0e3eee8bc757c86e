"""An event loop of the bus's own, for async handlers of programs that have none running."""

import asyncio
import threading


class LoopThread:
    """Started by making it. `stop` ends the loop after what was scheduled before has run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="unibus-loop", daemon=True)
        self._thread.start()

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

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def release(self) -> None:
        """Let the loop end without waiting for it."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)

    def stop(self, timeout_s: float | None = None) -> None:
        self.release()
        if not self.is_current():
            self._thread.join(timeout_s)
