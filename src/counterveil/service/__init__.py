"""The service: `counterveil serve` answers over HTTP and on a page, from a veil and a model alone.

    request -> access (who asks, how much) -> batcher (many small questions become one search)
            -> Explainer -> answers as JSON

`access`: API keys and what each has used. `questions`: what may be asked. `batcher`: the queue.
`answers`: what is said; `responses`: in which form, and what is refused. `guard`: limits on
requests before anything reads them. `app`: the routes. `run`: the server process;
`watchdog`: its word to systemd. Nothing here loads the curator.
"""
