//! Forms with files in them, as a client posts them to Telegram.

use serde_json::{Map, Value, json};

/// The fields of a form; a file is told by its name, its type and its bytes as text. Numbers are
/// numbers and JSON is JSON, as Telegram takes them.
pub(super) fn params(content_type: &str, body: &[u8]) -> Option<Map<String, Value>> {
    let boundary = content_type.split("boundary=").nth(1)?.trim_matches('"');
    let delimiter = format!("--{boundary}");
    let mut params = Map::new();
    for part in split(body, delimiter.as_bytes()) {
        let Some(at) = find(part, b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&part[..at]).into_owned();
        let content = part[at + 4..].strip_suffix(b"\r\n")?;
        let name = quoted(&head, "name=\"")?;
        let text = String::from_utf8_lossy(content).into_owned();
        let value = match quoted(&head, "filename=\"") {
            Some(file) => {
                let kind = head.lines().find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-type: ").map(str::to_owned)
                });
                json!({"file_name": file, "mime_type": kind, "file_size": content.len(), "text": text})
            }
            None => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        };
        params.insert(name, value);
    }
    Some(params)
}

fn quoted(head: &str, before: &str) -> Option<String> {
    // `name="` is the end of `filename="` too.
    let spaced = format!(" {before}");
    let rest = &head[head.find(&spaced)? + spaced.len()..];
    rest.split('"').next().map(str::to_owned)
}

fn split<'a>(body: &'a [u8], delimiter: &[u8]) -> Vec<&'a [u8]> {
    let (mut parts, mut rest) = (Vec::new(), body);
    while let Some(at) = find(rest, delimiter) {
        parts.push(&rest[..at]);
        rest = &rest[at + delimiter.len()..];
    }
    parts
}

fn find(body: &[u8], what: &[u8]) -> Option<usize> {
    body.windows(what.len()).position(|window| window == what)
}
