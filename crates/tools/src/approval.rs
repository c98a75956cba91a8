//! Whether a call needs a person's word.

/// What a tool says of a call before it is made; see [`Tool::approval`](crate::Tool::approval).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Approval {
    /// It is made without asking.
    #[default]
    Never,
    /// A person is asked first, and the turn waits for the answer.
    Ask {
        /// What exactly is approved, in one form for one thing: a command with its folder and
        /// its network, say. A call whose subject differs in a byte is another one.
        subject: String,
        /// The same in a line, for the person who is asked.
        summary: String,
        /// What "always" would allow from then on: of `exec`, commands as its allow-list has them
        /// (`git log *`); of any other tool, calls of which it says the same pattern. `None`: only
        /// this very subject.
        pattern: Option<String>,
    },
    /// It is not made, and the model is told why.
    Deny(String),
}
