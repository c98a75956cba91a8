//! Programs and scripts that a command line runs, so that an approval is bound to them (spec
//! SBX-011).
//!
//! | | meaning |
//! |---|---|
//! | programs | first word of each part of the line, with the path found on this machine |
//! | scripts | workspace files that are run, by their path or by an interpreter |
//! | arguments | words after an interpreter's script |
//!
//! The parser approximates a shell and prefers false positives: any file named after an interpreter
//! counts as its script, unless the script is the first word. A line that is not read to its end is
//! refused where an approval is needed.
//!
//! Not searched for: scripts that a script runs, files that a program opens by itself (`git` hooks,
//! `npm` scripts), names that a command prints or reads (`xargs`), and what variables expand to.

use std::{collections::BTreeSet, path::Path};

/// Search path of commands, with and without a sandbox.
const SEARCH_PATH: [&str; 6] =
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Programs that run files, without trailing digits and dots.
const INTERPRETERS: [&str; 24] = [
    ".", "awk", "bash", "bun", "dash", "deno", "find", "fish", "gawk", "just", "ksh", "lua",
    "make", "node", "perl", "php", "pypy", "python", "Rscript", "ruby", "sh", "source", "xargs",
    "zsh",
];

/// Interpreters that run their first word, and pass it the words after it.
const SCRIPT_FIRST: [&str; 14] = [
    "bash", "dash", "fish", "ksh", "lua", "node", "perl", "php", "pypy", "python", "Rscript",
    "ruby", "sh", "zsh",
];

/// Words before a program that are not the program.
const PREFIX_WORDS: [&str; 21] = [
    "!", "builtin", "chroot", "command", "do", "elif", "else", "env", "exec", "if", "ionice",
    "nice", "nohup", "setsid", "stdbuf", "sudo", "then", "time", "timeout", "until", "while",
];

/// Files that a program runs by default.
const DEFAULT_SCRIPTS: [(&str, &[&str]); 2] =
    [("make", &["GNUmakefile", "makefile", "Makefile"]), ("just", &["justfile", ".justfile"])];

/// Nesting of lines that is parsed, as in `sh -c`.
const MAX_DEPTH: usize = 4;

/// Limit on the programs and on the scripts that are collected.
const MAX_ITEMS: usize = 64;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CommandParts {
    /// As written in the line.
    pub(super) programs: BTreeSet<String>,
    /// As written in the line; may be words that are not files.
    pub(super) scripts: BTreeSet<String>,
    /// Words after a script, which does with them what its text says.
    pub(super) arguments: BTreeSet<String>,
    /// Not all of the line was read.
    pub(super) is_truncated: bool,
}

impl CommandParts {
    pub(super) fn parse(line: &str) -> Self {
        let mut runs = Self::default();
        runs.parse_line(line, MAX_DEPTH);
        runs
    }

    fn parse_line(&mut self, line: &str, depth: usize) {
        for part in split_line(line) {
            let is_before = |word: &&String| {
                let is_set = word.split_once('=').is_some_and(|(name, _)| is_variable_name(name));
                let is_number = word.starts_with(|c: char| c.is_ascii_digit());
                is_set
                    || is_number
                    || word.starts_with('-')
                    || PREFIX_WORDS.contains(&word.as_str())
            };
            let mut words = part.iter().skip_while(is_before);
            let Some(program) = words.next() else { continue };
            let named = self.scripts.len() + self.arguments.len();
            if self.programs.len() >= MAX_ITEMS || named >= MAX_ITEMS {
                self.is_truncated = true;
                return;
            }
            self.programs.insert(program.clone());
            if program.contains('/') {
                self.scripts.insert(program.clone());
            }
            let name = program.rsplit('/').next().unwrap_or(program);
            let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            let name = if program == "." { "." } else { name };
            if !INTERPRETERS.contains(&name) {
                continue;
            }
            let implied =
                DEFAULT_SCRIPTS.iter().filter(|(of, _)| *of == name).flat_map(|(_, files)| *files);
            self.scripts.extend(implied.map(|file| (*file).to_owned()));
            let mut is_argument = false;
            // After an option, the first word may be the option's value.
            let has_script_first = SCRIPT_FIRST.contains(&name)
                && words.clone().next().is_some_and(|word| !word.starts_with('-'));
            for word in words {
                // The value of an option, as in `--require=./hook.js`.
                let word = match word.strip_prefix('-') {
                    Some(option) => option.split_once('=').map_or("", |(_, value)| value),
                    None => word,
                };
                if word.contains(char::is_whitespace) {
                    match depth {
                        0 => self.is_truncated = true,
                        depth => self.parse_line(word, depth - 1),
                    }
                } else if !word.is_empty() {
                    let files = if is_argument { &mut self.arguments } else { &mut self.scripts };
                    files.insert(word.to_owned());
                }
                is_argument = has_script_first;
            }
        }
    }
}

