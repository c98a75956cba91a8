//! Text of HTML, as Markdown: web pages, documents and mails.
//!
//! A page is processed tag by tag, without a tree. Tree-building libraries were measured: fifty
//! thousand nested `<b>` or `<table>`, which is a page of 150 kB, overflow the stack and end the
//! *process*, and five thousand nested `<div>` take seconds. Pages are not trusted. This code takes
//! time and memory in proportion to the page. The disadvantage: a page without `<main>`,
//! `<article>`, `<nav>` and the like is shown with its menus.

use std::collections::BTreeMap;

use html5gum::{DefaultEmitter, HtmlString, Spanned, Token, Tokenizer};
use url::Url;

use crate::markdown::Markdown;

/// Minimum length of an extracted text for which no other extraction is tried, in characters.
const MIN_TEXT_CHARS: usize = 200;

/// Maximum length of a link's address that is shown, in bytes.
const MAX_LINK_LEN: usize = 300;

/// Length of the beginning of a page in which its encoding is looked for, in bytes.
const SNIFFED_BYTES: usize = 1024;

/// The same for a link in a mail: one to sign in or to confirm has a long token.
const MAX_MAIL_LINK_LEN: usize = 2000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Title of the page; may be empty.
    pub title: String,
    pub text: String,
}

/// Part of a page that is extracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extraction {
    /// Elements that the author marked as the main content.
    MainContent,
    /// Everything except elements that are marked as something else.
    Body,
    /// Everything that people see.
    Visible,
    All,
}

/// Links of the extracted text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links<'a> {
    /// Only their texts: for search, where addresses are noise.
    Dropped,
    /// With their addresses; `None` if there is no address that relative ones refer to.
    Kept(Option<&'a Url>),
}

/// Extracts the text of a page that was found at `base`.
pub fn page(html: &str, base: &Url) -> Page {
    let mut best = Page { title: String::new(), text: String::new() };
    for reading in [Extraction::MainContent, Extraction::Body, Extraction::All] {
        let page = read(html, Links::Kept(Some(base)), reading);
        let is_enough =
            page.text.chars().filter(|letter| !letter.is_whitespace()).count() >= MIN_TEXT_CHARS;
        if is_enough {
            return page;
        }
        if page.text.len() >= best.text.len() {
            best = page;
        }
    }
    best
}

/// Extracts the text of an HTML file, for search: without its menus and the addresses of links.
#[must_use]
pub fn document(html: &str) -> Page {
    let page = read(html, Links::Dropped, Extraction::Body);
    if page.text.is_empty() { read(html, Links::Dropped, Extraction::All) } else { page }
}

/// Extracts the text of a mail in HTML, with the addresses of links and the descriptions of images.
#[must_use]
pub fn mail_text(html: &str) -> String {
    let page = read(html, Links::Kept(None), Extraction::Visible);
    match page.text.is_empty() {
        true => read(html, Links::Kept(None), Extraction::All).text,
        false => page.text,
    }
}

/// Tokenises a text; markup within scripts and similar elements is not recognised as tags.
pub fn tokens(html: &str) -> impl Iterator<Item = Token> {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    Tokenizer::new_with_emitter(html, emitter).flatten()
}

/// Returns the value of an attribute.
pub fn attribute(
    attributes: &BTreeMap<HtmlString, Spanned<HtmlString, ()>>,
    name: &str,
) -> Option<String> {
    let value = attributes.get(name.as_bytes())?;
    Some(String::from_utf8_lossy(value).into_owned())
}

