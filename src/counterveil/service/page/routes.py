"""The routes of the page. Each asks the service, within the limits of the caller, and shows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from counterveil.search.results.wording import DecidedBy
from counterveil.service.access import Caller
from counterveil.service.page.fragments import Page
from counterveil.service.page.words import LANGUAGES, PAGE, language_of
from counterveil.service.questions import Decide, form_of, read_in
from counterveil.service.responses import as_json, page_route
from counterveil.tables import as_frame

if TYPE_CHECKING:
    from counterveil.service.app import Service

FILES = tuple(PAGE / name for name in ("icon.svg", "page.css", "page.js", "htmx.js"))
EXAMPLES = 16  # that are drawn to find one


class PageRoutes:
    """The page in each language, and what its parts are asked."""

    def __init__(self, service: Service) -> None:
        self._service, schema = service, service.explainer.veil.schema
        self._pages = {code: Page(schema, code) for code, _ in LANGUAGES}

    def add_to(self, app: FastAPI) -> None:
        """All addresses of the page."""
        for file in FILES:
            app.add_api_route(f"/{file.name}", page_route(file), include_in_schema=False)
        app.add_api_route("/", self.shell, include_in_schema=False)
        some = (self.body, self.fill, self.example, self.answer)
        for part in (*some, self.decision, self.columns, self.rows):
            answer, path = self._service.answering(part), f"/page/{part.__name__}"
            app.add_api_route(path, answer, methods=["POST"], include_in_schema=False)

    def _page(self, request: Request) -> Page:
        """The page in the language of the request."""
        return self._pages[language_of(request)]

    async def shell(self, request: Request) -> Response:
        """The page without anything of the veil, which comes once the caller is known."""
        return self._page(request).shell()

    async def body(self, request: Request, caller: Caller) -> Response:
        """All of the page, with what the form holds already."""
        form = await read_in(request, form_of)
        told = self._service.told_to(caller)
        return await asyncio.to_thread(self._page(request).body, form, told)

    async def fill(self, request: Request, caller: Caller) -> Response:
        """The fields, filled with a row or a picture that the page sends."""
        form = await read_in(request, form_of)
        return await asyncio.to_thread(self._page(request).fill, form)

    async def example(self, request: Request, caller: Caller) -> Response:
        """The fields, filled with somebody drawn from the veil who has not the class to reach.

        The veil's private model says so: it is as public as the veil, and costs no answers.
        """
        form = await read_in(request, form_of)
        row = await asyncio.to_thread(self._example_without, form.get("target", ""))
        return await asyncio.to_thread(self._page(request).example, form, row)

    def _example_without(self, target: str) -> dict[str, Any]:
        """An invented row; of several one that has another class than the one at this place."""
        classes = map(str, range(len(self._service.explainer.veil.schema.label.classes)))
        if target not in classes:
            return self._service.drawn(1)[0]
        rows = self._service.drawn(EXAMPLES)
        shares = self._service.explainer.veil.model().predict_proba(as_frame(rows))
        return next(
            (row for row, of in zip(rows, shares, strict=True) if of.argmax() != int(target)),
            rows[0],
        )

    async def answer(self, request: Request, caller: Caller) -> Response:
        """The answer to the question of the form."""
        page, form = self._page(request), await read_in(request, form_of)
        letters = self._service.explainer.decided_by is not DecidedBy.STAND_IN
        asked = page.form.question(form, letters=letters)
        (found,) = await self._service.explained(request, caller, asked)
        return await asyncio.to_thread(page.result, asked, found, self._service.about)

    async def decision(self, request: Request, caller: Caller) -> Response:
        """What is decided about the row of the form, in a sentence."""
        page, form = self._page(request), await read_in(request, form_of)
        (found,) = await self._service.decided(request, caller, Decide(rows=[page.form.row(form)]))
        return page.decision(found)

    async def columns(self, request: Request, caller: Caller) -> Response:
        """Whether a table with this header can be explained."""
        page, choices = self._page(request), request.query_params
        await read_in(request, lambda body: page.table.rows(body, "0"))
        return as_json(page.table.progress(choices))

    async def rows(self, request: Request, caller: Caller) -> Response:
        """The answers to some rows of a table: lines of a CSV file, and what is shown of them."""
        page, choices = self._page(request), request.query_params
        rows = await read_in(request, lambda body: page.table.rows(body, choices.get("start", "0")))
        found = await self._service.explained(request, caller, page.table.question(rows, choices))
        return await asyncio.to_thread(lambda: as_json(page.table.answers(rows, found, choices)))
