"""Rules of a bucket: only its own word that an object is not there is taken for that."""

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from features.errors import SettingsError
from pipelines.sections.storage import ObjectStoreSettings
from pipelines.storage import object_store
from pipelines.storage.object_store import ObjectStoreError, S3Bucket
from tests.pipelines.answering_server import Answer, AnsweringServer, answering

SECRET = "the-secret-word"  # noqa: S105 - of nothing


@pytest.fixture(scope="module")
def server() -> Iterator[AnsweringServer]:
    with answering(lambda _, __: Answer()) as server:
        yield server


@pytest.fixture(scope="module")
def opened(server, tmp_path_factory) -> tuple[S3Bucket, Mock]:
    """A bucket, and what opens it: one client for all tests, which takes 0.2 s to make."""
    how = ObjectStoreSettings(
        endpoint=server.url,
        attempts=2,
        access_key={"variable": "A_KEY"},
        secret_key={"variable": "A_SECRET"},
    )
    shorter = how.model_copy(update={"timeout_s": 0.4})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_KEY", "the-key")
        patch.setenv("A_SECRET", SECRET)
        client = object_store._client(shorter)
    return S3Bucket("fleet", shorter, tmp_path_factory.mktemp("local")), Mock(return_value=client)


@pytest.fixture
def bucket(opened, server, monkeypatch) -> S3Bucket:
    server.n_requests = 0
    monkeypatch.setattr(object_store, "_client", opened[1])
    backoff = "botocore.retries.standard.ExponentialBackoff.delay_amount"
    monkeypatch.setattr(backoff, lambda *_: 0)
    # The client is all tests', and what fails in one would leave the next no second attempt.
    monkeypatch.setattr("botocore.retries.quota.RetryQuota.acquire", lambda *_: True)
    return opened[0]


def refusal(status: int, code: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code><Message>so</Message></Error>".encode())


def page(*keys: str, more: str = "") -> Answer:
    objects = "".join(
        f"<Contents><Key>{key}</Key><Size>1</Size><ETag>t</ETag>"
        "<LastModified>2026-01-05T00:00:00Z</LastModified></Contents>"
        for key in keys
    )
    ends = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}"
    return Answer(body=f"<ListBucketResult>{objects}{ends}</ListBucketResult>".encode())


ASKED: dict[str, Callable[[S3Bucket], object]] = {
    "get": lambda bucket: bucket.get("a/x"),
    "put": lambda bucket: bucket.put("a/x", b"1"),
    "put_new": lambda bucket: bucket.put_new("a/x", b"1"),
    "copy": lambda bucket: bucket.copy("a/x", "a/y"),
    "delete": lambda bucket: bucket.delete(["a/x"]),
    "look": lambda bucket: bucket.look("a/x"),
    "listing": lambda bucket: list(bucket.listing("a/")),
}

NOT_A_WORD: dict[str, Answer] = {
    "another server's 404": Answer(404, b"<html>not<br>found</html>"),
    "a 404 of no content": Answer(404),
    "no bucket": refusal(404, "NoSuchBucket"),
    "no entry": refusal(403, "AccessDenied"),
    "no entry, without a word": Answer(403),
    "keys that ran out": refusal(400, "ExpiredToken"),
    "a wrong clock": refusal(403, "RequestTimeTooSkewed"),
    "another region": refusal(400, "AuthorizationHeaderMalformed"),
    "an error within": Answer(500),
    "too much at once": refusal(503, "SlowDown"),
    "a refusal said to be fine": refusal(200, "InternalError"),
    "nothing, said to be fine": Answer(200),
    "a page for people": Answer(200, b"<html><body>Sign in</body></html>"),
    "a page that is no XML": Answer(200, b"<!doctype html><p>Sign in<br>"),
    "no content": Answer(204),
    "a body that ends early": Answer(200, b"<Half", {"ETag": "t"}, length=500),
    "a body of no known length": Answer(200, b"<Half", {"ETag": "t"}, length=-1),
    "no answer in time": Answer(is_silent=True),
}


@pytest.mark.parametrize("answer", NOT_A_WORD.values(), ids=NOT_A_WORD)
def test_what_is_no_answer_of_the_store_is_neither_absence_nor_success(
    bucket, server, answer
) -> None:
    server.answer = lambda _, __: answer
    for name, ask in ASKED.items():
        if name in ("put", "put_new") and "ETag" in answer.headers and answer.length == -1:
            continue  # it has the tag that says it was put
        with pytest.raises(
            ObjectStoreError, match=rf"{server.url}: cannot .* s3://fleet/a"
        ) as said:
            ask(bucket)
        assert SECRET not in f"{said.value} {said.value.__cause__!r}"


