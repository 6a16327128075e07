"""Locks of objects, and warnings of one thread."""

import pickle
import threading
import warnings

import pytest
from torch_holdout._shared.locks import OwnLock, lock_of, without_lock
from torch_holdout._shared.quiet import _private, without_warnings


def holds(lock):
    """Whether another thread would have to wait."""
    free = []

    def take():
        if lock._lock.acquire(blocking=False):
            free.append(True)
            lock._lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return not free


def test_it_is_held_until_the_last_exit():
    lock = OwnLock()
    with lock:
        with lock:
            pass
        assert holds(lock)
    assert not holds(lock)


def test_a_pickle_is_free():
    lock = OwnLock()
    with lock:
        assert not holds(pickle.loads(pickle.dumps(lock)))


def test_threads_that_come_first_get_the_same_lock():
    class Service:
        pass

    for _ in range(50):
        service, start, found = Service(), threading.Barrier(4), []

        def first(service=service, start=start, found=found):
            start.wait()
            found.append(lock_of(service))

        threads = [threading.Thread(target=first) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(lock) for lock in found}) == 1
        assert without_lock(vars(service)) == {}


def test_only_the_thread_itself_is_quiet():
    start, seen = threading.Barrier(2), []

    def public():
        start.wait()
        warnings.warn("public", stacklevel=1)
        start.wait()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other = threading.Thread(target=public)
        other.start()
        with without_warnings():
            start.wait()
            warnings.warn("quotes 5.0", stacklevel=1)
            start.wait()
        other.join()
        seen = [str(warning.message) for warning in caught]
    assert seen == ["public"]


def test_filters_are_as_before_and_those_of_others_come_after():
    for reset in (warnings.resetwarnings, lambda: warnings.simplefilter("error")):
        with warnings.catch_warnings():
            reset()
            with without_warnings():
                warnings.warn("quotes 5.0", stacklevel=1)
            count = len(warnings.filters)
            with without_warnings():
                pass
            assert len(warnings.filters) == count
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="public"):
                warnings.warn("public", stacklevel=1)


def test_overlapping_threads_leave_no_filter_behind():
    """Two ``catch_warnings`` that overlap leave the filters of the one that ended last."""
    before = [entry for entry in warnings.filters if entry[1] is not _private]
    first, second = threading.Barrier(2), threading.Barrier(2)

    def early():
        with without_warnings():
            first.wait()
        second.wait()

    thread = threading.Thread(target=early)
    thread.start()
    first.wait()
    with without_warnings():
        second.wait()
    thread.join()
    assert [entry for entry in warnings.filters if entry[1] is not _private] == before


def test_filters_can_still_be_pickled():
    """joblib sends them to other processes."""
    with without_warnings():
        pass
    again = pickle.loads(pickle.dumps(warnings.filters))
    assert again[0][1] is _private
