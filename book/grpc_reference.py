"""Pages of the gRPC API: one for each file of the contracts, with its calls, messages and enums."""

import re

PACKAGE = "holdfast.gateway.v1"
# Numbers of fields in descriptor.proto, of which paths of comments are made.
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE, FILE_SYNTAX = 4, 5, 6, 12
SERVICE_METHOD, MESSAGE_FIELD, MESSAGE_NESTED, MESSAGE_ENUM, ENUM_VALUE = 2, 2, 3, 4, 2

INTRODUCTION = f"""# gRPC API

The calls of the gateway, on its gRPC port (18790 by default), in the package `{PACKAGE}`. These pages are
made from the contracts, which are served by gRPC reflection. A call needs
`authorization: Bearer <API key or token>`; [Integrating by gRPC](../../integrating.md) has examples, errors
and retries, and [People and roles](../../people-and-roles.md) says what permissions are.

| service | what it is for |
|---|---|
"""


class File:
    """A file of the contracts, with its comments by path."""

    def __init__(self, described):
        self.described = described
        self.stem = described["name"].rsplit("/", 1)[-1].removesuffix(".proto")
        self.comments = {}
        for place in described.get("sourceCodeInfo", {}).get("location", []):
            comment = place.get("leadingComments") or place.get("trailingComments") or ""
            self.comments[tuple(place.get("path", ()))] = clean(comment)
        self.messages, self.enums = {}, {}
        for at, message in enumerate(described.get("messageType", [])):
            self.add_message(message, "", (FILE_MESSAGE, at))
        for at, enum in enumerate(described.get("enumType", [])):
            self.enums[enum["name"]] = (enum, (FILE_ENUM, at))

    def add_message(self, message, outer, path):
        name = outer + message["name"]
        self.messages[name] = (message, path)
        for at, nested in enumerate(message.get("nestedType", [])):
            self.add_message(nested, f"{name}.", (*path, MESSAGE_NESTED, at))
        for at, enum in enumerate(message.get("enumType", [])):
            self.enums[f"{name}.{enum['name']}"] = (enum, (*path, MESSAGE_ENUM, at))

    def comment(self, *path):
        return self.comments.get(path, "")


def clean(comment):
    """Joins the lines of each paragraph, and escapes what Markdown would take for HTML."""
    paragraphs = re.split(r"\n\s*\n", comment.strip())
    text = "\n\n".join(" ".join(line.strip() for line in paragraph.splitlines()) for paragraph in paragraphs)
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_") for part in parts[::2]]
    return "`".join(parts)


def cell(text):
    return text.replace("\n\n", "<br><br>").replace("|", "\\|")


def first_sentence(text):
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def permissions(docs):
    """Returns the row of each `Service/Method` in the table of docs/people-and-roles.md, which is tested."""
    rules = {}
    for line in (docs / "people-and-roles.md").read_text().splitlines():
        cells = [one.strip() for one in line.strip("|").split("|")]
        if len(cells) == 4 and re.search(r"[A-Z]\w+: `", cells[3]):
            for service, methods in re.findall(r"(\w+): ((?:`\w+`(?:, )?)+)", cells[3]):
                for method in re.findall(r"\w+", methods):
                    rules[f"{service}/{method}"] = cells[:3]
    return rules


