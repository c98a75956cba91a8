//! What a turn may use that is not an ordinary one: of tools, and of files.

use crate::{files::Scope, turn::Turn};

impl Turn<'_> {
    /// Where its file tools may look and change.
    pub(crate) fn scope(&self) -> Scope {
        if self.is_flushing() { Self::flush_scope() } else { Scope::default() }
    }

    /// Lists of tools, each of which narrows what it has.
    pub(crate) fn bounds(&self) -> Vec<Vec<String>> {
        let mut lists = Vec::new();
        if self.is_flushing() {
            lists.push(Self::flush_tools());
        }
        lists
    }
}
