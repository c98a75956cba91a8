//! Approval that a tool call needs.

/// Approval that a tool call needs; see [`Tool::approval`](crate::Tool::approval).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Approval {
    /// The call is made without approval.
    #[default]
    Never,
    /// A person is asked first, and the turn waits for the decision.
    Ask {
        /// Exactly what is approved, in a canonical form: for example a command with its folder and
        /// its network access. A call whose subject differs in a byte needs its own approval.
        subject: String,
        /// Summary on one line, for the person who decides.
        summary: String,
        /// Calls that "always" would allow from then on. For `exec`: commands in the form of its
        /// allow-list (`git log *`). For other tools: calls with the same pattern. `None`: only
        /// this exact subject.
        pattern: Option<String>,
    },
    /// The call is not made. The model gets this reason.
    Deny(String),
}
