from remediation.actuators.dry_run import DryRunActuator
from remediation.plan import plain, render_plan


def test_a_dry_run_says_first_that_nothing_was_done(kit):
    world = kit.world({"gpu-1": 0.9, "gpu-2": 0.1, "gpu-3": None}, trained_on="synthetic")
    run = world.run(actuator=DryRunActuator(world.cluster))
    text = render_plan(run)
    print(text)
    assert text.splitlines()[0] == "DRY RUN: nothing was done"
