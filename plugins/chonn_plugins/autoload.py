"""Integrations that install themselves when their host is imported.

``import torch`` calls `arm` (through `chonn_autoload`), which only puts a finder in front of
`sys.meta_path`. Whenever a host module has been loaded, also after a reload or a purge from
`sys.modules`, the finder installs our integration with it. In a process that never loads a host
this costs a fraction of a millisecond; it imports these two modules of ours, which need the
standard library only.

``CHONN_AUTOLOAD=0`` turns this off, as does torch's own ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` for all
packages; `arm` then does it explicitly. An integration that fails is skipped with one
RuntimeWarning, silently if the installed host is too old for it. Importing torch or a host never
fails because of an integration.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Host module -> our "module:function" to call whenever it has been loaded.
# Submodules: with `import timm` first, `timm` itself is half loaded when torch calls us. Ours run
# before the host is an attribute of its parent: `from neuralop.models import fno` works there.
HOSTS = {
    "timm.models": "chonn_ops.models.chonn:install",
    "neuralop.models.base_model": "chonn_plugins.neuralop.network:install",
    "neuralop.models.fno": "chonn_plugins.neuralop.hook:install_fno",
    "neuralop.models.uno": "chonn_plugins.neuralop.hook:install_uno",
}

_tried: set[str] = set()
_warned: set[str] = set()


def arm() -> None:
    """Integrate the hosts that are loaded, and watch for the others; idempotent, never raises."""
    try:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        _finder.integrate_waiting()
    except Exception as error:
        _disable("its hosts", error)


class _Finder(MetaPathFinder):
    """Finds hosts as the finders behind it do, and has them integrated once they are loaded."""

    def __init__(self) -> None:
        # Hosts that were found without us, or that someone else was loading when we were armed:
        # `from neuralop.models import FNO` reaches its first `import torch` inside
        # neuralop.models.fno. The import that comes after integrates them.
        self.waiting: set[str] = set()
        self._searching = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        self.integrate_waiting()
        # Finders that ask all others, as we do, may ask us again.
        if fullname not in HOSTS or getattr(self._searching, "name", None) == fullname:
            return None
        self._searching.name = fullname
        try:
            spec = self._ask_others(fullname, path, target)
            if spec is not None and hasattr(spec.loader, "exec_module"):
                spec.loader = _HostLoader(spec.loader)
            return spec
        except Exception:
            return None  # the import system asks the same finders next and reports the error
        finally:
            self._searching.name = None

    def _ask_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        finders = list(sys.meta_path)
        # Those in front of us have been asked.
        for finder in finders[finders.index(self) + 1 :] if self in finders else ():
            find_spec = getattr(finder, "find_spec", None)
            spec = None if find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def integrate_waiting(self) -> None:
        # No lock: it could deadlock with the import system's locks. Integrations are idempotent.
        self.waiting.update(host for host in HOSTS.keys() - _tried if host in sys.modules)
        if not self.waiting or _is_loading("torch"):
            return
        for host in list(self.waiting):
            if not _is_loading(host):
                self.waiting.discard(host)
                if sys.modules.get(host) is not None:
                    _integrate(host)


class _HostLoader(Loader):
    """The host's own loader until the module runs; it then takes its place back."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        # get_source, get_data, is_package, ...; `_loader` itself is missing in unpickled copies.
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _integrate(module.__name__)


def _is_loading(name: str) -> bool:
    try:
        return getattr(sys.modules[name].__spec__, "_initializing", False) is True
    except Exception:  # not there, or a stand-in
        return False


def _integrate(host: str) -> None:
    _tried.add(host)
    _finder.waiting.discard(host)
    name, _, function = HOSTS[host].partition(":")
    if _is_loading(name):  # our side was imported first, and imports the host
        _finder.waiting.add(host)
        return
    try:
        module = import_module(name)
        getattr(module, function)()
    except Exception as error:
        if type(error).__name__ == "_DeadlockError":
            # Another thread is importing our side, which waits for the host that we are loading.
            _finder.waiting.add(host)
            return
        package = host.partition(".")[0]
        lacking = (getattr(error, "name", None) or "") if isinstance(error, ImportError) else ""
        if lacking.partition(".")[0] != package:
            _disable(package, error)


def _disable(host: str, error: Exception) -> None:
    if host in _warned:
        return
    _warned.add(host)
    message = f"chonn-ops: integration with {host} disabled: {type(error).__name__}: {error}"
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    except Exception:  # warnings are errors
        with contextlib.suppress(Exception):  # a closed stream
            print(message, file=sys.stderr)


_finder = _Finder()
