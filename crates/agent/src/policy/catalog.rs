//! Catalogue of all tools.
//!
//! Tools of MCP servers are included, so that all layers apply to them (spec POL-008).

use std::collections::HashMap;

use super::{
    entry::{Entry, Mode},
    error::{Warning, short},
    group::Members,
    name::{aliases_of, canonical, is_known, principal_of},
    set::ToolSet,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Native,
    /// Name of the MCP server.
    Mcp(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    pub name: String,
    pub origin: Origin,
}

impl Tool {
    /// Creates one of the product's own tools.
    #[must_use]
    pub fn native(name: &str) -> Self {
        Self { name: name.to_owned(), origin: Origin::Native }
    }
}

/// All tools, sorted by canonical name (spec TOL-005).
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<CatalogEntry>,
    places: HashMap<String, usize>,
    core: ToolSet,
}

#[derive(Debug)]
struct CatalogEntry {
    canonical: String,
    tool: Tool,
}

impl Catalog {
    /// Builds a catalogue and returns warnings about tools that were left out.
    ///
    /// A name belongs to one tool, in all spellings and aliases: a server cannot add a second
    /// `exec` by calling it `Bash`.
    #[must_use]
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> (Self, Vec<Warning>) {
        let (mut listed, mut warnings): (Vec<CatalogEntry>, _) = (Vec::new(), Vec::new());
        for tool in tools {
            let canonical = canonical(&tool.name).into_owned();
            if !matches!(Entry::parse(&canonical, ""), Ok(Entry::Name(_))) {
                warnings.push(Warning::Unnameable { tool: short(&tool.name) });
            } else if tool.origin != Origin::Native && is_known(&canonical) {
                warnings.push(Warning::Clash { tool: tool.name });
            } else {
                listed.push(CatalogEntry { canonical, tool });
            }
        }
        // Stable sort: of two tools with the same name the first stays, the product's own before
        // others.
        listed.sort_by(|a, b| {
            let is_foreign = |listed: &CatalogEntry| listed.tool.origin != Origin::Native;
            (&a.canonical, is_foreign(a)).cmp(&(&b.canonical, is_foreign(b)))
        });
        let mut tools: Vec<CatalogEntry> = Vec::with_capacity(listed.len());
        for next in listed {
            match tools.last() {
                Some(last) if last.canonical == next.canonical => {
                    warnings.push(Warning::Clash { tool: next.tool.name });
                }
                Some(_) | None => tools.push(next),
            }
        }
        let places =
            tools.iter().enumerate().map(|(at, tool)| (tool.canonical.clone(), at)).collect();
        let mut core = ToolSet::empty(tools.len());
        for (at, listed) in tools.iter().enumerate() {
            if listed.tool.origin == Origin::Native {
                core.insert(at);
            }
        }
        (Self { tools, places, core }, warnings)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Finds a tool by its name or an alias.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Tool> {
        self.position(name).and_then(|at| self.tools.get(at)).map(|listed| &listed.tool)
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.places.get(canonical(name).as_ref()).copied()
    }

    pub(crate) fn name(&self, at: usize) -> &str {
        self.tools.get(at).map_or("", |listed| &listed.canonical)
    }

    pub(crate) fn registered(&self, at: usize) -> &str {
        self.tools.get(at).map_or("", |listed| &listed.tool.name)
    }

    pub(crate) const fn core(&self) -> &ToolSet {
        &self.core
    }

    /// Returns the tools that an entry covers.
    pub(crate) fn covered(&self, entry: &Entry, mode: Mode) -> ToolSet {
        let mut set = ToolSet::empty(self.tools.len());
        if let (Entry::Name(name), Mode::Allow) = (entry, mode) {
            if let Some(at) = self.places.get(name) {
                set.insert(*at);
            }
            return set;
        }
        for (at, listed) in self.tools.iter().enumerate() {
            let with_principal = mode == Mode::Deny || matches!(entry, Entry::Group { .. });
            let principal = principal_of(&listed.canonical).filter(|_| with_principal);
            if entry.covers(&listed.canonical, &listed.tool.origin, mode)
                || principal.is_some_and(|name| entry.covers(name, &Origin::Native, mode))
            {
                set.insert(at);
            }
        }
        set
    }
}

impl Entry {
    fn covers(&self, tool: &str, origin: &Origin, mode: Mode) -> bool {
        match self {
            Self::All => true,
            Self::Name(name) => name == tool,
            // An allow entry matches canonical names only, a deny entry aliases too.
            Self::Glob(glob) => {
                super::glob::matches(glob, tool)
                    || (mode == Mode::Deny
                        && *origin == Origin::Native
                        && aliases_of(tool).any(|alias| super::glob::matches(glob, alias)))
            }
            Self::Group { members, .. } => match (members, origin) {
                (Members::Fixed(tools), Origin::Native) => tools.contains(&tool),
                (Members::Native, Origin::Native) | (Members::Mcp, Origin::Mcp(_)) => true,
                (Members::Server(id), Origin::Mcp(server)) => *id == server.to_lowercase(),
                (
                    Members::Fixed(_)
                    | Members::Native
                    | Members::Mcp
                    | Members::Server(_)
                    | Members::Unknown,
                    _,
                ) => false,
            },
        }
    }
}
