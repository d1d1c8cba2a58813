"""The API against its own description: schemathesis makes requests, valid ones and others."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from features.vocabulary import FAULT_TYPES, SCORE_STATUSES
from pipelines.api import asked, shapes
from tests.pipelines.api.api_world import OPERATOR, ApiWorld, bearer, with_tokens


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ApiWorld:
    folder: Path = tmp_path_factory.mktemp("api")
    api = with_tokens(folder / "secret", inbox=True) | {"rate_per_s": 10_000, "burst": 100_000}
    made = ApiWorld(folder, api=api)
    made.publish()
    made.decide()
    return made


def test_every_route_is_described_with_its_errors(world: ApiWorld) -> None:
    _, app = world.build()
    made = app.openapi()
    assert len(made["paths"]) == 20
    for path, operations in made["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert "application/problem+json" in operation["responses"]["422"]["content"]
    assert "HTTPValidationError" not in str(made)


def test_words_of_the_description_are_those_of_the_project() -> None:
    assert set(shapes.Status.__args__) == set(SCORE_STATUSES)
    field = asked.AskedScores.model_json_schema()["properties"]["fault_type"]
    assert field["anyOf"][0]["enum"] == list(FAULT_TYPES)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_answers_are_as_described(world: ApiWorld, mode: GenerationMode) -> None:
    _, app = world.build()
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    accepted = schema.config.checks.positive_data_acceptance
    usual = accepted.expected_statuses
    # A long list of wrong values is refused for its length before it is read.
    refused = schema.config.checks.negative_data_rejection
    refused.expected_statuses = [*refused.expected_statuses, "413"]
    for found in schema.get_all_operations():
        operation = found.ok()
        # What has the right form and means nothing: another tick's cursor, an unconfirmed node.
        more = ["422"] if operation.method == "post" else ["410"]
        accepted.expected_statuses = [*usual, *more]

        @settings(
            max_examples=8,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def holds(case: Any) -> None:
            case.call_and_validate(headers=bearer(OPERATOR), base_url="http://127.0.0.1")

        try:
            holds()
        except Unsatisfiable:  # a route without parameters has no wrong ones
            assert mode is GenerationMode.NEGATIVE
        except BaseException as error:
            error.add_note(operation.label)
            raise
