//! Thinking that a model writes into its text, separated from it (spec SYS-024).
//!
//! | mark | meaning |
//! |---|---|
//! | `<think>…</think>`, also `thinking`, `thought` | thinking |
//! | `<final>`, `</final>` | removed; if the model is told to mark its answer and does so, everything outside is thinking |
//! | either in code (between backticks) | text about the mark |
//!
//! A stream may be cut anywhere, so a possible beginning of a mark is held back until it is
//! decided.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Thought(String),
}

/// Kind of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Think,
    EndThink,
    Final,
    EndFinal,
}

const MARKS: [(&str, Mark); 8] = [
    ("<think>", Mark::Think),
    ("<thinking>", Mark::Think),
    ("<thought>", Mark::Think),
    ("</think>", Mark::EndThink),
    ("</thinking>", Mark::EndThink),
    ("</thought>", Mark::EndThink),
    ("<final>", Mark::Final),
    ("</final>", Mark::EndFinal),
];

/// Number of backticks that open a code block of several lines.
const FENCE: usize = 3;

/// Separates text from thinking as they arrive.
#[derive(Debug, Default)]
pub(crate) struct ThinkingMarks {
    /// Whether the model is told to put its answer into `<final>`.
    is_told: bool,
    is_thinking: bool,
    is_final: bool,
    is_marked: bool,
    /// Whether only line breaks have followed the last mark: they are removed with it.
    is_after_mark: bool,
    was_final: bool,
    /// Possible beginning of a mark.
    pending: String,
    /// For models that are told to mark: text, unless a `<final>` follows.
    undecided: String,
    /// Number of backticks that opened the current code.
    code: Option<usize>,
    /// Number of backticks that were just written.
    ticks: usize,
    out: Vec<Piece>,
}

impl ThinkingMarks {
    pub(crate) fn new(is_told: AnswerMarking) -> Self {
        Self { is_told: is_told == AnswerMarking::Yes, ..Self::default() }
    }

    /// Whether any mark was seen.
    pub(crate) const fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Adds more of the model's output.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Piece> {
        for c in text.chars() {
            self.take(c);
        }
        std::mem::take(&mut self.out)
    }

    /// Ends the output and returns what is left.
    pub(crate) fn end(&mut self) -> Vec<Piece> {
        self.release();
        let undecided = std::mem::take(&mut self.undecided);
        match self.was_final {
            true => self.put(Piece::Thought(undecided)),
            false => self.put(Piece::Text(undecided)),
        }
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, c: char) {
        if self.pending.is_empty() {
            match c == '<' && !self.is_in_code() {
                true => self.pending.push(c),
                false => self.say(c),
            }
            return;
        }
        self.pending.push(c);
        match self.match_mark() {
            MarkMatch::Mark(mark) => {
                self.pending.clear();
                self.apply(mark);
            }
            MarkMatch::Perhaps => {}
            // This character may begin another mark.
            MarkMatch::None if c == '<' => {
                self.pending.pop();
                self.release();
                self.pending.push(c);
            }
            MarkMatch::None => self.release(),
        }
    }

    fn match_mark(&self) -> MarkMatch {
        let held = self.pending.to_ascii_lowercase();
        let is_near = |mark: Mark| !self.is_thinking || mark == Mark::EndThink;
        let mut found = MarkMatch::None;
        for (word, mark) in MARKS.iter().filter(|(_, mark)| is_near(*mark)) {
            if *word == held {
                return MarkMatch::Mark(*mark);
            }
            if word.starts_with(&held) {
                found = MarkMatch::Perhaps;
            }
        }
        found
    }

    fn apply(&mut self, mark: Mark) {
        (self.is_marked, self.is_after_mark) = (true, true);
        match mark {
            Mark::Think => self.is_thinking = true,
            // A closing mark without an opening one is only removed.
            Mark::EndThink => self.is_thinking = false,
            Mark::Final => {
                (self.is_final, self.was_final, self.code) = (true, true, None);
                let before = std::mem::take(&mut self.undecided);
                self.put(Piece::Thought(before));
            }
            Mark::EndFinal => self.is_final = false,
        }
    }

    fn release(&mut self) {
        for c in std::mem::take(&mut self.pending).chars() {
            self.say(c);
        }
    }

    fn say(&mut self, c: char) {
        if self.is_thinking {
            self.put(Piece::Thought(c.to_string()));
            return;
        }
        if std::mem::take(&mut self.is_after_mark) && matches!(c, '\n' | '\r' | ' ') {
            self.is_after_mark = true;
            return;
        }
        match c {
            '`' => self.ticks += 1,
            _ => {
                self.settle();
                // A line break closes unclosed inline code.
                let is_inline = self.code.is_some_and(|ticks| ticks < FENCE);
                if c == '\n' && is_inline {
                    self.code = None;
                }
            }
        }
        if self.is_told && !self.is_final {
            self.undecided.push(c);
        } else {
            self.put(Piece::Text(c.to_string()));
        }
    }

    fn is_in_code(&mut self) -> bool {
        if self.is_thinking {
            return false;
        }
        self.settle();
        self.code.is_some()
    }

    /// Decides what the backticks just written open or close.
    fn settle(&mut self) {
        let ticks = std::mem::take(&mut self.ticks);
        self.code = match self.code {
            code if ticks == 0 => code,
            None => Some(ticks),
            Some(open) if ticks == open || (open >= FENCE && ticks > open) => None,
            open => open,
        };
    }

    fn put(&mut self, piece: Piece) {
        match (self.out.last_mut(), piece) {
            (Some(Piece::Text(text)), Piece::Text(more))
            | (Some(Piece::Thought(text)), Piece::Thought(more)) => text.push_str(&more),
            (_, Piece::Text(text) | Piece::Thought(text)) if text.is_empty() => {}
            (_, piece) => self.out.push(piece),
        }
    }
}