fn read(html: &str, links: Links<'_>, reading: Extraction) -> Page {
    let mut reader = Reader {
        links,
        reading,
        title: None,
        skipped: None,
        main_content_depth: 0,
        out: Markdown::default(),
    };
    for token in tokens(html) {
        match token {
            Token::StartTag(tag) => {
                let name = String::from_utf8_lossy(&tag.name).into_owned();
                reader.start(&name, |name| attribute(&tag.attributes, name));
            }
            Token::EndTag(tag) => reader.end(&String::from_utf8_lossy(&tag.name)),
            Token::String(text) => reader.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    let title = reader.title.unwrap_or_default();
    Page {
        title: title.split_whitespace().collect::<Vec<_>>().join(" "),
        text: reader.out.finish(),
    }
}

struct Reader<'a> {
    links: Links<'a>,
    reading: Extraction,
    title: Option<String>,
    /// Element that is skipped, and the number of open elements with its name within it.
    skipped: Option<(String, usize)>,
    /// Number of open elements that hold the main content.
    main_content_depth: usize,
    out: Markdown,
}

impl Reader<'_> {
    fn start(&mut self, name: &str, attribute: impl Fn(&str) -> Option<String>) {
        if let Some((skipped, depth)) = &mut self.skipped {
            // These elements end where the next one begins, even without an end tag.
            if skipped == name && !ends_by_itself(name) {
                *depth += 1;
            }
            return;
        }
        let is_hidden = || {
            let style = attribute("style").unwrap_or_default().replace(' ', "").to_lowercase();
            attribute("hidden").is_some()
                || attribute("aria-hidden").is_some_and(|is| is == "true")
                || style.contains("display:none")
                || style.contains("visibility:hidden")
        };
        if self.is_skipped(name)
            || (self.reading != Extraction::All && !is_void(name) && is_hidden())
        {
            self.skipped = Some((name.to_owned(), 1));
            return;
        }
        match name {
            "title" if self.title.is_none() => self.title = Some(String::new()),
            "main" | "article" => self.main_content_depth += 1,
            _ => {}
        }
        if !self.is_read() {
            return;
        }
        match name {
            "a" => self.out.link(attribute("href").and_then(|href| self.link(&href))),
            "img" => {
                let alt = attribute("alt").unwrap_or_default();
                if !alt.trim().is_empty() {
                    self.out.text(&format!("[image: {}]", alt.trim()));
                }
            }
            name => self.out.start(name),
        }
    }

    fn end(&mut self, name: &str) {
        if let Some((skipped, depth)) = &mut self.skipped {
            if skipped == name {
                *depth -= 1;
                if *depth == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        if self.is_read() {
            match name {
                "a" => self.out.link_end(),
                name => self.out.end(name),
            }
        }
        if matches!(name, "main" | "article") {
            self.main_content_depth = self.main_content_depth.saturating_sub(1);
        }
    }

    fn text(&mut self, text: &str) {
        if let Some((skipped, _)) = &self.skipped {
            if skipped == "title"
                && let Some(title) = &mut self.title
            {
                title.push_str(text);
            }
        } else if self.is_read() {
            self.out.text(text);
        }
    }

    fn is_read(&self) -> bool {
        self.reading != Extraction::MainContent || self.main_content_depth > 0
    }

    fn is_skipped(&mut self, name: &str) -> bool {
        match name {
            "title" => {
                self.title.get_or_insert_default();
                true
            }
            "script" | "style" | "noscript" | "template" | "svg" | "iframe" | "object"
            | "canvas" => true,
            "nav" | "footer" | "aside" | "form" | "button" | "select" | "dialog" | "menu" => {
                matches!(self.reading, Extraction::MainContent | Extraction::Body)
            }
            _ => false,
        }
    }

    /// Absolute URL of a link; `None` if it is not worth showing.
    fn link(&self, href: &str) -> Option<String> {
        let href = href.trim();
        if href.is_empty() || href.starts_with('#') {
            return None;
        }
        let (url, is_mail) = match self.links {
            Links::Dropped => return None,
            Links::Kept(Some(base)) => (base.join(href).ok()?, false),
            Links::Kept(None) => (Url::parse(href).ok()?, true),
        };
        let max_length = if is_mail { MAX_MAIL_LINK_LEN } else { MAX_LINK_LEN };
        let is_shown = matches!(url.scheme(), "http" | "https") && url.as_str().len() <= max_length;
        is_shown.then(|| url.to_string())
    }
}

/// Whether the first thing in a file is the beginning of an HTML page.
#[must_use]
pub fn begins_as_html(content: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&content[..content.len().min(SNIFFED_BYTES)]);
    let start = start.trim_start_matches('\u{feff}').trim_start().to_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// Whether the beginning of a file has the tag of an HTML page.
#[must_use]
pub fn looks_like_html(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(SNIFFED_BYTES)]).to_lowercase();
    head.contains("<html") || head.contains("<!doctype html")
}

/// Finds the encoding that a page declares: `<meta charset="…">`, in either of its forms.
#[must_use]
pub fn declared_charset(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(SNIFFED_BYTES)]).to_lowercase();
    let (_, rest) = head.split_once("<meta").and_then(|(_, rest)| rest.split_once("charset="))?;
    let rest = rest.trim_start_matches(['"', '\'', ' ']);
    let end = rest.find(['"', '\'', ' ', '>', '/', ';']).unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

fn ends_by_itself(name: &str) -> bool {
    matches!(name, "p" | "li" | "dt" | "dd" | "tr" | "td" | "th" | "option")
}

