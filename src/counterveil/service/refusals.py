"""Whatever goes wrong as a Problem; what is nobody's mistake is logged, without its message."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from counterveil.service.problems import Problem, problem_of

log = logging.getLogger("counterveil.service")


def refused(error: Exception) -> Problem:
    """The Problem of an error; what is nobody's mistake is logged, without its message."""
    if isinstance(error, sqlite3.Error):
        log.error("the file of keys cannot be used: %s", type(error).__name__)
        detail = "Nothing was answered and nothing counted. Try again later."
        return Problem(503, "keys cannot be checked now", detail, retry_after=10)
    problem = problem_of(error)
    if problem.status == 503 and not isinstance(error, Problem):
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        where = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last else "?"
        log.error("%s at %s", type(error).__name__, where)
    return problem


async def as_problem(_: Request, error: Exception) -> Response:
    """The answer where no route gave one."""
    if isinstance(error, HTTPException):
        titles = {404: "there is nothing at this address", 405: "not with this method"}
        found = Problem(error.status_code, titles.get(error.status_code, "not possible"))
        response = found.response()
        response.headers.update(error.headers or {})
        return response
    if isinstance(error, RequestValidationError):
        return Problem(422, "the question is not understood").response()
    return refused(error).response()
