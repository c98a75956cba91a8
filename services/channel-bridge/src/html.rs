//! Markdown as HTML for Matrix and e-mail: only elements that Matrix clients show
//! (<https://spec.matrix.org/latest/client-server-api/#mroommessage-msgtypes>).
//!
//! HTML in the Markdown is shown as it was typed. The output is balanced and escaped for every
//! input.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Schemes that a link may have; links with other schemes are reduced to their text.
const SCHEMES: [&str; 4] = ["http://", "https://", "mailto:", "matrix:"];

/// Maximum length of a code block's language, in characters.
const MAX_LANGUAGE_CHARS: usize = 32;

/// Renders Markdown; `None` if the result is nothing but the text.
#[must_use]
pub fn render(markdown: &str) -> Option<String> {
    let options =
        Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS;
    let mut html = Html::default();
    for event in Parser::new_ext(markdown, options) {
        html.take(event);
    }
    let is_plain = html.out == format!("<p>{}</p>", escaped(markdown.trim()));
    (!is_plain && !html.out.is_empty()).then_some(html.out)
}

/// Returns a text with the characters replaced that mean something in HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

#[derive(Debug, Default)]
struct Html {
    out: String,
    /// For each open link: whether its tag was written.
    links: Vec<bool>,
    is_in_head: bool,
}

impl Html {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => self.out.push_str(&escaped(&text)),
            Event::Code(code) => {
                self.out.push_str(&format!("<code>{}</code>", escaped(&code)));
            }
            Event::SoftBreak | Event::HardBreak => self.out.push_str("<br>"),
            Event::Rule => self.out.push_str("<hr>"),
            Event::TaskListMarker(done) => self.out.push_str(if done { "☑ " } else { "☐ " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::CodeBlock(CodeBlockKind::Fenced(info)) if is_language(&info) => {
                self.out.push_str(&format!("<pre><code class=\"language-{info}\">"));
            }
            Tag::CodeBlock(_) => self.out.push_str("<pre><code>"),
            Tag::List(Some(first)) if first != 1 => {
                self.out.push_str(&format!("<ol start=\"{first}\">"));
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                let is_allowed = SCHEMES.iter().any(|scheme| dest_url.starts_with(scheme));
                if is_allowed {
                    self.out.push_str(&format!("<a href=\"{}\">", escaped(&dest_url)));
                }
                self.links.push(is_allowed);
            }
            Tag::TableHead => {
                self.is_in_head = true;
                self.out.push_str("<thead><tr>");
            }
            Tag::TableCell => self.out.push_str(if self.is_in_head { "<th>" } else { "<td>" }),
            tag => {
                if let Some(name) = name(&tag.to_end()) {
                    self.out.push_str(&format!("<{name}>"));
                }
            }
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::CodeBlock => self.out.push_str("</code></pre>"),
            TagEnd::Link | TagEnd::Image => {
                if self.links.pop().unwrap_or_default() {
                    self.out.push_str("</a>");
                }
            }
            TagEnd::TableHead => {
                self.is_in_head = false;
                self.out.push_str("</tr></thead>");
            }
            TagEnd::TableCell => self.out.push_str(if self.is_in_head { "</th>" } else { "</td>" }),
            tag => {
                if let Some(name) = name(&tag) {
                    self.out.push_str(&format!("</{name}>"));
                }
            }
        }
    }
}

/// Name of the element for a tag without attributes.
fn name(tag: &TagEnd) -> Option<String> {
    let name = match tag {
        TagEnd::Paragraph => "p",
        TagEnd::Heading(level) => return Some(level.to_string()),
        TagEnd::Strong => "strong",
        TagEnd::Emphasis => "em",
        TagEnd::Strikethrough => "del",
        TagEnd::BlockQuote(_) => "blockquote",
        TagEnd::List(true) => "ol",
        TagEnd::List(false) => "ul",
        TagEnd::Item => "li",
        TagEnd::Table => "table",
        TagEnd::TableRow => "tr",
        _ => return None,
    };
    Some(name.to_owned())
}

fn is_language(info: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '#' | '.');
    !info.is_empty() && info.len() <= MAX_LANGUAGE_CHARS && info.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markdown_is_shown_as_what_it_means() {
        for (markdown, shown) in [
            (
                "**a** *b* ~~c~~ `d<`",
                "<p><strong>a</strong> <em>b</em> <del>c</del> <code>d&lt;</code></p>",
            ),
            ("# a\nb\nc", "<h1>a</h1><p>b<br>c</p>"),
            ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
            ("2. a\n3. b", "<ol start=\"2\"><li>a</li><li>b</li></ol>"),
            ("```rust\na<b\n```", "<pre><code class=\"language-rust\">a&lt;b\n</code></pre>"),
            ("[a](https://x/?b&c)", "<p><a href=\"https://x/?b&amp;c\">a</a></p>"),
            ("[a](javascript:x)", "<p>a</p>"),
            ("> a", "<blockquote><p>a</p></blockquote>"),
            (
                "|a|\n|-|\n|b|",
                "<table><thead><tr><th>a</th></tr></thead><tr><td>b</td></tr></table>",
            ),
            ("a <b>c</b>", "<p>a &lt;b&gt;c&lt;/b&gt;</p>"),
        ] {
            let rendered = render(markdown).unwrap_or_else(|| "nothing".to_owned());
            let is_literal = shown == format!("<p>{}</p>", escaped(markdown));
            assert!(rendered == shown || (is_literal && rendered == "nothing"), "{rendered}");
        }
        assert_eq!(render("just a text"), None);
        assert_eq!(render(""), None);
    }

    proptest! {
        #[test]
        fn what_is_typed_opens_no_other_element(markdown in "[a-z<>\"'&*_`\\[\\]()#|:/\n -]{0,80}") {
            let known = ["p", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "del", "blockquote",
                "ol", "ul", "li", "table", "thead", "tr", "th", "td", "pre", "code", "a", "br", "hr"];
            let rendered = render(&markdown).unwrap_or_default();
            let mut open = Vec::new();
            for tag in rendered.split('<').skip(1) {
                let inner = tag.split('>').next().unwrap();
                let name = inner.trim_start_matches('/').split(' ').next().unwrap();
                prop_assert!(known.contains(&name), "{}", rendered);
                match (inner.strip_prefix('/'), name) {
                    (Some(name), _) => prop_assert_eq!(open.pop(), Some(name.to_owned())),
                    (None, "br" | "hr") => {}
                    (None, name) => open.push(name.to_owned()),
                }
            }
            prop_assert!(open.is_empty(), "{}", rendered);
        }
    }
}
