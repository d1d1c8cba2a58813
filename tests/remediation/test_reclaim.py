"""Lyra's greedy reclaim, against taking the best server and starting over."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from remediation.cluster import JobView
from remediation.preemption import server_preemption_cost
from remediation.reclaim import greedy_order, reclaim


def test_idle_and_flexible_only_servers_come_first(kit):
    rigid = JobView(job_id="1", nodes=("a",))
    elastic = JobView(job_id="2", nodes=("b", "c"), n_gpus=16, min_nodes=1)
    jobs = {"a": [rigid], "b": [elastic], "c": [elastic], "d": []}
    # Once b is given up, c holds what the job needs; it then costs as much as a.
    assert reclaim("abcd", jobs, count=4) == ("b", "d", "a", "c")


def test_a_job_is_gone_everywhere_once_one_server_is_taken():
    pair = JobView(job_id="1", nodes=("c", "d"))
    three = JobView(job_id="2", nodes=("a", "b", "x"))
    one = JobView(job_id="3", nodes=("b",))
    jobs = {"a": [three], "b": [three, one], "c": [pair], "d": [pair]}
    assert reclaim("abcd", jobs, count=3) == ("a", "c", "d")


def test_no_more_servers_are_taken_than_asked_for():
    assert reclaim("abc", {}, count=2) == ("a", "b")


def starting_over(servers, jobs, rank, takes):
    """The oracle: the best of all, then everything anew."""
    order, left = [], dict(jobs)
    while len(order) < len(servers):
        rest = [name for name in servers if name not in order]
        best = min(rest, key=lambda name: (rank(name, tuple(left[name])), name))
        order.append(best)
        if not takes(best):
            continue
        for job in left[best]:
            others = tuple(n for n in job.nodes if n != best)
            after = [] if not job.n_flexible else [replace(job, nodes=others)]
            left = {
                name: [one for old in its for one in (after if old.job_id == job.job_id else [old])]
                for name, its in left.items()
            }
    return tuple(order)


SERVERS = ("a", "b", "c", "d", "e")


@st.composite
def loads(draw):
    jobs = [
        JobView(
            job_id=str(number),
            nodes=tuple(draw(st.lists(st.sampled_from(SERVERS), min_size=1, unique=True))),
            min_nodes=draw(st.sampled_from([None, 1, 2])),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    return {name: [job for job in jobs if name in job.nodes] for name in SERVERS}


@given(jobs=loads(), kept=st.sets(st.sampled_from(SERVERS)), weights=st.permutations(range(5)))
def test_the_order_is_that_of_ranking_everything_anew_after_each(jobs, kept, weights):
    worth = dict(zip(SERVERS, weights, strict=True))

    def rank(name, its):
        return (server_preemption_cost(its) - 0.3 * worth[name],)

    def takes(name):
        return name not in kept

    found = greedy_order(SERVERS, jobs, rank=rank, takes_jobs=takes)
    assert found == starting_over(SERVERS, jobs, rank, takes)
