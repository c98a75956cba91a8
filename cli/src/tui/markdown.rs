//! Markdown of answers as lines of a terminal. Unfinished Markdown, as of an answer that is still
//! written, is shown as far as it goes.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::{
    style::{Color, Modifier, Style},
    text::Line,
};

use super::text::{Piece, clean, wrap};

const BULLET: &str = "• ";
const CODE_MARGIN: &str = "│ ";
const QUOTE_MARGIN: &str = "▌ ";

/// Renders a text to lines of at most `width` columns.
pub fn render(text: &str, width: usize, has_color: bool) -> Vec<Line<'static>> {
    let text = clean(text);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page { width, has_color, ..Page::default() };
    for event in Parser::new_ext(&text, options) {
        page.apply(event);
    }
    page.end_block();
    while page.lines.last().is_some_and(|line| line.width() == 0) {
        page.lines.pop();
    }
    page.lines
}

#[derive(Default)]
struct Page {
    width: usize,
    has_color: bool,
    lines: Vec<Line<'static>>,
    /// Text of the current block.
    pieces: Vec<Piece>,
    styles: Vec<Style>,
    /// Numbers of the lists around the current block; `None` in a list without numbers.
    lists: Vec<Option<u64>>,
    quotes: usize,
    /// Bullet or number of an item whose text has not begun.
    marker: Option<String>,
    is_code: bool,
    /// Address of the link that is open.
    link: Option<String>,
}

impl Page {
    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn colored(&self, style: Style, color: Color) -> Style {
        if self.has_color { style.fg(color) } else { style }
    }

    fn apply(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.begin(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.pieces.push((text.into_string(), self.style()));
            }
            Event::Code(code) => {
                let style = self.colored(self.style().add_modifier(Modifier::BOLD), Color::Yellow);
                self.pieces.push((code.into_string(), style));
            }
            Event::SoftBreak | Event::HardBreak => {
                self.pieces.push(("\n".to_owned(), self.style()));
            }
            Event::Rule => {
                self.end_block();
                self.lines.push(Line::from("─".repeat(self.width.min(40))));
                self.gap();
            }
            Event::TaskListMarker(is_done) => {
                let mark = if is_done { "[x] " } else { "[ ] " };
                self.pieces.push((mark.to_owned(), self.style()));
            }
            _ => {}
        }
    }

    fn begin(&mut self, tag: Tag<'_>) {
        let style = self.style();
        match tag {
            Tag::Heading { level, .. } => {
                self.end_block();
                let style = style.add_modifier(Modifier::BOLD);
                let top = matches!(level, HeadingLevel::H1 | HeadingLevel::H2);
                let underlined = style.add_modifier(Modifier::UNDERLINED);
                self.styles.push(if top { underlined } else { style });
            }
            Tag::Emphasis => self.styles.push(style.add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(style.add_modifier(Modifier::BOLD)),
            Tag::Strikethrough => self.styles.push(style.add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some(dest_url.into_string());
                self.styles.push(style.add_modifier(Modifier::UNDERLINED));
            }
            Tag::CodeBlock(_) => {
                self.end_block();
                self.is_code = true;
            }
            Tag::BlockQuote(_) => {
                self.end_block();
                self.quotes += 1;
            }
            Tag::List(start) => {
                self.end_block();
                self.lists.push(start);
            }
            Tag::Item => {
                self.end_block();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => BULLET.to_owned(),
                };
                self.marker = Some(marker);
            }
            Tag::TableCell if !self.pieces.is_empty() => {
                self.pieces.push((" │ ".to_owned(), Style::default()));
            }
            Tag::TableHead => self.styles.push(style.add_modifier(Modifier::BOLD)),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.end_block();
                self.styles.pop();
                self.gap();
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                let said = self.pieces.last().map(|(text, _)| text.clone()).unwrap_or_default();
                if let Some(address) = self.link.take().filter(|address| *address != said) {
                    self.pieces.push((format!(" ({address})"), self.style()));
                }
            }
            TagEnd::CodeBlock => {
                self.end_block();
                self.is_code = false;
                self.gap();
            }
            TagEnd::BlockQuote(_) => {
                self.end_block();
                self.quotes = self.quotes.saturating_sub(1);
            }
            TagEnd::List(_) => {
                self.end_block();
                self.lists.pop();
                if self.lists.is_empty() {
                    self.gap();
                }
            }
            TagEnd::Item | TagEnd::TableRow | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::TableHead => {
                self.end_block();
                self.styles.pop();
            }
            TagEnd::Paragraph => {
                self.end_block();
                if self.lists.is_empty() {
                    self.gap();
                }
            }
            TagEnd::Table => self.gap(),
            _ => {}
        }
    }

    /// Adds the text of the current block to the page.
    fn end_block(&mut self) {
        if self.pieces.is_empty() && self.marker.is_none() {
            return;
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        let indent = "  ".repeat(self.lists.len().saturating_sub(1));
        let quotes = QUOTE_MARGIN.repeat(self.quotes);
        let marker = self.marker.take().unwrap_or_default();
        let hanging = if self.lists.is_empty() { "" } else { "  " };
        let mut first = format!("{quotes}{indent}{marker}");
        let mut next = format!("{quotes}{indent}{hanging}");
        if marker.is_empty() {
            first.clone_from(&next);
        }
        let mut margin = Style::default();
        if self.is_code {
            margin = self.colored(margin.add_modifier(Modifier::DIM), Color::Gray);
            first.push_str(CODE_MARGIN);
            next.push_str(CODE_MARGIN);
            if let Some((last, _)) = pieces.last_mut() {
                *last = last.trim_end_matches('\n').to_owned();
            }
        }
        self.lines.extend(wrap(&pieces, self.width, &(first, margin), &(next, margin)));
    }

    fn gap(&mut self) {
        if self.lines.last().is_some_and(|line| line.width() > 0) {
            self.lines.push(Line::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, width: usize) -> Vec<String> {
        let lines = render(text, width, true);
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn blocks_look_like_themselves() {
        let text = "# Plan\n\nDo *this* and **that**:\n\n1. one\n2. two\n   - deep\n\n> said\n\n\
                    ```sh\nls -l\n\necho\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n";

        assert_eq!(
            shown(text, 40),
            [
                "Plan",
                "",
                "Do this and that:",
                "",
                "1. one",
                "2. two",
                "  • deep",
                "",
                "▌ said",
                "",
                "│ ls -l",
                "│",
                "│ echo",
                "",
                "a │ b",
                "1 │ 2"
            ]
        );
    }

    #[test]
    fn styles_are_kept_and_links_show_where_they_lead() {
        let lines = render("**bold** [docs](https://h/x)", 60, false);

        let bold = lines[0].spans.iter().find(|span| span.content.contains("bold")).unwrap();
        assert!(bold.style.add_modifier.contains(Modifier::BOLD));
        assert_eq!(lines[0].to_string(), "bold docs (https://h/x)");
    }

    #[test]
    fn an_unfinished_answer_is_shown_as_far_as_it_goes() {
        assert_eq!(shown("```rust\nfn ma", 40), ["│ fn ma"]);
        assert_eq!(shown("- one\n- tw", 40), ["• one", "• tw"]);
        assert_eq!(shown("", 40), Vec::<String>::new());
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let text =
            format!("{} `{}`\n\n```\n{}\n```", "学".repeat(50), "x".repeat(50), "y".repeat(90));

        for line in render(&text, 30, true) {
            assert!(line.width() <= 30, "{line}");
        }
    }
}
