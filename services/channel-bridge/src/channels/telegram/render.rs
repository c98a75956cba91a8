//! Markdown as Telegram's HTML.
//!
//! Telegram knows few tags and refuses a message with any other. So everything else is written as
//! text: lists with bullets, headings in bold, tables in fixed width, and HTML as it was typed. The
//! output is balanced and escaped for every input.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Schemes that a link may have; links with other schemes are reduced to their text.
const SCHEMES: [&str; 5] = ["http://", "https://", "mailto:", "tel:", "tg://"];

/// Renders Markdown; `None` if nothing would be visible.
#[must_use]
pub fn html(markdown: &str) -> Option<String> {
    let options =
        Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS;
    let mut html = Html::default();
    for event in Parser::new_ext(markdown, options) {
        html.take(event);
    }
    html.is_seen.then_some(html.out)
}

#[derive(Debug, Default)]
struct Html {
    out: String,
    /// Newlines to insert before the next output.
    gap: usize,
    /// Whether visible text was written.
    is_seen: bool,
    bold: usize,
    quotes: usize,
    /// For each open list: the number of its next item, or `None` for bullets.
    lists: Vec<Option<u64>>,
    /// For each open link: whether its tag was written.
    links: Vec<bool>,
    code: Option<Code>,
    table: Option<Table>,
}

#[derive(Debug, Default)]
struct Code {
    info: String,
    text: String,
}

#[derive(Debug, Default)]
struct Table {
    rows: Vec<Vec<String>>,
}

impl Html {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(code) => self.inline_code(&code),
            Event::SoftBreak | Event::HardBreak => self.text("\n"),
            Event::Rule => {
                self.text("———");
                self.ensure_newlines(2);
            }
            Event::TaskListMarker(done) => self.text(if done { "☑ " } else { "☐ " }),
            // Extensions that are not enabled, shown as typed.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { .. } | Tag::Strong => {
                self.bold += 1;
                if self.bold == 1 {
                    self.open("<b>");
                }
            }
            Tag::Emphasis => self.open("<i>"),
            Tag::Strikethrough => self.open("<s>"),
            Tag::BlockQuote(_) => {
                self.quotes += 1;
                if self.quotes == 1 {
                    self.open("<blockquote>");
                }
            }
            Tag::CodeBlock(kind) => {
                let info = match kind {
                    CodeBlockKind::Fenced(info) => info.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some(Code { info, text: String::new() });
            }
            Tag::List(first) => {
                // A nested list begins on its own line.
                if !self.lists.is_empty() {
                    self.ensure_newlines(1);
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(_) => self.table = Some(Table::default()),
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => {
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(String::new());
                }
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => self.link(&dest_url),
            Tag::Paragraph
            | Tag::HtmlBlock
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.end_bold();
                self.ensure_newlines(2);
            }
            TagEnd::Strong => self.end_bold(),
            TagEnd::Emphasis => self.close("</i>"),
            TagEnd::Strikethrough => self.close("</s>"),
            TagEnd::BlockQuote(_) => {
                self.quotes = self.quotes.saturating_sub(1);
                if self.quotes == 0 {
                    self.gap = 0;
                    self.close("</blockquote>");
                }
                self.ensure_newlines(2);
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.ensure_newlines(2);
            }
            TagEnd::Item => self.ensure_newlines(1),
            TagEnd::Table => self.end_table(),
            TagEnd::Link | TagEnd::Image => {
                if self.links.pop() == Some(true) {
                    self.close("</a>");
                }
            }
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.ensure_newlines(2),
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::TableCell
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    fn item(&mut self) {
        self.ensure_newlines(1);
        let indent = "  ".repeat(self.lists.len().saturating_sub(1));
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number += 1;
                mark
            }
            Some(None) | None => "• ".to_owned(),
        };
        self.text(&format!("{indent}{mark}"));
    }

    fn link(&mut self, url: &str) {
        let lower = url.to_ascii_lowercase();
        let is_safe = SCHEMES.iter().any(|scheme| lower.starts_with(scheme));
        let is_outermost = !self.links.contains(&true);
        let written = is_safe && is_outermost && self.table.is_none();
        if written {
            self.open(&format!("<a href=\"{}\">", escaped(url)));
        }
        self.links.push(written);
    }

    fn end_bold(&mut self) {
        self.bold = self.bold.saturating_sub(1);
        if self.bold == 0 {
            self.close("</b>");
        }
    }

    fn end_code(&mut self) {
        let Some(Code { info, text }) = self.code.take() else { return };
        let language: String = info
            .split_whitespace()
            .next()
            .filter(|word| word.chars().all(|c| c.is_ascii_alphanumeric() || "_+#.-".contains(c)))
            .unwrap_or_default()
            .to_owned();
        // A fence on a single line: the text after its back-ticks is the content.
        let (language, text) = match text.trim_end_matches('\n') {
            "" => ("", info.as_str()),
            text => (language.as_str(), text),
        };
        if !text.trim().is_empty() {
            self.preformatted(language, text);
        }
        self.ensure_newlines(2);
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else { return };
        let text = table.text();
        if !text.trim().is_empty() {
            self.preformatted("", &text);
        }
        self.ensure_newlines(2);
    }

    fn preformatted(&mut self, language: &str, text: &str) {
        self.flush();
        self.is_seen = true;
        let text = escaped(text);
        let block = match language {
            "" => format!("<pre>{text}</pre>"),
            language => format!("<pre><code class=\"language-{language}\">{text}</code></pre>"),
        };
        self.out.push_str(&block);
    }

    fn inline_code(&mut self, code: &str) {
        if self.table.is_some() {
            return self.text(code);
        }
        self.open("<code>");
        self.text(code);
        self.close("</code>");
    }

    /// Writes visible text to the current code block, table cell or the output.
    fn text(&mut self, text: &str) {
        if let Some(code) = &mut self.code {
            code.text.push_str(text);
            return;
        }
        if let Some(cell) = self.table.as_mut().and_then(Table::cell) {
            cell.push_str(&text.replace('\n', " "));
            return;
        }
        if text.is_empty() {
            return;
        }
        self.flush();
        self.is_seen |= !text.trim().is_empty();
        self.out.push_str(&escaped(text));
    }

    fn open(&mut self, tag: &str) {
        if self.table.is_none() {
            self.flush();
            self.out.push_str(tag);
        }
    }

    fn close(&mut self, tag: &str) {
        if self.table.is_none() {
            self.out.push_str(tag);
        }
    }

    /// Ensures at least this many newlines before the next output; in lists never a blank line.
    fn ensure_newlines(&mut self, newlines: usize) {
        let newlines = if self.lists.is_empty() { newlines } else { newlines.min(1) };
        self.gap = self.gap.max(newlines);
    }

    fn flush(&mut self) {
        if !self.out.is_empty() {
            self.out.push_str(&"\n".repeat(self.gap));
        }
        self.gap = 0;
    }
}