class Reference:
    def __init__(self, files, docs):
        self.files = [File(one) for one in files if one.get("package") == PACKAGE]
        self.rules = permissions(docs)
        self.homes = {name: file for file in self.files for name in (*file.messages, *file.enums)}

    def link(self, full_name, page):
        """A link to a message or an enum, from the page of a file."""
        name = full_name.removeprefix(f".{PACKAGE}.")
        home = self.homes.get(name)
        if home is None:
            return f"`{full_name.lstrip('.')}`"
        return f"[`{name}`]({'' if home is page else home.stem + '.md'}#{anchor(name)})"

    def type_of(self, field, message, page):
        kind = field["type"].removeprefix("TYPE_").lower()
        is_repeated = field["label"] == "LABEL_REPEATED"
        if kind not in {"message", "enum"}:
            text = f"`{kind}`"
        else:
            entry = [one for one in message.get("nestedType", []) if field["typeName"].endswith(f".{one['name']}")]
            if entry and entry[0].get("options", {}).get("mapEntry"):
                key, value = (self.type_of(one, entry[0], page) for one in entry[0]["field"])
                return f"map of {key} to {value}"
            text = self.link(field["typeName"], page)
        return f"list of {text}" if is_repeated else text

    def call(self, file, service, method, path):
        takes = self.link(method["inputType"], file)
        answers = self.link(method["outputType"], file)
        takes = f"a stream of {takes}" if method.get("clientStreaming") else takes
        answers = f"a stream of {answers}" if method.get("serverStreaming") else answers
        permission, scope, role = self.rules[f"{service}/{method['name']}"]
        needs = f"permission {permission}: a key with the scope {scope}, or a person with at least the role {role}"
        if "no key" in scope:
            needs = f"permission {permission}: for the mesh itself, with no API key and no role"
        elif role == "none":
            needs = f"permission {permission}: a key with the scope {scope}"
        elif scope == "any":
            needs = f"permission {permission}: any API key, or any person"
        return [
            f"### {method['name']} {{#{anchor(service + '.' + method['name'])}}}",
            "",
            f"`{PACKAGE}.{service}/{method['name']}`: takes {takes}, answers with {answers}.",
            "",
            f"Needs the {needs}.",
            "",
            file.comment(*path),
            "",
        ]

    def message(self, file, name):
        message, path = file.messages[name]
        lines = [f"### {name} {{#{anchor(name)}}}", "", file.comment(*path), ""]
        fields = message.get("field", [])
        if not fields:
            return [*lines, "It has no fields.", ""]
        lines += ["| field | number | type | description |", "|---|---|---|---|"]
        for at, field in enumerate(fields):
            notes = [file.comment(*path, MESSAGE_FIELD, at)]
            if field.get("proto3Optional"):
                notes.append("Optional: it may be absent.")
            elif "oneofIndex" in field:
                notes.append(f"One of the fields of `{message['oneofDecl'][field['oneofIndex']]['name']}`.")
            text = cell(" ".join(note for note in notes if note))
            lines.append(f"| `{field['name']}` | {field['number']} | {self.type_of(field, message, file)} | {text} |")
        return [*lines, ""]

    def enum(self, file, name):
        enum, path = file.enums[name]
        lines = [f"### {name} {{#{anchor(name)}}}", "", file.comment(*path), ""]
        lines += ["| value | number | description |", "|---|---|---|"]
        for at, value in enumerate(enum["value"]):
            text = cell(file.comment(*path, ENUM_VALUE, at))
            lines.append(f"| `{value['name']}` | {value.get('number', 0)} | {text} |")
        return [*lines, ""]

    def page(self, file):
        services = file.described.get("service", [])
        title = ", ".join(service["name"] for service in services)
        source = f"Made from `proto/{file.described['name']}`."
        lines = [f"# {title}", "", file.comment(FILE_SYNTAX), "", source, ""]
        for at, service in enumerate(services):
            heading = service["name"] if len(services) > 1 else "Calls"
            lines += [f"## {heading} {{#{anchor(service['name'] + '-service')}}}", ""]
            lines += [file.comment(FILE_SERVICE, at), ""]
            for number, method in enumerate(service["method"]):
                lines += self.call(file, service["name"], method, (FILE_SERVICE, at, SERVICE_METHOD, number))
        messages = [name for name, (message, _) in file.messages.items() if not message.get("options", {}).get("mapEntry")]
        if messages:
            lines += ["## Message types", ""]
        for name in messages:
            lines += self.message(file, name)
        if file.enums:
            lines += ["## Enums", ""]
        for name in file.enums:
            lines += self.enum(file, name)
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def anchor(name):
    return name.replace(".", "-").lower()


def pages(files, docs):
    """Returns the text of each page by its file name."""
    reference = Reference(files, docs)
    rows = []
    for file in reference.files:
        for service in file.described.get("service", []):
            name = service["name"]
            about = first_sentence(file.comment(FILE_SYNTAX))
            rows.append(f"| [{name}]({file.stem}.md#{anchor(name + '-service')}) | {cell(about)} |")
    made = {f"{file.stem}.md": reference.page(file) for file in reference.files}
    return {"index.md": INTRODUCTION + "\n".join(sorted(rows)) + "\n", **made}
