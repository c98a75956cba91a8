//! Markdown writer for a stream of tags.

/// Maximum depth of a list's indentation.
const MAX_INDENT: usize = 6;

/// Maximum length of a link's text, in bytes; a longer one is written without the link.
const MAX_LABEL_LEN: usize = 300;

#[derive(Debug, Default)]
pub struct Markdown {
    text: String,
    /// Number of line breaks to write before the next text.
    gap: usize,
    /// Whether to write a space before the next text.
    space: bool,
    /// Prefix of the next line.
    line_prefix: String,
    lists: usize,
    pre: usize,
    cells: usize,
    /// Whether a cell has begun and has no text yet: its first paragraph begins no line.
    is_cell_start: bool,
    /// Address of the open link, and the position where its text begins.
    link: Option<(String, usize)>,
}

impl Markdown {
    pub fn start(&mut self, name: &str) {
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.block(2);
                let level = name.bytes().last().map_or(1, |digit| usize::from(digit - b'0'));
                self.line_prefix = format!("{} ", "#".repeat(level));
            }
            "br" => self.block(1),
            "ul" | "ol" => {
                self.block(if self.lists == 0 { 2 } else { 1 });
                self.lists += 1;
            }
            "li" => {
                self.block(1);
                let indent = self.lists.saturating_sub(1).min(MAX_INDENT);
                self.line_prefix = format!("{}- ", "  ".repeat(indent));
            }
            "tr" => {
                self.is_cell_start = false;
                self.block(1);
                self.cells = 0;
            }
            "td" | "th" => {
                self.cells += 1;
                if self.cells > 1 {
                    // The paragraph that ended in the last cell ends no line either.
                    self.gap = 0;
                    self.text(" | ");
                }
                self.is_cell_start = true;
            }
            "pre" => {
                if self.pre == 0 {
                    self.block(2);
                    self.flush();
                    self.text.push_str("```\n");
                }
                self.pre += 1;
            }
            name => self.block(gap(name)),
        }
    }

    pub fn end(&mut self, name: &str) {
        if matches!(name, "td" | "th") {
            self.is_cell_start = false;
        }
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                // An empty heading writes nothing.
                self.line_prefix.clear();
                self.block(2);
            }
            "ul" | "ol" => {
                self.lists = self.lists.saturating_sub(1);
                self.block(if self.lists == 0 { 2 } else { 1 });
            }
            "pre" if self.pre > 0 => {
                self.pre -= 1;
                if self.pre == 0 {
                    self.close_pre();
                }
            }
            name => self.block(gap(name)),
        }
    }

    /// Writes text of the page.
    pub fn text(&mut self, text: &str) {
        if self.pre > 0 {
            self.text.push_str(text);
            return;
        }
        if text.starts_with(char::is_whitespace) {
            self.space = true;
        }
        for word in text.split_whitespace() {
            self.flush();
            self.text.push_str(word);
            self.space = true;
        }
        self.space &= text.ends_with(char::is_whitespace);
        if text.trim().is_empty() && !text.is_empty() {
            self.space = true;
        }
    }

    /// Begins a link; `None` if its address is not shown.
    pub fn link(&mut self, href: Option<String>) {
        self.link = href.map(|href| (href, self.text.len()));
    }

    pub fn link_end(&mut self) {
        let Some((href, begin)) = self.link.take() else { return };
        let Some(written) = self.text.get(begin..) else { return };
        let label = written.trim();
        if label.is_empty() || label.len() > MAX_LABEL_LEN || label.contains('\n') || self.pre > 0 {
            return;
        }
        // A prefix of the line, such as a list's bullet, is not part of the link.
        let lead = written.len() - written.trim_start().len();
        let marks =
            written[lead..].len() - written[lead..].trim_start_matches(['-', '#', ' ']).len();
        self.text.insert(begin + lead + marks, '[');
        self.text.push_str("](");
        self.text.push_str(&href);
        self.text.push(')');
    }

    pub fn finish(mut self) -> String {
        if self.pre > 0 {
            self.close_pre();
        }
        let text = self.text.trim();
        if text.is_empty() { String::new() } else { format!("{text}\n") }
    }

    fn close_pre(&mut self) {
        self.text.truncate(self.text.trim_end().len());
        self.text.push_str("\n```");
        self.gap = 2;
    }

    fn block(&mut self, gap: usize) {
        if self.pre == 0 && gap > 0 && !self.is_cell_start {
            self.gap = self.gap.max(gap);
            self.space = false;
        }
    }

    /// Writes the pending line breaks, space and prefix.
    fn flush(&mut self) {
        self.is_cell_start = false;
        if self.text.is_empty() {
            self.gap = 0;
        } else if self.gap > 0 {
            let ends = ["", "\n", "\n\n"][self.gap.min(2)];
            self.text.truncate(self.text.trim_end_matches(' ').len());
            self.text.push_str(ends);
        } else if self.space {
            self.text.push(' ');
        }
        self.gap = 0;
        self.space = false;
        self.text.push_str(&std::mem::take(&mut self.line_prefix));
    }
}

/// Number of line breaks around an element.
fn gap(name: &str) -> usize {
    match name {
        "p" | "table" | "blockquote" | "figure" | "dl" | "hr" => 2,
        "div" | "section" | "article" | "main" | "header" | "footer" | "nav" | "aside" | "form"
        | "li" | "dt" | "dd" | "tr" | "fieldset" | "address" | "details" | "summary"
        | "figcaption" | "caption" | "body" => 1,
        _ => 0,
    }
}
