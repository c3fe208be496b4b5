"""The studio: the curator's side in a browser, on this machine only (`counterveil studio`).

    page -> routes (token, origin) -> walk -> steps -> jobs -> the curator, or the command line

`folder`: the files that may be read and written. `jobs`: long work, asked after by the page, and
counterveil's own command line as a process. `steps`: what each step does. `cards`: the schema that
is worked on. `state`: what a person has entered. `walk`: the page in HTML, of that.
`app`: the routes. Releases and audits run as the commands `counterveil release` and
`counterveil audit`, so that they are charged and checked as there, and outlive a page that is
closed.
"""
