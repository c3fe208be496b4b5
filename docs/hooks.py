"""Makes a page of every notebook in examples/, and takes in the figures of results/.

A page holds the text, the code and the stored outputs of a notebook: nothing is run. Links from one
notebook to another lead to its page.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).parent.parent / "examples"
RESULTS = Path(__file__).parent.parent / "results"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Figures are linked where they lie beside docs/; the site has them in img/results/."""
    return markdown.replace("(../results/", "(img/results/")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        pictures: dict[str, bytes] = {}
        text = "\n\n".join(parts_of(notebook["cells"], path.stem, pictures))
        files.append(File.generated(config, f"examples/{path.stem}.md", content=text + "\n"))
        for name, content in pictures.items():
            files.append(File.generated(config, f"examples/{name}", content=content))
    for path in sorted(RESULTS.glob("*.svg")):
        place = f"img/results/{path.name}"
        files.append(File.generated(config, place, content=path.read_bytes()))
    return files


def for_the_site(link: re.Match[str]) -> str:
    """A link of a notebook as one of a page: other notebooks are pages, anchors are lower case."""
    place, mark, anchor = link[1].partition("#")
    return f"]({place.replace('.ipynb', '.md')}{mark}{anchor.lower()})"


def parts_of(cells: list[dict[str, Any]], stem: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """The page, part by part. Pictures are put into `pictures`, by the name of their file."""
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield re.sub(r"\]\(([^)]*)\)", for_the_site, source)
            if number == 0:
                yield f"The notebook `examples/{stem}.ipynb`, with the outputs of its last run."
            continue
        yield f"```python\n{source}\n```"
        for output in cell["outputs"]:
            shown = output.get("data", {})
            if "image/png" in shown:
                name = f"{stem}-{number}.png"
                pictures[name] = base64.b64decode("".join(shown["image/png"]))
                yield f"![The picture that this code draws]({name})"
            elif "text/html" in shown:
                yield f'<div class="output">{"".join(shown["text/html"])}</div>'
            else:
                text = "".join(output.get("text") or shown["text/plain"])
                yield f"```text\n{text.rstrip()}\n```"
