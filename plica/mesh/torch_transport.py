"""Ranks on `torch.distributed`: Gloo on CPUs, NCCL on GPUs, started by `torchrun`.

The board is the key-value store at MASTER_ADDR:MASTER_PORT, which the agent of `torchrun` holds,
or rank 0 where ranks are started one by one with RANK and WORLD_SIZE.  Not run in our tests: NCCL,
which needs GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future, TimeoutError as StillWaiting
from datetime import timedelta
from threading import Thread
from typing import Any, Final

import numpy as np

from plica.ir.interpret.value import Array
from plica.mesh.transport import PeerLostError, Waiting, missing_package, rank_error

GRACE: Final = 2.0  # seconds that Gloo waits longer than we do: our message names the rank


def torch_transport(engine: str, timeout: float) -> TorchTransport:
    """The transport of this process, by the variables that `torchrun` sets."""
    rank, size = _number("RANK", 0), _number("WORLD_SIZE", 1)
    if rank >= size:
        message = f"Rank {rank} is not one of {size}."
        raise rank_error(message, f"RANK from 0 to {size - 1}", str(rank))
    host, port = os.environ.get("MASTER_ADDR", "localhost"), _number("MASTER_PORT", 1)
    try:
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # no __all__
    except ImportError as error:
        raise missing_package("torch", engine) from error
    held = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    limit = timedelta(seconds=timeout)
    try:
        store = TCPStore(
            host, port, is_master=rank == 0 and not held, timeout=limit, wait_for_workers=False
        )
    except RuntimeError as error:
        message = f"Rank {rank} cannot reach the store of the ranks at {host}:{port}."
        hint = "Compare MASTER_ADDR and MASTER_PORT of all ranks; rank 0 opens the port."
        raise rank_error(message, "a store at that address", _first_line(error), hint) from error
    prefix = f"plica/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return TorchTransport(engine, rank, size, timeout, PrefixStore(prefix, store))


def _number(name: str, least: int) -> int:
    said = os.environ.get(name, "")
    if not said.isdecimal() or int(said) < least:
        message = f"The variable {name} of this process is not a number from {least}."
        hint = "torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."
        raise rank_error(message, f"{name}={least} or more", repr(said), hint)
    return int(said)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]


class TorchTransport:
    """One rank of a process group."""

    def __init__(  # what it is about
        self, engine: str, rank: int, size: int, timeout: float, store: Any
    ) -> None:  # Any: a class of torch, which is imported late
        self.engine, self.rank, self.size, self.timeout = engine, rank, size, timeout
        self.store = store
        self.device = "cpu"

    def tell(self, key: str, text: str, *, first: bool = False) -> None:
        try:
            if first:
                self.store.compare_set(key, "", text)
            else:
                self.store.set(key, text)
        except RuntimeError as error:
            raise PeerLostError(0) from error

    def ask(self, key: str) -> str | None:
        try:
            return self.store.get(key).decode() if self.store.check([key]) else None
        except RuntimeError as error:
            raise PeerLostError(0) from error

    def open(self) -> None:
        import torch
        import torch.distributed as dist

        if self.engine == "nccl":
            self.device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
            torch.cuda.set_device(self.device)
        limit = timedelta(seconds=self.timeout + GRACE)
        try:
            dist.init_process_group(
                self.engine, store=self.store, rank=self.rank, world_size=self.size, timeout=limit
            )
        except RuntimeError as error:
            message = f"Rank {self.rank} cannot connect to the others by {self.engine!r}."
            raise rank_error(message, "a connection", _first_line(error)) from error

    def post(self, tag: int, sends: Mapping[int, Array], receives: Mapping[int, Array]) -> Waiting:
        import torch
        import torch.distributed as dist

        def bytes_of(array: Array) -> torch.Tensor:
            return torch.from_numpy(array.reshape(-1).view(np.uint8)).to(self.device)

        filled = {peer: bytes_of(array) for peer, array in receives.items()}
        ops = [dist.P2POp(dist.irecv, buffer, peer, tag=tag) for peer, buffer in filled.items()]
        ops += [dist.P2POp(dist.isend, bytes_of(a), peer, tag=tag) for peer, a in sends.items()]
        pending = {"peer": ops[0].peer}
        future: Future[None] = Future()

        def finish() -> None:
            if self.engine == "nccl":
                for work in dist.batch_isend_irecv(ops):
                    work.wait()
                for peer, buffer in filled.items():
                    receives[peer].reshape(-1).view(np.uint8)[:] = buffer.cpu().numpy()
                return
            works = []
            for op in ops:
                pending["peer"] = op.peer
                works.append((op.peer, op.op(op.tensor, op.peer, tag=tag)))
            for peer, work in works:
                pending["peer"] = peer
                work.wait()

        def finished() -> None:
            try:
                finish()
            except RuntimeError as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        # The end of the process waits for no daemon: a rank that fails ends although Gloo waits.
        Thread(target=finished, name="plica-rank", daemon=True).start()

        def waiting(seconds: float) -> int | None:
            try:
                future.result(seconds)
            except StillWaiting:
                return pending["peer"]
            except RuntimeError as error:
                raise PeerLostError(pending["peer"]) from error
            return None

        return waiting

    def close(self, *, failed: bool) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
