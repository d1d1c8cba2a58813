"""Errors of a server's answers, with what a caller needs to decide what to do next.

No request is made here.
"""

from typing import Self

from features.errors import SourceError


class AnswerError(SourceError):
    """An answer that was received but cannot be used.

    Args:
        message: What is wrong with it.
        may_pass: Whether asking again may help.
        is_too_much: Whether asking for less may help.
        is_foreign: Whether it is of another kind than was asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        may_pass: bool = False,
        is_too_much: bool = False,
        is_foreign: bool = False,
    ) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        self.is_too_much = is_too_much
        self.is_foreign = is_foreign


class HttpError(SourceError):
    """A request that failed for good, or one try of it.

    Args:
        message: What failed, where.
        status: HTTP status, where there was one.
        may_pass: Whether asking again may help.
        words: What the server said.
        is_timeout: Whether it took too long.
        is_too_much: Whether asking for less may help.
        is_foreign: Whether the answer was of another kind than was asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None,
        may_pass: bool,
        words: str = "",
        is_timeout: bool = False,
        is_too_much: bool = False,
        is_foreign: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.may_pass = may_pass
        self.words = words
        self.is_timeout = is_timeout
        self.is_too_much = is_too_much
        self.is_foreign = is_foreign

    def after(self, attempts: int, *, asked_wait: float | None = None) -> Self:
        """The same error, with what was tried and what to do next.

        Args:
            attempts: Tries made.
            asked_wait: Seconds the server asks for, where that is beyond the limit.
        """
        tried = "" if attempts == 1 else f" ({attempts} tries)"
        if asked_wait is not None:
            advice = f"The server asks to wait {asked_wait:g} s; run again later"
        elif self.status in {401, 403}:
            advice = "Check the auth setting, and that its secret may read"
        elif self.status == 404:
            advice = "Check url: a path prefix such as /prometheus may be missing"
        elif self.is_too_much:
            advice = "Ask for less at a time (window, gpus_per_request), or raise the limit"
        elif self.may_pass:
            advice = "Check that the server is up and not overloaded, then run again"
        else:
            advice = "Check url and what runs there"
        return self.with_advice(advice, tried=tried)

    def with_advice(self, advice: str, *, tried: str = "") -> Self:
        """The same error, with more to say at its end.

        Args:
            advice: A sentence without its full stop.
            tried: What was tried, in brackets.
        """
        error = type(self)(
            f"{str(self).rstrip('.')}{tried}. {advice}.",
            status=self.status,
            may_pass=self.may_pass,
            words=self.words,
            is_timeout=self.is_timeout,
            is_too_much=self.is_too_much,
            is_foreign=self.is_foreign,
        )
        error.__cause__ = self.__cause__
        return error
