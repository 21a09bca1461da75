"""Torch's threads: limited for a thread alone, and as the user set them afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from sklode.engine import threads as _threads
from sklode.engine.threads import n_threads, one_torch_thread
from tests.epochs import after_each_epoch
from tests.series import on_engine, tiny, waves


@pytest.fixture(autouse=True)
def users_number() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def numbers() -> tuple[int, int]:
    return torch.get_num_threads(), n_threads()


def test_the_users_number_is_known_inside_and_back_outside() -> None:
    with one_torch_thread():
        assert numbers() == (1, 3)
        with one_torch_thread():
            assert numbers() == (1, 3)
        assert numbers() == (1, 3)
    assert numbers() == (3, 3)


def test_an_error_lifts_the_limit() -> None:
    with pytest.raises(ValueError, match="inside"), one_torch_thread():
        raise ValueError("inside")
    assert numbers() == (3, 3)


def test_a_thread_that_meets_torch_beside_a_limit_is_not_limited() -> None:
    with ThreadPoolExecutor(1) as pool:
        with one_torch_thread():
            assert pool.submit(numbers).result() == (3, 3)
        assert pool.submit(numbers).result() == (3, 3)
        with one_torch_thread():
            assert pool.submit(numbers).result() == (3, 3)
    assert numbers() == (3, 3)


def test_limits_of_two_threads_may_overlap() -> None:
    with ThreadPoolExecutor(1) as pool:
        limit = one_torch_thread()
        pool.submit(limit.__enter__).result()
        with one_torch_thread():
            pool.submit(limit.__exit__, None, None, None).result()
            assert pool.submit(numbers).result() == (3, 3)
            assert numbers() == (1, 3)
    assert numbers() == (3, 3)
    with ThreadPoolExecutor(1) as later:
        assert later.submit(numbers).result() == (3, 3)


def test_threads_that_begin_at_once_all_know_the_users_number() -> None:
    """One that met torch while another set its own limit took that for the user's."""

    def known(barrier: Barrier) -> int:
        barrier.wait()
        with one_torch_thread():
            return n_threads()

    for _ in range(20):
        barrier = Barrier(8)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(known, [barrier] * 8)) == [3] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_forked_beside_a_limit_being_set_does_not_wait_for_ever() -> None:
    with _threads._SETTING:
        child = os.fork()
        if child == 0:
            os._exit(0 if _threads._SETTING.acquire(blocking=False) else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(("engine", "seen"), [("fused", (1, 3)), ("eager", (3, 3))])
def test_torch_keeps_to_one_thread_beside_threads_of_the_engine(
    engine: str, seen: tuple[int, int]
) -> None:
    found = []
    with after_each_epoch(lambda _: found.append(numbers())):
        with on_engine(engine):
            tiny().fit(waves())
    assert set(found) == {seen}