impl Table {
    fn cell(&mut self) -> Option<&mut String> {
        self.rows.last_mut()?.last_mut()
    }

    /// Formats the cells in columns of the same width.
    fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(move |row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join(" | ").trim_end().to_owned()
        };
        let mut lines: Vec<String> = self.rows.iter().map(line).collect();
        if lines.len() > 1 {
            let rule = widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>();
            lines.insert(1, rule.join("-|-"));
        }
        lines.join("\n")
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::split::{split, utf16};

    fn rendered(markdown: &str) -> String {
        html(markdown).unwrap()
    }

    #[test]
    fn inline_markup_becomes_tags() {
        assert_eq!(
            rendered("**bold** *slanted* ~~gone~~ `a < b` & [site](https://x.test/?a=1&b=2)"),
            "<b>bold</b> <i>slanted</i> <s>gone</s> <code>a &lt; b</code> &amp; \
             <a href=\"https://x.test/?a=1&amp;b=2\">site</a>"
        );
    }

    #[test]
    fn blocks_are_apart_by_a_blank_line() {
        assert_eq!(
            rendered("# Title **x**\nfirst\nsecond\n\n> said\n> so\n\n---\nend"),
            "<b>Title x</b>\n\nfirst\nsecond\n\n<blockquote>said\nso</blockquote>\n\n———\n\nend"
        );
    }

    #[test]
    fn lists_have_bullets_and_numbers() {
        assert_eq!(
            rendered("before\n\n- one\n- two\n  1. a\n  2. b\n- [x] done\n\nafter"),
            "before\n\n• one\n• two\n  1. a\n  2. b\n• ☑ done\n\nafter"
        );
    }