/// Path of a program; a name that contains a slash is a path already.
pub(super) fn find_program(program: &str) -> Option<String> {
    if program.contains('/') {
        return Some(program.to_owned());
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._+-[".contains(c);
    if program.is_empty() || !program.chars().all(is_name) {
        return None;
    }
    let place =
        SEARCH_PATH.iter().map(|dir| Path::new(dir).join(program)).find(|file| file.is_file())?;
    // Resolves links: the target is what runs.
    let place = place.canonicalize().unwrap_or(place);
    place.to_str().map(str::to_owned)
}

fn is_variable_name(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(is_letter)
}

/// Splits a line into parts and words, without quotes.
fn split_line(line: &str) -> Vec<Vec<String>> {
    let (mut parts, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut is_word) = (String::new(), false);
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None | Some('"'), '\\') => {
                if let Some(next) = chars.next().filter(|next| *next != '\n') {
                    word.push(next);
                    is_word = true;
                }
            }
            // Substitutions run within double quotes, too.
            (None, ';' | '|' | '&' | '(' | ')' | '{' | '}' | '\n' | '`' | '<' | '>' | '$')
            | (Some('"'), '`' | '(' | ')') => {
                let ends = c != '$';
                if is_word || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                    is_word = false;
                }
                if ends {
                    parts.push(std::mem::take(&mut words));
                }
            }
            (None, c) if c.is_whitespace() => {
                if is_word || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                    is_word = false;
                }
            }
            (_, c) => word.push(c),
        }
    }
    if is_word || !word.is_empty() {
        words.push(word);
    }
    parts.push(words);
    parts.retain(|words| !words.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated;
    use proptest::prelude::*;

    use super::*;

    fn scripts(line: &str) -> Vec<String> {
        CommandParts::parse(line).scripts.into_iter().collect()
    }

    #[test]
    fn scripts_are_what_a_path_names_and_what_an_interpreter_is_told_of() {
        for (line, found) in [
            ("./run.sh", vec!["./run.sh"]),
            ("cd a && tools/x --fast", vec!["tools/x"]),
            ("bash run.sh", vec!["run.sh"]),
            ("FAST=1 nohup python3.12 -u 'main.py'", vec!["main.py"]),
            ("python3 -u main.py data.csv", vec!["data.csv", "main.py"]),
            ("timeout 5 node --require=./hook.js app.js", vec!["./hook.js", "app.js"]),
            (". ./env.sh; git status", vec!["./env.sh"]),
            ("sh -c './a.sh | ./b.sh'", vec!["./a.sh", "./b.sh"]),
            ("echo \"$(./c.sh)\"", vec!["./c.sh"]),
            ("make test", vec!["GNUmakefile", "Makefile", "makefile", "test"]),
            ("git add notes.txt", vec![]),
            ("cat run.sh", vec![]),
            ("python3 main.py data.csv", vec!["main.py"]),
            ("find docs -name a -exec sh run.sh +", vec!["+", "a", "docs", "run.sh", "sh"]),
            ("ls | xargs sh run.sh", vec!["run.sh", "sh"]),
        ] {
            assert_eq!(scripts(line), found, "{line}");
        }
        assert_eq!(CommandParts::parse("python3 main.py a.csv").arguments, ["a.csv".into()].into());
    }

    #[test]
    fn a_line_that_is_not_read_to_its_end_is_known_as_such() {
        let many: String = (0..MAX_ITEMS).map(|n| format!("p{n};")).collect();
        let deep = (0..=MAX_DEPTH).fold("sh a.sh".to_owned(), |line, _| {
            format!("sh -c '{}'", line.replace('\'', "'\\''"))
        });

        assert!(!CommandParts::parse(&many).is_truncated);
        assert!(CommandParts::parse(&format!("{many} sh evil.sh")).is_truncated);
        assert!(CommandParts::parse(&deep).is_truncated, "{deep}");
    }

    #[test]
    fn programs_are_the_first_words_and_are_found_where_commands_find_them() {
        let runs = CommandParts::parse("A=1 ls -l | sort; ./x");

        assert_eq!(runs.programs, ["./x", "ls", "sort"].map(str::to_owned).into());
        assert_eq!(find_program("./x").as_deref(), Some("./x"));
        assert!(
            find_program("sh").is_some_and(|place| place.starts_with('/')),
            "{:?}",
            find_program("sh")
        );
        assert_eq!(find_program("no-such-program-here"), None);
        assert_eq!(find_program("a b"), None);
    }

    #[test]
    fn a_line_of_any_shape_is_read_to_its_end() {
        for line in ["", "'", "\"\\", "$(((((", "a\0b", "((sh -c 'sh -c \"sh -c x\"'))"] {
            CommandParts::parse(line);
        }
        assert!(CommandParts::parse(&"x;".repeat(10_000)).programs.len() <= MAX_ITEMS);
    }

    const LINES: [&str; 6] = [
        "FAST=1 nohup python3.12 -u 'main.py' \"$(./c.sh)\" > out.txt 2>&1 &",
        "sh -c 'bash -c \"sh -c ./a.sh\" | ./b.sh' && make -C dir test || { . ./env.sh; }",
        "cat <<EOF\n./not-run.sh\nEOF\necho `./run.sh`",
        "for f in *.sh; do source $f; done; if ! true; then exec ./x; fi",
        "env -i PATH=/bin timeout 5 node --require=./hook.js app.js # ./comment.sh",
        "ls \\\n -l; awk -f prog.awk <(./sub.sh) ${A:-./b}",
    ];

    proptest! {
        #[test]
        fn any_line_is_read_within_its_bounds(line in mutated(&LINES)) {
            let parts = CommandParts::parse(&line);

            prop_assert!(parts.programs.len() <= MAX_ITEMS);
            prop_assert_eq!(CommandParts::parse(&line), parts);
        }

        #[test]
        fn a_program_is_found_behind_any_other_command(before in "[a-z]{1,8}( [a-z]{1,8}){0,3}") {
            for between in ["; ", " && ", " || ", " | ", "\n", " & "] {
                let parts = CommandParts::parse(&format!("{before}{between}./run.sh --now"));
                prop_assert!(parts.scripts.contains("./run.sh"), "{before}{between}");
            }
        }
    }
}
