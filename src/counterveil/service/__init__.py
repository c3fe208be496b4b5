"""The service: `counterveil serve` answers over HTTP and on a page, from a veil and a model alone.

    request -> access (who asks, how much) -> batcher (many small questions become one search)
            -> Explainer -> answers as JSON

`access`: API keys and what each has used. `questions`: what may be asked. `batcher`: the queue.
`answers`: what is said; `lines`: the same for many rows. `problems`, `refusals`: what is refused,
and how it is said. `guard`: limits on requests before anything reads them. `app`: the routes, with
`described` for OpenAPI and `responses`. `run`: the server process. Nothing here loads the curator.
"""
