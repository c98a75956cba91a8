//! Conversion between text and Notion's blocks.

use serde_json::{Value, json};

/// Maximum number of blocks per request.
const MAX_BLOCKS_PER_REQUEST: usize = 100;

/// Maximum length of a piece of rich text, in characters.
const MAX_PIECE_CHARS: usize = 2_000;

/// Prefixes of our lines, and the block types for them.
const LINE_PREFIXES: [(&str, &str); 7] = [
    ("### ", "heading_3"),
    ("## ", "heading_2"),
    ("# ", "heading_1"),
    ("[ ] ", "to_do"),
    ("[x] ", "to_do"),
    ("- ", "bulleted_list_item"),
    ("> ", "quote"),
];

/// Converts text to rich text.
pub(super) fn rich_text(text: &str) -> Value {
    let letters: Vec<char> = text.chars().collect();
    letters
        .chunks(MAX_PIECE_CHARS)
        .map(|piece| json!({ "type": "text", "text": { "content": String::from_iter(piece) } }))
        .collect()
}

/// Converts rich text to text.
pub(super) fn plain_text(rich: &Value) -> String {
    let pieces = rich.as_array().into_iter().flatten();
    pieces
        .filter_map(|piece| piece["plain_text"].as_str().or(piece["text"]["content"].as_str()))
        .collect()
}

/// Converts a text to blocks, grouped by the maximum per request.
pub(super) fn blocks(text: &str) -> Vec<Vec<Value>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let blocks: Vec<Value> = lines.map(block).collect();
    blocks.chunks(MAX_BLOCKS_PER_REQUEST).map(<[Value]>::to_vec).collect()
}

fn block(line: &str) -> Value {
    let begun = LINE_PREFIXES.iter().find_map(|(begin, kind)| {
        line.trim_start().strip_prefix(begin).map(|text| (*begin, *kind, text))
    });
    let (begin, kind, text) = begun.unwrap_or(("", "paragraph", line));
    let mut content = json!({ "rich_text": rich_text(text.trim_end()) });
    if kind == "to_do" {
        content["checked"] = json!(begin == "[x] ");
    }
    json!({ "object": "block", "type": kind, kind: content })
}

/// Converts a block to a line of text.
pub(super) fn block_text(block: &Value) -> String {
    let kind = block["type"].as_str().unwrap_or_default();
    let content = &block[kind];
    if kind == "child_page" || kind == "child_database" {
        let (title, id) = (content["title"].as_str(), block["id"].as_str());
        let (title, id) = (title.unwrap_or_default(), id.unwrap_or_default());
        return format!("[page: {title} (id {id})]\n");
    }
    let Some(rich) = content.get("rich_text") else {
        return if kind == "divider" { "---\n".to_owned() } else { format!("[{kind}]\n") };
    };
    let begin = match kind {
        "to_do" if content["checked"] == true => "[x] ",
        "to_do" => "[ ] ",
        "numbered_list_item" => "1. ",
        kind => {
            LINE_PREFIXES.iter().find(|(_, known)| *known == kind).map_or("", |(begin, _)| begin)
        }
    };
    let inside = if block["has_children"] == true { " […]" } else { "" };
    format!("{begin}{}{inside}\n", plain_text(rich))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let text = "# Trip\nPack:\n- socks\n[ ] book\n[x] pay\n> quoted\n## More\n";

        let written = blocks(text);

        assert_eq!(written.len(), 1);
        assert_eq!(written[0].iter().map(block_text).collect::<String>(), text);
        assert_eq!(written[0][3]["to_do"]["checked"], false);
    }

    #[test]
    fn what_is_too_much_for_one_request_or_piece_is_parted() {
        let many = "line\n".repeat(250);
        let sizes: Vec<usize> = blocks(&many).iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 100, 50]);

        let long = rich_text(&"語".repeat(4_500));
        assert_eq!(long.as_array().unwrap().len(), 3);
        assert_eq!(plain_text(&long), "語".repeat(4_500));
    }

    #[test]
    fn what_has_no_text_says_what_it_is() {
        let image = json!({ "type": "image", "image": {} });
        let page = json!({ "type": "child_page", "id": "1-2", "child_page": { "title": "T" } });

        assert_eq!(block_text(&image), "[image]\n");
        assert_eq!(block_text(&page), "[page: T (id 1-2)]\n");
        assert_eq!(block_text(&json!({})), "[]\n");
    }
}
