"""The progress bar of generators and downloads."""

from types import TracebackType

from tqdm import tqdm


class ProgressBar(tqdm):
    """tqdm's bar, which disappears if the work fails: the reason is then all there is to read."""

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.leave = False
        super().__exit__(kind, error, traceback)
