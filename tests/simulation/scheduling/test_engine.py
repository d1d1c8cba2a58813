"""The laws of a run, whatever the jobs, the traffic and the policy."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.scheduling.jobs import Job
from simulation.scheduling.policies import FIFO, LOANING, LYRA, PASSING, POLICIES, SCALING, SJF
from simulation.scheduling.servers import AWAY, LENT, TRAINING, Shape
from tests.simulation.scheduling.plain_allocator import PlainQueue, find_base, kinds
from tests.simulation.scheduling.small_cluster import SHAPE, engine, needs, policies, some_jobs

PREEMPTION_S = 63.0


def gpus_by_server(run):
    """GPUs taken on each server, from the jobs' side alone."""
    taken = Counter()
    for one in run.progress:
        for server, gpus in one.base.items():
            taken[server] += gpus
        for server, workers in one.flexible.items():
            factor = SHAPE.lent_per_gpu if server >= SHAPE.training else 1
            taken[server] += workers * one.job.worker_gpus * factor
    return taken


def assert_no_gpu_is_taken_twice(run):
    taken = gpus_by_server(run)
    for server, pool in enumerate(run.servers.pool):
        assert taken[server] <= SHAPE.gpus
        assert taken[server] == SHAPE.gpus - run.servers.free_gpus(server)
        if pool == AWAY:
            assert taken[server] == 0
    for pool in (TRAINING, LENT):
        there = [n for server, n in taken.items() if run.servers.pool[server] == pool]
        assert run.servers.used[pool] == sum(there)


def assert_base_workers_are_all_there_or_none(run):
    for one in run.progress:
        pools = {run.servers.pool[server] for server in one.base}
        if not one.base:
            assert not one.flexible
            assert one.extra == 0
            continue
        (pool,) = pools
        factor = 1 if pool == TRAINING else SHAPE.lent_per_gpu
        assert sum(one.base.values()) == one.job.n_gpus * factor
        assert pool == TRAINING or one.job.is_fungible
        assert one.extra == sum(one.flexible.values()) <= one.job.max_extra


@given(jobs=some_jobs(), needed=needs, policy=policies)
def test_no_gpu_is_taken_twice_and_base_workers_are_all_there_or_none(jobs, needed, policy):
    def watch(run):
        assert_no_gpu_is_taken_twice(run)
        assert_base_workers_are_all_there_or_none(run)

    engine(jobs, policy, needed=needed).run(watch)


@given(jobs=some_jobs(), needed=needs, policy=policies)
def test_a_server_that_inference_needs_is_empty_an_action_before(jobs, needed, policy):
    def watch(run):
        index = round(run.now_s / run.timing.action_s)
        lent = run.servers.count(LENT)
        assert lent <= SHAPE.inference - run.needed_servers(index)
        assert lent <= SHAPE.inference - run.needed_servers(index + 1)
        assert policy.has_loaning or lent == 0

    engine(jobs, policy, needed=needed).run(watch)


@given(jobs=some_jobs(), needed=needs, policy=policies)
def test_every_job_ends_and_loses_no_work_but_what_preemption_costs(jobs, needed, policy):
    run = engine(jobs, policy, needed=needed)
    run.run()
    for one in run.progress:
        job = one.job
        work_s = job.duration_s + PREEMPTION_S * one.preemptions
        running_s = one.end_s - job.submit_s - one.queued_s
        fastest_s = work_s * job.min_workers / job.max_workers
        assert running_s >= fastest_s - 1e-6
        assert running_s <= work_s + 1e-6
        if not (job.max_extra and policy.has_scaling):
            assert running_s == pytest.approx(work_s)
        assert policy.has_loaning or one.preemptions == 0
    assert run.servers.used == [0, 0, 0]


@given(jobs=some_jobs(), needed=needs, policy=policies)
def test_gpu_time_in_use_is_the_work_of_the_jobs(jobs, needed, policy):
    run = engine(jobs, policy, needed=needed)
    run.run()
    work = sum(
        (one.job.duration_s + PREEMPTION_S * one.preemptions) * one.job.n_gpus
        for one in run.progress
    )
    used = run.gpu_s[TRAINING] + run.gpu_s[LENT] / SHAPE.lent_per_gpu
    assert used == pytest.approx(work)


@given(jobs=some_jobs(), needed=needs, policy=policies)
def test_jobs_start_in_the_order_of_trying_each_of_them_again(jobs, needed, policy):
    fast, plain = (engine(jobs, policy, needed=needed) for _ in range(2))
    plain._queue = PlainQueue(policy)
    fast.run()
    plain.run()
    assert [one.end_s for one in fast.progress] == [one.end_s for one in plain.progress]