    #[test]
    fn a_code_block_keeps_its_language() {
        assert_eq!(
            rendered("```rust\nlet a = b < c;\n```"),
            "<pre><code class=\"language-rust\">let a = b &lt; c;</code></pre>"
        );
        assert_eq!(rendered("```a\"b>\nx\n```"), "<pre>x</pre>");
        assert_eq!(rendered("```what is this"), "<pre>what is this</pre>");
    }

    #[test]
    fn a_table_is_preformatted() {
        assert_eq!(
            rendered("| a | name |\n|---|---|\n| 1 | **x** & `y` |"),
            "<pre>a | name\n--|------\n1 | x &amp; y</pre>"
        );
    }

    #[test]
    fn a_link_with_another_scheme_is_only_its_text() {
        assert_eq!(rendered("[x](javascript:alert(1)) ![alt](data:abc)"), "x alt");
    }

    #[test]
    fn html_is_shown_as_it_was_typed() {
        assert_eq!(rendered("a <u>b</u> <script>"), "a &lt;u&gt;b&lt;/u&gt; &lt;script&gt;");
        assert_eq!(rendered("<div>\nx\n</div>"), "&lt;div&gt;\nx\n&lt;/div&gt;");
    }

    #[test]
    fn what_shows_nothing_is_told_apart() {
        assert_eq!(html(""), None);
        assert_eq!(html("[a]: https://x.test"), None);
        assert_eq!(html("[](https://x.test)"), None);
    }

    /// Checks Telegram's rules: known tags, closed in order, everything escaped.
    fn check(html: &str) -> Result<(), String> {
        let mut open = Vec::new();
        let mut rest = html;
        while let Some(at) = rest.find(['<', '>', '&']) {
            rest = &rest[at..];
            if let Some(entity) = rest.strip_prefix('&') {
                let known =
                    ["lt;", "gt;", "amp;", "quot;"].iter().find(|e| entity.starts_with(**e));
                rest = &rest[1 + known.ok_or("an entity")?.len()..];
                continue;
            }
            let end = rest.find('>').filter(|_| rest.starts_with('<')).ok_or("a bracket")?;
            let tag = &rest[1..end];
            let name = tag.trim_start_matches('/').split(' ').next().unwrap_or_default();
            if !["b", "i", "s", "a", "code", "pre", "blockquote"].contains(&name) {
                return Err(format!("tag {name}"));
            }
            if tag.starts_with('/') {
                (open.pop() == Some(name)).then_some(()).ok_or(format!("closed {name}"))?;
            } else {
                open.push(name);
            }
            rest = &rest[end + 1..];
        }
        open.is_empty().then_some(()).ok_or(format!("open {open:?}"))
    }

    proptest! {
        #[test]
        fn whatever_is_typed_becomes_what_telegram_takes(
            pieces in prop::collection::vec(
                prop_oneof![
                    "[a-z]{0,5}", "\\PC{0,8}", "[*_~`>#|\\[\\]()<&!\\-]{0,4}",
                    Just("\n".to_owned()), Just("\n\n".to_owned()), Just("\n- ".to_owned()),
                    Just("\n> ".to_owned()), Just("\n1. ".to_owned()), Just("```\n".to_owned()),
                    Just("|a|b|\n|-|-|\n".to_owned()), Just("[x](http://y)".to_owned()),
                    Just("![i](https://y)".to_owned()),
                ],
                0..40,
            )
        ) {
            let markdown = pieces.concat();

            if let Some(html) = html(&markdown) {
                prop_assert_eq!(check(&html), Ok(()), "{}\n{}", markdown, html);
            }
        }

        #[test]
        fn parts_that_are_cut_for_it_fit_when_rendered(
            text in "([a-z]{0,20}|[*_`&<> \n]{0,4}|[😀一]{0,9}|\n```rust\n|\n```\n|\n- ){0,200}"
        ) {
            let measure = |part: &str| utf16(part).max(html(part).as_deref().map_or(0, utf16));

            for part in split(&text, |part| measure(part) <= 200) {
                prop_assert!(measure(&part) <= 200, "{}", part);
            }
        }
    }
}
