"""Checks the pages of a built book: links, and what the gateway's content security policy refuses."""

from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


# Elements that load pages or scripts of others.
FOREIGN = {"base", "embed", "iframe", "object"}


class Page(HTMLParser):
    """Ids, links and files of a page, what it loads from elsewhere, and its inline code."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.refused = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.ids.add(named.get("id"))
        self.links += [named[name] for name in ("href", "src") if named.get(name)]
        is_inline = tag == "style" or (tag == "script" and "src" not in named)
        is_elsewhere = tag != "a" and any(urlsplit(named.get(name) or "").netloc for name in ("href", "src"))
        if is_inline or is_elsewhere or tag in FOREIGN:
            self.refused.append(self.get_starttag_text())
        self.refused += [f"{name}={value!r}" for name, value in attributes if name == "style" or name.startswith("on")]


def problems(dist):
    """Returns what is wrong with the book in `dist`, a line each."""
    pages = {path.relative_to(dist).as_posix(): Page(path) for path in sorted(dist.rglob("*.html"))}
    found = []
    for name, page in pages.items():
        found += [f"{name}: the content security policy refuses {one}" for one in page.refused]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (dist / name).parent.joinpath(unquote(parts.path)).resolve() if parts.path else dist / name
            if not target.is_file():
                found.append(f"{name}: `{link}` leads nowhere")
                continue
            other = pages.get(target.relative_to(dist.resolve()).as_posix())
            anchor = unquote(parts.fragment)
            if other and anchor and anchor not in other.ids:
                found.append(f"{name}: `{link}`: there is no such heading")
    return found
