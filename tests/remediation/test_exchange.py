import ssl

import pytest
import urllib3
from urllib3 import exceptions as faults

from remediation.actuators.exchange import NoAnswerError, Patience, exchange

POOL = urllib3.connectionpool.HTTPSConnectionPool("h")
CONNECTION = urllib3.connection.HTTPConnection("h")


class Response:
    status = 200
    headers = urllib3.HTTPHeaderDict({"Retry-After": "7"})

    def __init__(self, pieces):
        self.pieces = pieces

    def stream(self, size):
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def close(self):
        pass


class Pool:
    def __init__(self, answer):
        self.answer = answer

    def request(self, *args, **more):
        assert more["retries"] is False
        assert more["redirect"] is False
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def ask(answer, **patience):
    return exchange(Pool(answer), "POST", "http://h/", headers={}, patience=Patience(**patience))


@pytest.mark.parametrize(
    ("fault", "may_have_acted"),
    [
        (faults.NewConnectionError(CONNECTION, "refused"), False),
        (faults.NameResolutionError("h", CONNECTION, OSError("no name")), False),
        (faults.ConnectTimeoutError(POOL, "slow"), False),
        (faults.SSLError(ssl.SSLCertVerificationError("stranger")), False),
        (faults.SSLError(ssl.SSLError("record layer failure")), True),
        (faults.ReadTimeoutError(POOL, "/", "slow"), True),
        (faults.ProtocolError("aborted", ConnectionResetError(104, "reset")), True),
        (ConnectionResetError(104, "reset"), True),
        (Response([b"{", faults.IncompleteRead(1, 9)]), True),
    ],
)
def test_g13_what_surely_was_not_sent_is_told_from_what_may_have_acted(fault, may_have_acted):
    with pytest.raises(NoAnswerError) as told:
        ask(fault)
    assert told.value.may_have_acted == may_have_acted


def test_g23_words_of_a_fault_that_may_quote_headers_are_not_repeated():
    with pytest.raises(NoAnswerError) as told:
        ask(faults.InvalidHeader("bad header: Bearer s3cret"))
    assert str(told.value) == "InvalidHeader"


def test_an_answer_comes_whole_or_not_at_all():
    answer = ask(Response([b"a", b"b"]))
    assert (answer.status, answer.body, answer.retry_after) == (200, b"ab", "7")
    with pytest.raises(NoAnswerError, match="longer than 1 bytes"):
        ask(Response([b"a", b"b"]), max_bytes=1)
    with pytest.raises(NoAnswerError, match="took longer than -1 s"):
        ask(Response([b"a"]), total_s=-1)
