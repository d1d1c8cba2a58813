"""Writes the pages of `docs/reference`: run as `python -m pipelines.reference_docs`.

Which pages there are is in `pages`.
"""

from pipelines.reference_docs.pages import FOLDER, PAGES

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