@given(jobs=some_jobs(), needed=needs, policy=policies)
def test_base_workers_go_where_looking_at_every_server_would_put_them(jobs, needed, policy):
    def watch(run):
        for n_gpus in range(1, 25):
            for pool in (TRAINING, LENT):
                plain = find_base(run.servers, n_gpus, pool)
                assert kinds(run.servers, run.servers.find_base(n_gpus, pool)) == plain
                assert (n_gpus <= run.servers.largest_base(pool)) == (plain is not None)

    engine(jobs, policy, needed=needed).run(watch)


@given(jobs=some_jobs(), needed=needs)
def test_lyra_takes_no_base_worker_where_idle_and_flexible_servers_suffice(jobs, needed):
    run = engine(jobs, LYRA, needed=needed)
    give_back = run._give_back

    def watched(count):
        lent = run.servers.members(LENT)
        free = sum(not run.servers.base[server] for server in lent)
        before = sum(one.preemptions for one in run.progress)
        give_back(count)
        assert free < count or sum(one.preemptions for one in run.progress) == before

    run._give_back = watched
    run.run()


def test_the_first_in_line_holds_up_all_only_in_strict_order():
    # The second needs the whole cluster and waits for the first; the third is small.
    jobs = [
        Job(number=0, submit_s=0.0, duration_s=1000.0),
        Job(
            number=1, submit_s=1.0, duration_s=100.0, worker_gpus=2, min_workers=12, max_workers=12
        ),
        Job(number=2, submit_s=2.0, duration_s=100.0),
    ]
    ends = {}
    for policy in (FIFO, PASSING, SJF):
        run = engine(jobs, policy)
        run.run()
        ends[policy] = [one.end_s for one in run.progress]
    assert ends[FIFO] == [1000.0, 1100.0, 1200.0]
    assert ends[PASSING] == ends[SJF] == [1000.0, 1100.0, 102.0]


def test_an_elastic_job_of_twice_its_workers_takes_half_the_time():
    run = engine([Job(number=0, submit_s=0.0, duration_s=1200.0, max_workers=2)], SCALING)
    run.run()
    assert run.progress[0].end_s == 600.0


def test_flexible_workers_give_way_at_once_to_a_job_that_starts():
    elastic = Job(
        number=0, submit_s=0.0, duration_s=4800.0, worker_gpus=2, min_workers=4, max_workers=12
    )
    rigid = Job(
        number=1, submit_s=1000.0, duration_s=10.0, worker_gpus=2, min_workers=8, max_workers=8
    )
    run = engine([elastic, rigid], SCALING)
    run.run()
    assert run.progress[1].end_s == 1010.0
    # 1,000 s at triple speed, 200 s with its base alone, and triple again from the next action.
    assert run.progress[0].end_s == 1200.0 + (4800.0 - 3000.0 - 200.0) / 3.0


def test_a_preempted_job_waits_and_pays_for_its_restart():
    # The cluster is full; a lent server takes the job until inference needs it back.
    shape = Shape(training=1, inference=1, gpus=8, lent_per_gpu=1)
    jobs = [
        Job(number=0, submit_s=0.0, duration_s=1000.0, worker_gpus=2, min_workers=4, max_workers=4),
        Job(number=1, submit_s=0.0, duration_s=2000.0, worker_gpus=2, min_workers=4, max_workers=4,
            is_fungible=True),
    ]  # fmt: skip
    run = engine(jobs, LOANING, needed=(0, 0, 1, 1, 1, 1), shape=shape)
    run.run()
    job = run.progress[1]
    # Lent at 0 s, empty at 300 s for the need at 600 s; the first job ends at 1,000 s.
    assert job.preemptions == 1
    assert job.queued_s == 700.0
    assert job.end_s == 1000.0 + 1700.0 + PREEMPTION_S


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_the_same_seed_gives_the_same_run(policy):
    jobs = [
        Job(number=n, submit_s=50.0 * n, duration_s=700.0 + n, min_workers=2, max_workers=4,
            is_fungible=True)
        for n in range(40)
    ]  # fmt: skip
    runs = [engine(jobs, policy, needed=(0, 3, 1), seed=4) for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].reclaimed == runs[1].reclaimed
    assert [one.end_s for one in runs[0].progress] == [one.end_s for one in runs[1].progress]


@given(jobs=some_jobs(most=5), needed=st.just([0]))
def test_jobs_that_find_room_at_once_wait_for_nothing(jobs, needed):
    wide = Shape(training=40, inference=4)
    run = engine(jobs, FIFO, needed=needed, shape=wide)
    run.run()
    assert all(one.queued_s == 0.0 for one in run.progress)
