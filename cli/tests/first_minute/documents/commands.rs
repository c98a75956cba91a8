//! Extraction of commands from Markdown documents and help texts.

/// A command as a document has it.
#[derive(Debug, Clone)]
pub struct DocumentCommand {
    /// File or command whose help it is, with the line.
    pub place: String,
    pub text: String,
    /// Variables and folders that earlier lines of the block set.
    pub preamble: Vec<String>,
}

/// Commands of a document.
#[derive(Debug, Default)]
pub struct Document {
    pub name: String,
    /// Commands of code blocks, in their order.
    pub commands: Vec<DocumentCommand>,
    /// Commands in the text, which may lack arguments.
    pub mentions: Vec<DocumentCommand>,
    /// Code blocks with their languages.
    pub blocks: Vec<(String, String)>,
}

impl Document {
    /// Reads a Markdown document.
    pub fn of_markdown(name: &str, text: &str) -> Self {
        let mut document = Self { name: name.to_owned(), ..Self::default() };
        let mut block: Option<(usize, String, Vec<String>)> = None;
        let mut fence = String::new();
        for (index, line) in text.lines().enumerate() {
            let language = line.trim_start().trim_start_matches('`');
            let ticks = &line.trim_start()[..line.trim_start().len() - language.len()];
            match &mut block {
                Some((start, language, lines)) if line.trim() == fence => {
                    document.add_block(*start, std::mem::take(language), lines);
                    block = None;
                }
                Some((.., lines)) => lines.push(line.to_owned()),
                None if ticks.len() >= 3 => {
                    fence = ticks.to_owned();
                    block = Some((index + 2, language.trim().to_owned(), Vec::new()));
                }
                None => document.add_mentions(index + 1, line),
            }
        }
        document
    }

    /// Reads the help of a command: lines that begin with `holdfast` are examples, but for a further
    /// line of its usage.
    pub fn of_help(name: &str, text: &str) -> Self {
        let mut document = Self { name: name.to_owned(), ..Self::default() };
        let mut example = Vec::new();
        for line in text.lines() {
            let begins = line.trim_start().starts_with("holdfast ") && !line.ends_with("<COMMAND>");
            if begins || !example.is_empty() {
                example.push(line.to_owned());
                if !line.ends_with('\\') {
                    document.add_commands(1, &std::mem::take(&mut example));
                }
            } else {
                document.add_mentions(1, line);
            }
        }
        document
    }

    fn add_block(&mut self, start: usize, language: String, lines: &[String]) {
        match language.as_str() {
            "sh" | "bash" => self.add_commands(start, lines),
            "console" => {
                let typed = lines.iter().filter_map(|line| line.strip_prefix("$ "));
                let typed: Vec<String> = typed.map(str::to_owned).collect();
                self.add_commands(start, &typed);
            }
            _ => {}
        }
        self.blocks.push((language, lines.join("\n")));
    }

    pub fn add_commands(&mut self, start: usize, lines: &[String]) {
        let mut preamble = Vec::new();
        let mut text = String::new();
        for (index, line) in lines.iter().enumerate() {
            if text.is_empty() && (line.trim().is_empty() || line.trim_start().starts_with('#')) {
                continue;
            }
            text.push_str(line);
            if line.ends_with('\\') {
                text.push('\n');
                continue;
            }
            let text = std::mem::take(&mut text).trim().to_owned();
            if text.starts_with("cd ") || Shell::new(&text).programs.is_empty() {
                preamble.push(text);
                continue;
            }
            let place = format!("{}:{}", self.name, start + index);
            self.commands.push(DocumentCommand { place, text, preamble: preamble.clone() });
        }
    }

    fn add_mentions(&mut self, number: usize, line: &str) {
        let line = line.replace("``", "`");
        for text in line.split('`').skip(1).step_by(2).map(str::trim) {
            if text.starts_with("holdfast ") || text.starts_with("make ") {
                let place = format!("{}:{number}", self.name);
                let text = text.replace("\\|", "|");
                self.mentions.push(DocumentCommand { place, text, preamble: Vec::new() });
            }
        }
    }
}

/// Programs of a shell command.
#[derive(Debug, Default)]
pub struct Shell {
    /// First words of its parts, which `|`, `&&` and `;` separate.
    pub programs: Vec<String>,
    /// The command without leading assignments and with single spaces.
    pub plain: String,
}

impl Shell {
    pub fn new(command: &str) -> Self {
        let mut shell = Self::default();
        let mut plain = Vec::new();
        let mut is_start = true;
        for word in words(command) {
            if word.starts_with('#') {
                break;
            }
            if matches!(word.as_str(), "|" | "&&" | ";" | "||") {
                is_start = true;
            } else if is_start && !is_assignment(&word) {
                shell.programs.push(word.clone());
                is_start = false;
            }
            if !shell.programs.is_empty() {
                plain.push(word);
            }
        }
        shell.plain = plain.join(" ");
        shell
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty()
    })
}

/// Splits a command at white space that is neither quoted nor within parentheses.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut quote, mut depth) = (None, 0_usize);
    for c in command.replace("\\\n", " ").chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, c) if c.is_whitespace() && depth == 0 => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[test]
fn commands_are_found_in_blocks_and_in_the_text() {
    let text = "Use `holdfast up` or `make up`.\n\n```sh\nKEY=$(cat a b)\nA=1 holdfast chat \\\n  \"x | y\" # z\ncat k | holdfast status\n```\n";

    let document = Document::of_markdown("d", text);

    let mentions: Vec<_> = document.mentions.iter().map(|found| found.text.as_str()).collect();
    assert_eq!(mentions, ["holdfast up", "make up"]);
    let first = &document.commands[0];
    assert_eq!(
        (first.place.as_str(), first.preamble.as_slice()),
        ("d:6", &["KEY=$(cat a b)".to_owned()][..])
    );
    let shell = Shell::new(&first.text);
    assert_eq!(
        (shell.plain.as_str(), shell.programs),
        ("holdfast chat \"x | y\"", vec!["holdfast".to_owned()])
    );
    assert_eq!(Shell::new(&document.commands[1].text).programs, ["cat", "holdfast"]);
}
