//! Parser that splits a command line into the commands that a shell would run.
//!
//! The result is compared with an allow-list, so everything that may mean something else to the
//! shell is refused: a refusal needs an approval at worst, a misreading would run a command that
//! nobody allowed.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// Words of each command; separated by `;`, `&`, `|`, `&&`, `||` or new lines.
    Commands(Vec<Vec<String>>),
    /// A command or parameter substitution: `$(…)`, back-ticks, `<(…)`, `${…}`.
    Substitution,
    /// Unsupported syntax: redirects, groups, assignments.
    Unclear,
}

pub(crate) fn read(line: &str) -> Line {
    let mut reader = Reader { commands: Vec::new(), words: Vec::new(), word: None };
    match reader.line(line) {
        Ok(()) => Line::Commands(reader.commands),
        // A substitution anywhere in the line is the more important result.
        Err(Stop::Unclear) if may_substitute(line) => Line::Substitution,
        Err(Stop::Unclear) => Line::Unclear,
        Err(Stop::Substitution) => Line::Substitution,
    }
}

fn may_substitute(line: &str) -> bool {
    ["$(", "${", "`", "<(", ">("].iter().any(|form| line.contains(form))
}

enum Stop {
    Substitution,
    Unclear,
}

struct Reader {
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: Option<String>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), Stop> {
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            let next = chars.peek().copied();
            match c {
                ' ' | '\t' => self.end_word(),
                '\n' | ';' | '&' | '|' => self.end_command()?,
                '\'' => {
                    let mut closed = false;
                    for c in chars.by_ref() {
                        if c == '\'' {
                            closed = true;
                            break;
                        }
                        self.letter(c)?;
                    }
                    self.is_closed(closed)?;
                }
                '"' => self.quoted(&mut chars)?,
                '\\' => match chars.next() {
                    Some('\n') => {}
                    Some(c) => self.letter(c)?,
                    None => return Err(Stop::Unclear),
                },
                '`' => return Err(Stop::Substitution),
                '$' => self.dollar(next)?,
                '<' | '>' if next == Some('(') => return Err(Stop::Substitution),
                '<' | '>' | '(' | ')' => return Err(Stop::Unclear),
                // The rest is a comment to the shell, so its quotes have no meaning.
                '#' if self.word.is_none() => return Err(Stop::Unclear),
                c => self.letter(c)?,
            }
        }
        self.end_command()
    }

    fn quoted(&mut self, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<(), Stop> {
        self.word.get_or_insert_default();
        while let Some(c) = chars.next() {
            let next = chars.peek().copied();
            match (c, next) {
                ('"', _) => return Ok(()),
                ('`', _) => return Err(Stop::Substitution),
                // Within double quotes, `$"` ends the quotation.
                ('$', Some('"' | '\'')) => self.letter('$')?,
                ('$', _) => self.dollar(next)?,
                ('\\', Some(escaped @ ('$' | '`' | '"' | '\\' | '\n'))) => {
                    chars.next();
                    if escaped != '\n' {
                        self.letter(escaped)?;
                    }
                }
                (c, _) => self.letter(c)?,
            }
        }
        Err(Stop::Unclear)
    }

    fn dollar(&mut self, next: Option<char>) -> Result<(), Stop> {
        match next {
            Some('(' | '{' | '[') => Err(Stop::Substitution),
            // `$'…'` and `$"…"` may contain escaped characters.
            Some('\'' | '"') => Err(Stop::Unclear),
            // A variable in the command's place could be any command.
            Some(_) if self.words.is_empty() => Err(Stop::Unclear),
            Some(_) | None => self.letter('$'),
        }
    }

    fn letter(&mut self, c: char) -> Result<(), Stop> {
        if c.is_control() && !matches!(c, '\t' | '\n') {
            return Err(Stop::Unclear);
        }
        self.word.get_or_insert_default().push(c);
        Ok(())
    }

    fn is_closed(&mut self, closed: bool) -> Result<(), Stop> {
        self.word.get_or_insert_default();
        if closed { Ok(()) } else { Err(Stop::Unclear) }
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) -> Result<(), Stop> {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        match words.first() {
            // Between two `&&`, and at the end.
            None => return Ok(()),
            // `PATH=. ls` is not `ls`; braces and patterns are expanded to other names.
            Some(name)
                if name.is_empty()
                    || name.contains(['=', '*', '?', '[', '{', '}', '~', '!'])
                    || KEYWORDS.contains(&name.as_str()) =>
            {
                return Err(Stop::Unclear);
            }
            Some(_) => {}
        }
        self.commands.push(words);
        Ok(())
    }
}

/// Words that are followed by another command or change the meaning of words.
const KEYWORDS: [&str; 18] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "function", "select", "coproc", "alias", "eval", "time",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn commands(line: &str) -> Vec<Vec<String>> {
        match read(line) {
            Line::Commands(commands) => commands,
            other @ (Line::Substitution | Line::Unclear) => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_chain_is_cut_into_its_commands() {
        for (line, cut) in [
            ("ls", vec![vec!["ls"]]),
            ("ls -l 'a b' \"c d\"", vec![vec!["ls", "-l", "a b", "c d"]]),
            (
                "a;b & c|d&&e||f\ng",
                vec![vec!["a"], vec!["b"], vec!["c"], vec!["d"], vec!["e"], vec!["f"], vec!["g"]],
            ),
            ("echo a\\;b \"x;y\" 'p|q'", vec![vec!["echo", "a;b", "x;y", "p|q"]]),
            ("echo \"\\$(x)\" '$(y)'", vec![vec!["echo", "$(x)", "$(y)"]]),
            ("l\\\ns", vec![vec!["ls"]]),
            ("echo $HOME a#b ''", vec![vec!["echo", "$HOME", "a#b", ""]]),
            ("echo 你好", vec![vec!["echo", "你好"]]),
        ] {
            assert_eq!(commands(line), cut, "{line}");
        }
    }

    #[test]
    fn a_command_within_a_command_is_seen_wherever_it_hides() {
        for line in [
            "echo $(rm x)",
            "echo \"$(rm x)\"",
            "echo `rm x`",
            "echo \"a`rm x`\"",
            "cat <(rm x)",
            "tee >(rm x)",
            "echo ${x:-$(rm x)}",
            "echo \"${x}\"",
            "echo $[1+1]",
            "echo a > $(rm x)",
        ] {
            assert_eq!(read(line), Line::Substitution, "{line}");
        }
    }

    #[test]
    fn what_is_not_surely_read_as_the_shell_would_is_unclear() {
        for line in [
            "echo 'a",
            "echo \"a",
            "echo a\\",
            "echo a > b",
            "cat < a",
            "(ls)",
            "PATH=. ls",
            "$X a",
            "ls # '\nrm -rf /\n#'",
            "echo $'\\x41'",
            "{ls,-l}",
            "/bin/r?",
            "if true",
            "eval ls",
            "ls\r",
            "'' a",
        ] {
            assert_eq!(read(line), Line::Unclear, "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_word_is_one_word_whatever_is_in_it(word in "[^'\\pC]{0,40}") {
            prop_assert_eq!(commands(&format!("echo '{word}'")), [["echo".to_owned(), word]]);
        }

        #[test]
        fn no_line_breaks_the_reader(line in "\\PC{0,80}") {
            let _ = read(&line);
        }
    }
}
