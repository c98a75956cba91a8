"""Pages of the HTTP API, from its OpenAPI description: one for each tag, and one of all schemas."""

import json
import re

METHODS = ("get", "post", "put", "patch", "delete")
BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} entries",
    "pattern": "matches `{}`",
    "default": "`{}` by default",
}
# Titles of tags that are not their name with a capital.
TITLES = {"mcp": "MCP", "websocket": "WebSocket"}


def text(value):
    """Escapes what Markdown would take for HTML."""
    parts = (value or "").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def cell(value):
    return text(value).replace("\n\n", "<br><br>").replace("\n", " ").replace("|", "\\|")


def anchor(words):
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


class Reference:
    def __init__(self, described):
        self.described = described

    def resolve(self, value):
        """Returns a value, or what it refers to."""
        while "$ref" in value:
            found = self.described
            for part in value["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            value = {**found, **{key: one for key, one in value.items() if key != "$ref"}}
        return value

    def type_of(self, schema):
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[-1]
            return f"[{name}](schemas.md#{anchor(name)})"
        if "oneOf" in schema:
            return " or ".join(dict.fromkeys(self.type_of(one) for one in schema["oneOf"]))
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        if "enum" in schema:
            return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
        kind = schema.get("type", "any value")
        if isinstance(kind, list):
            return " or ".join(kind)
        if kind == "array":
            return f"list of {self.type_of(schema.get('items', {}))}"
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            return f"object with values of {self.type_of(schema['additionalProperties'])}"
        return kind

    def notes(self, schema):
        """The description of a field, with its bounds."""
        bounds = [form.format(str(schema[key]).replace("|", "\\|")) for key, form in BOUNDS.items() if key in schema]
        whole = cell(schema.get("description", ""))
        return f"{whole} ({', '.join(bounds)})".strip() if bounds else whole

    def fields(self, schema, outer=""):
        """Rows of the fields of an object, with those of objects within it."""
        rows = []
        for name, field in schema.get("properties", {}).items():
            is_required = "yes" if name in schema.get("required", []) else ""
            rows.append(f"| `{outer}{name}` | {cell(self.type_of(field))} | {is_required} | {self.notes(field)} |")
            within, path = field, f"{outer}{name}."
            if field.get("type") == "array":
                within, path = field.get("items", {}), f"{outer}{name}[]."
            rows += self.fields(within, path)
        return rows

    def table(self, schema):
        rows = self.fields(schema)
        return ["| field | type | required | description |", "|---|---|---|---|", *rows, ""] if rows else []

    def schema(self, name, schema):
        lines = [f"## {name} {{#{anchor(name)}}}", "", text(schema.get("description")), ""]
        if "properties" not in schema:
            lines += [f"Type: {self.type_of(schema)}", ""]
        lines += self.table(schema)
        for one in schema.get("oneOf", []):
            if "properties" in one:
                kind = one["properties"].get("type", {}).get("const")
                about = f"With the type `{kind}`:" if kind else "Or:"
                lines += [text(one.get("description", about)), "", *self.table(one)]
        return lines

    def operation(self, path, method, item, operation):
        lines = [f"## `{method.upper()} {path}` {{#{anchor(operation['operationId'])}}}", ""]
        lines += [f"**{text(operation['summary'])}.** {text(operation.get('description'))}".strip(), ""]
        servers = [server["description"] for server in item.get("servers", [])]
        if servers:
            lines += [f"Served at {text(', '.join(servers))}.", ""]
        security = operation.get("security", self.described["security"])
        credentials = " or ".join(f"`{name}`" for one in security for name in one)
        lines += [f"Credential: {credentials or 'none'}.", ""]
        parameters = [self.resolve(one) for one in (*item.get("parameters", []), *operation.get("parameters", []))]
        if parameters:
            lines += ["| parameter | in | type | required | description |", "|---|---|---|---|---|"]
            for one in parameters:
                schema = one.get("schema", {})
                about = self.notes({**schema, "description": one.get("description", schema.get("description", ""))})
                required = "yes" if one.get("required") else ""
                lines.append(f"| `{one['name']}` | {one['in']} | {cell(self.type_of(schema))} | {required} | {about} |")
            lines.append("")
        if "requestBody" in operation:
            body = self.resolve(operation["requestBody"])
            lines += [f"Body: {self.content(body)}. {text(body.get('description'))}".strip(), ""]
            lines += self.inline_tables(body)
        lines += ["| answer | content | description |", "|---|---|---|"]
        answers = {status: self.resolve(one) for status, one in operation["responses"].items()}
        for status, answer in answers.items():
            lines.append(f"| {status} | {cell(self.content(answer))} | {cell(answer.get('description'))} |")
        lines.append("")
        for status, answer in answers.items():
            if tables := self.inline_tables(answer):
                lines += [f"Fields of the answer {status}:", "", *tables]
        headers = {name: self.resolve(one) for answer in answers.values() for name, one in answer.get("headers", {}).items()}
        if headers:
            lines += ["| header of answers | description |", "|---|---|"]
            lines += [f"| `{name}` | {cell(one.get('description'))} |" for name, one in headers.items()]
            lines.append("")
        return lines

    def content(self, body):
        kinds = body.get("content", {})
        return ", ".join(f"{self.type_of(one.get('schema', {}))} as `{kind}`" for kind, one in kinds.items()) or "none"

    def inline_tables(self, body):
        """Tables of schemas that have no name."""
        schemas = [one.get("schema", {}) for one in body.get("content", {}).values()]
        return [line for schema in schemas if "$ref" not in schema for line in self.table(schema)]

    def tag(self, tag):
        lines = [f"# {TITLES.get(tag['name'], tag['name'].capitalize())}", "", text(tag.get("description")), ""]
        for path, item in self.described["paths"].items():
            for method in METHODS:
                if method in item and tag["name"] in item[method]["tags"]:
                    lines += self.operation(path, method, item, item[method])
        return lines


def pages(openapi):
    """Returns the text of each page by its file name."""
    described = json.loads(openapi.read_text())
    reference = Reference(described)
    made = {f"{tag['name']}.md": reference.tag(tag) for tag in described["tags"]}
    made["schemas.md"] = ["# Schemas", "", "Objects of requests and answers.", ""]
    for name, schema in described["components"]["schemas"].items():
        made["schemas.md"] += reference.schema(name, schema)
    index = ["# HTTP API", "", text(described["info"]["description"]), ""]
    index += ["The gateway serves this description in OpenAPI 3.1 at `/openapi.json`.", ""]
    index += ["| call | what it does |", "|---|---|"]
    for path, item in described["paths"].items():
        for method in (one for one in METHODS if one in item):
            operation = item[method]
            target = f"{operation['tags'][0]}.md#{anchor(operation['operationId'])}"
            index.append(f"| [`{method.upper()} {path}`]({target}) | {cell(operation['summary'])} |")
    index += ["", "## Credentials", "", "| name | description |", "|---|---|"]
    for name, scheme in described["components"]["securitySchemes"].items():
        index.append(f"| `{name}` | {cell(scheme.get('description', scheme['type']))} |")
    made["index.md"] = index
    return {name: re.sub(r"\n{3,}", "\n\n", "\n".join(lines) + "\n") for name, lines in made.items()}