def test_a_server_that_sends_every_request_on_is_said_to_do_so(bucket, server) -> None:
    server.answer = lambda _, __: Answer(301, headers={"Location": "https://127.0.0.1:1/"})
    with pytest.raises(ObjectStoreError, match="name as endpoint where it sends them"):
        bucket.get("a/x")


def test_keys_that_were_refused_are_read_again(bucket, server, opened) -> None:
    server.answer = lambda _, __: refusal(400, "ExpiredToken")
    opened[1].cache_clear.reset_mock()
    with pytest.raises(ObjectStoreError, match="ExpiredToken: the keys have run out"):
        bucket.get("a/x")
    opened[1].cache_clear.assert_called_once_with()


def test_an_object_that_is_not_there_is_said_by_the_store_alone(bucket, server) -> None:
    server.answer = lambda _, __: refusal(404, "NoSuchKey")
    for name in ("get", "copy"):
        with pytest.raises(FileNotFoundError, match="s3://fleet/a/x"):
            ASKED[name](bucket)
    # As Amazon answers where the endpoint has the bucket's name in it as well.
    for name in ("put", "put_new", "delete", "look", "listing"):
        with pytest.raises(ObjectStoreError):
            ASKED[name](bucket)
    server.answer = lambda _, __: page()
    assert ASKED["look"](bucket) is None
    assert ASKED["listing"](bucket) == []


@pytest.mark.parametrize("second", [Answer(500), Answer(is_silent=True), Answer(200), page("a/2")])
def test_a_listing_that_breaks_off_is_no_shorter_list(bucket, server, second) -> None:
    first = page("a/1", more="<NextContinuationToken>n</NextContinuationToken>")
    server.answer = lambda _, number: first if number == 1 else second
    if second == page("a/2"):
        assert [one.key for one in ASKED["listing"](bucket)] == ["a/1", "a/2"]
        return
    with pytest.raises(ObjectStoreError, match="cannot list"):
        ASKED["listing"](bucket)


def test_a_listing_that_says_there_is_more_and_not_where_is_no_list(bucket, server) -> None:
    server.answer = lambda _, __: page("a/1", more="<Name>fleet</Name>")
    with pytest.raises(ObjectStoreError, match="not whole"):
        ASKED["listing"](bucket)


def test_a_put_that_got_no_answer_in_time_is_tried_again(bucket, server) -> None:
    put = Answer(headers={"ETag": "t"})
    server.answer = lambda _, number: Answer(is_silent=True) if number == 1 else put
    bucket.put("a/x", b"1")
    assert server.n_requests == 2


@pytest.mark.parametrize(
    ("answer", "is_put"),
    [
        (Answer(headers={"ETag": "t"}), True),
        (refusal(412, "PreconditionFailed"), False),
        (refusal(409, "ConditionalRequestConflict"), False),
    ],
)
def test_the_store_says_whether_an_object_was_new(bucket, server, answer, is_put) -> None:
    server.answer = lambda _, __: answer
    assert bucket.put_new("a/x", b"1") is is_put


def test_a_store_that_knows_no_condition_is_given_the_object_without(bucket, server) -> None:
    answers = [refusal(501, "NotImplemented"), Answer(headers={"ETag": "t"})]
    server.answer = lambda _, number: answers[number - 1]
    assert bucket.put_new("a/x", b"1")
    assert server.n_requests == 2


def test_content_that_ends_early_is_read_again(bucket, server) -> None:
    whole, half = Answer(200, b"12", {"ETag": "t"}), Answer(200, b"1", {"ETag": "t"}, length=2)
    server.answer = lambda _, number: half if number == 1 else whole
    assert bucket.get("a/x") == (b"12", "t")


def test_objects_that_an_answer_leaves_out_are_not_taken_for_removed(bucket, server) -> None:
    said = "<DeleteResult><Deleted><Key>a/1</Key></Deleted>{}</DeleteResult>"
    gone = "<Error><Key>a/2</Key><Code>NoSuchKey</Code></Error>"
    server.answer = lambda _, __: Answer(body=said.format("").encode())
    with pytest.raises(ObjectStoreError, match="a/2: not in the answer, with 1 objects"):
        bucket.delete(["a/1", "a/2"])
    server.answer = lambda _, __: Answer(body=said.format(gone).encode())
    bucket.delete(["a/1", "a/2"])


def test_an_endpoint_that_the_sdk_refuses_is_named_by_its_setting(tmp_path: Path) -> None:
    bucket = S3Bucket("fleet", ObjectStoreSettings(endpoint="http://object_store:9000"), tmp_path)
    with pytest.raises(SettingsError, match=r"storage\.object_store\.endpoint"):
        bucket.get("x")