/// Whether a model is told to mark its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerMarking {
    Yes,
    No,
}

enum MarkMatch {
    Mark(Mark),
    Perhaps,
    None,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the text and the thinking in these chunks.
    fn read<'t>(
        told: AnswerMarking,
        chunks: impl IntoIterator<Item = &'t str>,
    ) -> (String, String) {
        let mut marks = ThinkingMarks::new(told);
        let mut pieces = Vec::new();
        for chunk in chunks {
            pieces.extend(marks.push(chunk));
        }
        pieces.extend(marks.end());
        let (mut text, mut thoughts) = (String::new(), String::new());
        for piece in pieces {
            match piece {
                Piece::Text(more) => text.push_str(&more),
                Piece::Thought(more) => thoughts.push_str(&more),
            }
        }
        (text, thoughts)
    }

    /// Checks that the result does not depend on where the stream is cut.
    fn cut_everywhere(told: AnswerMarking, all: &str) -> (String, String) {
        let whole = read(told, [all]);
        for (at, _) in all.char_indices() {
            assert_eq!(read(told, [&all[..at], &all[at..]]), whole, "cut at {at}");
        }
        let each: Vec<String> = all.chars().map(String::from).collect();
        assert_eq!(read(told, each.iter().map(String::as_str)), whole);
        whole
    }

    #[test]
    fn thinking_in_a_text_is_a_thought_wherever_the_stream_is_cut() {
        for (all, text, thoughts) in [
            ("<think>\nhm, 語\n</think>\n\nYes.", "Yes.", "\nhm, 語\n"),
            ("<THINK>a</think><final>b</final>", "b", "a"),
            ("one <thinking>a<b</thinking>two", "one two", "a<b"),
            ("a <thin <think>b</think>c", "a <thin c", "b"),
            ("<<think>b</think>c", "<c", "b"),
            ("<think>never ended", "", "never ended"),
            ("no thought </think>at all", "no thought at all", ""),
            ("2 < 3 and <b>bold</b> <thi", "2 < 3 and <b>bold</b> <thi", ""),
        ] {
            let wanted = (text.to_owned(), thoughts.to_owned());
            assert_eq!(cut_everywhere(AnswerMarking::No, all), wanted, "{all}");
        }
    }

    #[test]
    fn marks_that_are_spoken_of_stay() {
        for text in [
            "write `<think>` and `</think>` around it",
            "```xml\n<final>\n</final>\n```\nso",
            "````\n```\n<think>\n````",
        ] {
            assert_eq!(
                cut_everywhere(AnswerMarking::No, text),
                (text.to_owned(), String::new()),
                "{text}"
            );
        }
        // A line break closes unclosed inline code.
        let open = cut_everywhere(AnswerMarking::No, "it`s\n<think>a</think>b");
        assert_eq!(open, ("it`s\nb".into(), "a".into()));
    }

    #[test]
    fn of_a_model_that_is_told_only_what_is_marked_is_shown_if_it_marks_anything() {
        let told = |all: &str| cut_everywhere(AnswerMarking::Yes, all);

        assert_eq!(told("hm <final>\nYes.</final> done"), ("Yes.".into(), "hm done".into()));
        assert_eq!(told("<think>a</think>Yes."), ("Yes.".into(), "a".into()));
        let open = "<think>a</think>Well. <final>Yes.";
        assert_eq!(told(open), ("Yes.".into(), "aWell. ".into()));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_but_marks_and_blanks(text in "[a-c<>/`\n ]{0,40}|(<think>|</think>|<final>|[a-z`<\n]){0,12}") {
            let whole = read(AnswerMarking::No, [text.as_str()]);
            let each: Vec<String> = text.chars().map(String::from).collect();
            prop_assert_eq!(&read(AnswerMarking::No, each.iter().map(String::as_str)), &whole);
            prop_assert!(whole.0.len() + whole.1.len() <= text.len());
            if !text.contains('<') {
                prop_assert_eq!(whole.0, text);
            }
        }
    }
}