fn is_void(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "br"
            | "col"
            | "embed"
            | "hr"
            | "img"
            | "input"
            | "link"
            | "meta"
            | "source"
            | "track"
            | "wbr"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn base() -> Url {
        Url::parse("https://x.example/dir/page").unwrap()
    }

    fn text(html: &str) -> String {
        page(html, &base()).text
    }

    #[test]
    fn a_page_is_told_as_markdown() {
        let html = "<!doctype html><html><head><title>A &amp;\n B</title><style>p{}</style></head>
            <body><h1>Head</h1><p>One <b>two</b>\n   three<br>four</p>
            <ul><li>a<li>b <a href='../c?x=1&amp;y=2'>link</a></ul>
            <pre><code>x  = 1\n  y</code></pre><table><tr><th>k<th>v</tr><tr><td>1</td><td>2</td></table>
            <img src=a.png alt='a cat'><script>alert('<p>no</p>')</script></body></html>";

        let page = page(html, &base());

        assert_eq!(page.title, "A & B");
        assert_eq!(
            page.text,
            "# Head\n\nOne two three\nfour\n\n- a\n- b [link](https://x.example/c?x=1&y=2)\n\n\
             ```\nx  = 1\n  y\n```\n\nk | v\n1 | 2\n\n[image: a cat]\n"
        );
    }

    #[test]
    fn the_matter_is_told_without_what_is_around_it() {
        let long = "A sentence of the article. ".repeat(20);
        let html = format!(
            "<nav><a href=/>Home</a></nav><header>Site</header><main><h1>T</h1><p>{long}</p>\
             <aside>Ads</aside></main><footer>Imprint</footer>"
        );

        let told = text(&html);

        assert!(told.starts_with("# T\n\nA sentence"), "{told}");
        for around in ["Home", "Site", "Ads", "Imprint"] {
            assert!(!told.contains(around), "{around}");
        }
    }

    #[test]
    fn a_page_that_never_closes_its_menu_is_read_all_the_same() {
        let told = text(&format!("<nav>Menu<p>{}", "Some words of a page. ".repeat(20)));

        assert!(told.contains("Some words"), "{told}");
    }

    #[test]
    fn what_people_do_not_see_the_model_does_not_read() {
        let long = "What everyone reads. ".repeat(20);
        let html = format!(
            "<p>{long}</p><div hidden>secret <div>one</div></div><p style='display: none'>secret two\
             <p aria-hidden=true>secret three</p><!-- secret four --><p>End</p>"
        );

        let told = text(&html);

        assert!(!told.contains("secret") && told.ends_with("End\n"), "{told}");
    }

    #[test]
    fn links_that_lead_nowhere_are_texts() {
        let html =
            "<a href='#top'>up</a> <a href='javascript:x()'>run</a> <a>none</a> <a href=/y></a>";

        assert_eq!(text(html), "up run none\n");
    }

    #[test]
    fn a_mail_keeps_its_links_and_descriptions_and_nothing_hidden() {
        let long = format!("https://x.example/confirm?token={}", "a".repeat(1000));
        let html = format!(
            "<div style='display:none'>preview</div><p>Hi</p><a href='https://x.example/?t=1'>Sign \
             in</a> or <a href='{long}'>confirm</a>, <a href='/relative'>not here</a>\
             <img src=x alt='logo'><footer>Imprint</footer>"
        );

        let text = mail_text(&html);

        let expected = format!(
            "Hi\n\n[Sign in](https://x.example/?t=1) or [confirm]({long}), not here[image: \
             logo]\nImprint\n"
        );
        assert_eq!(text, expected);
        assert_eq!(mail_text("<div hidden>all that there is</div>"), "all that there is\n");
    }

    #[test]
    fn a_document_is_its_headings_and_texts_without_addresses() {
        let page = document(
            "<title>T</title><nav>Home</nav><h1>Tea</h1><p>Boil\n water<ul><li>green<li>\
             <a href='https://x.example/'>black</a></ul><script>if (a<b) x()</script>",
        );

        assert_eq!(page.title, "T");
        assert_eq!(page.text, "# Tea\n\nBoil water\n\n- green\n- black\n");
    }

    #[test]
    fn a_page_made_to_break_its_reader_does_not() {
        for deep in ["<b>", "<div>", "<table><tr><td>", "<ul><li>", "<a href=/x>", "<pre>", "<nav>"]
        {
            let html = format!("<p>x{}y", deep.repeat(20_000));

            assert!(text(&html).len() < 4 * html.len(), "{deep}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_page(html in "(<[/!]?[a-z]{0,3}[ ='\"a-z]{0,6}>?|[^<]{0,4}){0,30}") {
            let _ = page(&html, &base());
        }
    }
}
