//! HTML to Markdown conversion for search: headings and text only.
//!
//! The page is tokenized once without building a tree, so hostile nesting costs nothing. Links are
//! dropped; `web_fetch` has another converter that keeps them.

use html5gum::{DefaultEmitter, Token, Tokenizer};

/// Elements whose content is not part of the page's text.
const SKIPPED_ELEMENTS: [&str; 10] =
    ["script", "style", "noscript", "template", "nav", "svg", "iframe", "footer", "form", "select"];

/// Elements that begin a paragraph.
const BLOCK_ELEMENTS: [&str; 18] = [
    "p",
    "div",
    "section",
    "article",
    "main",
    "header",
    "aside",
    "ul",
    "ol",
    "table",
    "tr",
    "dl",
    "dt",
    "dd",
    "blockquote",
    "figure",
    "hr",
    "br",
];

pub fn markdown(page: &str) -> String {
    let mut emitter = DefaultEmitter::default();
    // Markup inside scripts is text.
    emitter.naively_switch_states(true);
    let mut reader = MarkdownWriter::default();
    for token in Tokenizer::new_with_emitter(page, emitter).flatten() {
        match token {
            Token::StartTag(tag) => reader.start(&String::from_utf8_lossy(&tag.name)),
            Token::EndTag(tag) => reader.end(&String::from_utf8_lossy(&tag.name)),
            Token::String(text) => reader.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    reader.finish()
}

#[derive(Debug, Default)]
struct MarkdownWriter {
    title: String,
    in_title: bool,
    /// Element that is skipped, and number of open elements with its name.
    skipped: Option<(String, usize)>,
    paragraphs: Vec<String>,
    /// Markdown prefix of the current paragraph: `## `, `- `.
    mark: String,
    line: String,
}

impl MarkdownWriter {
    fn start(&mut self, name: &str) {
        if let Some((skipped, open)) = &mut self.skipped {
            *open += usize::from(skipped == name);
            return;
        }
        match name {
            "title" => self.in_title = true,
            "li" => self.begin("- "),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.begin(&format!("{} ", "#".repeat(level)));
            }
            "td" | "th" => self.line.push(' '),
            name if SKIPPED_ELEMENTS.contains(&name) => self.skipped = Some((name.to_owned(), 1)),
            name if BLOCK_ELEMENTS.contains(&name) => self.begin(""),
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if let Some((skipped, open)) = &mut self.skipped {
            *open -= usize::from(skipped == name);
            if *open == 0 {
                self.skipped = None;
            }
            return;
        }
        match name {
            "title" => self.in_title = false,
            "li" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.begin(""),
            name if BLOCK_ELEMENTS.contains(&name) => self.begin(""),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
        } else {
            self.line.push_str(text);
        }
    }

    /// Ends the current paragraph and begins the next.
    fn begin(&mut self, mark: &str) {
        let words = self.line.split_whitespace().collect::<Vec<_>>().join(" ");
        if !words.is_empty() {
            self.paragraphs.push(format!("{}{words}", self.mark));
        }
        self.line.clear();
        mark.clone_into(&mut self.mark);
    }

    fn finish(mut self) -> String {
        self.begin("");
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        let has_heading = self.paragraphs.first().is_some_and(|first| first.starts_with("# "));
        if !title.is_empty() && !has_heading {
            self.paragraphs.insert(0, format!("# {title}"));
        }
        self.paragraphs.join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::markdown;

    #[test]
    fn headings_lists_and_paragraphs_stay_apart_and_scripts_go() {
        let page = "<title>T</title><h1>Tea</h1><p>Boil\n water<ul><li>green<li>black</ul>\
                    <script>if (a<b) x()</script><nav><nav>x</nav>Home</nav><p>Enjoy &amp; rest";

        assert_eq!(markdown(page), "# Tea\n\nBoil water\n\n- green\n\n- black\n\nEnjoy & rest");
    }

    #[test]
    fn a_page_that_is_nested_deeply_is_read_all_the_same() {
        let page = format!("{}tea", "<div><b>".repeat(200_000));

        assert_eq!(markdown(&page), "tea");
    }
}
