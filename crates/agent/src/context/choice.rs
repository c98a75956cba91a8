//! Choice of the blocks, tools and skills of a prompt.
//!
//! | block | full | lite | custom | turned off by |
//! |---|---|---|---|---|
//! | identity | in | in | in | – |
//! | bootstrap | in | – | in | – |
//! | tools | in | – | in | no tool is left |
//! | skills | in | – | in | no skill is left |
//! | memory | in | – | in | `include_memory` |
//! | time | in | in | in | – |
//! | runtime | in | – | in | `include_runtime` |
//! | session | in | in | in | – |
//!
//! The blocks up to memory are the stable part of a prompt, the others the dynamic part. The tool
//! lists select the tools in the *request*, under every strategy: a lite prompt describes no tools,
//! but its model can call them.

use holdfast_types::{ContextOptions, PromptStrategy};

/// Block of a prompt, in the prompt's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Block {
    Identity,
    Bootstrap,
    Tools,
    Skills,
    /// Memory search, and the memories that are always included.
    Memory,
    Time,
    Runtime,
    /// Place and participants of the conversation.
    Session,
}

impl Block {
    pub const ALL: [Self; 8] = [
        Self::Identity,
        Self::Bootstrap,
        Self::Tools,
        Self::Skills,
        Self::Memory,
        Self::Time,
        Self::Runtime,
        Self::Session,
    ];

    /// Whether the block belongs to the stable part of the prompt (CTX-005).
    #[must_use]
    pub const fn is_stable(self) -> bool {
        match self {
            Self::Identity | Self::Bootstrap | Self::Tools | Self::Skills | Self::Memory => true,
            Self::Time | Self::Runtime | Self::Session => false,
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Blocks(u8);

impl Blocks {
    #[must_use]
    pub const fn contains(self, block: Block) -> bool {
        self.0 & block.bit() != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Block> {
        Block::ALL.into_iter().filter(move |block| self.contains(*block))
    }
}

impl FromIterator<Block> for Blocks {
    fn from_iter<I: IntoIterator<Item = Block>>(blocks: I) -> Self {
        Self(blocks.into_iter().fold(0, |bits, block| bits | block.bit()))
    }
}

/// Tools and skills that policy allows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Available<'a> {
    pub tools: &'a [&'a str],
    pub skills: &'a [&'a str],
    /// The agent's own allow-list of skills; `None` is all (CTX-014).
    pub skills_filter: Option<&'a [String]>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptContents<'a> {
    /// Tools of the request, in the given order.
    pub tools: Vec<&'a str>,
    /// Skills in the prompt, in the given order.
    pub skills: Vec<&'a str>,
    pub blocks: Blocks,
    /// Requested names that do not exist, tools before skills, to report to the agent's owner.
    pub unknown: Vec<&'a str>,
}

/// Applies the options to the available tools and skills.
#[must_use]
pub fn choose<'a>(options: &'a ContextOptions, available: &Available<'a>) -> PromptContents<'a> {
    let is_lite = options.strategy == PromptStrategy::Lite;
    let tools = Filter { only: &options.include_tools, without: &options.exclude_tools };
    let skills = Filter { only: &options.include_skills, without: &options.exclude_skills };

    let mut unknown = Vec::new();
    let chosen_tools = tools.pick(available.tools, None, &mut unknown);
    let mut chosen_skills = skills.pick(available.skills, available.skills_filter, &mut unknown);
    if is_lite {
        chosen_skills.clear();
    }
    let is_in = |block: &Block| match block {
        Block::Identity | Block::Time | Block::Session => true,
        Block::Bootstrap => !is_lite,
        Block::Tools => !is_lite && !chosen_tools.is_empty(),
        Block::Skills => !chosen_skills.is_empty(),
        Block::Memory => options.include_memory.unwrap_or(!is_lite),
        Block::Runtime => options.include_runtime.unwrap_or(!is_lite),
    };
    let blocks = Block::ALL.into_iter().filter(is_in).collect();
    PromptContents { tools: chosen_tools, skills: chosen_skills, blocks, unknown }
}

/// Whether to recommend skills for a message: the agent enables it, no skills were chosen by name,
/// and the prompt has skills (CTX-008).
#[must_use]
pub fn wants_recommendations(
    is_enabled: bool,
    options: &ContextOptions,
    available: &Available<'_>,
) -> bool {
    is_enabled
        && options.strategy != PromptStrategy::Lite
        && options.include_skills.is_none()
        && available.skills_filter.is_none()
        && !available.skills.is_empty()
}

struct Filter<'o> {
    only: &'o Option<Vec<String>>,
    without: &'o Option<Vec<String>>,
}

impl<'o> Filter<'o> {
    fn pick<'a>(
        &self,
        names: &[&'a str],
        also_only: Option<&[String]>,
        unknown: &mut Vec<&'a str>,
    ) -> Vec<&'a str>
    where
        'o: 'a,
    {
        let lists = |list: Option<&[String]>, name: &str| {
            list.is_none_or(|list| list.iter().any(|listed| listed == name))
        };
        let is_excluded =
            |name: &str| self.without.as_ref().is_some_and(|list| list.iter().any(|l| l == name));
        for listed in self.only.iter().flatten() {
            if !names.contains(&listed.as_str()) {
                unknown.push(listed);
            }
        }
        let is_in = |name: &&&str| {
            lists(self.only.as_deref(), name) && lists(also_only, name) && !is_excluded(name)
        };
        names.iter().filter(is_in).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert_eq, proptest};

    use super::*;
    use Block::{Bootstrap, Identity, Memory, Runtime, Session, Skills, Time, Tools};

    const AVAILABLE: Available<'static> = Available {
        tools: &["exec", "read", "write"],
        skills: &["cook", "paint"],
        skills_filter: None,
    };

    fn list(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|&name| name.to_owned()).collect())
    }

    fn blocks(options: &ContextOptions) -> Vec<Block> {
        choose(options, &AVAILABLE).blocks.iter().collect()
    }

    fn of(strategy: PromptStrategy) -> ContextOptions {
        ContextOptions { strategy, ..ContextOptions::default() }
    }

    #[test]
    fn each_strategy_has_its_blocks_in_order() {
        assert_eq!(blocks(&of(PromptStrategy::Full)), Block::ALL);
        assert_eq!(blocks(&of(PromptStrategy::Custom)), Block::ALL);
        assert_eq!(blocks(&of(PromptStrategy::Lite)), [Identity, Time, Session]);
    }

    #[test]
    fn what_changes_from_turn_to_turn_comes_after_what_does_not() {
        let stable: Vec<Block> = Block::ALL.into_iter().filter(|b| b.is_stable()).collect();

        assert_eq!(stable, Block::ALL[..5]);
    }

    #[test]
    fn a_flag_that_is_said_counts_under_every_strategy() {
        for (strategy, said, memory_in) in [
            (PromptStrategy::Full, None, true),
            (PromptStrategy::Full, Some(false), false),
            (PromptStrategy::Full, Some(true), true),
            (PromptStrategy::Custom, None, true),
            (PromptStrategy::Custom, Some(false), false),
            (PromptStrategy::Lite, None, false),
            (PromptStrategy::Lite, Some(true), true),
        ] {
            let options =
                ContextOptions { include_memory: said, include_runtime: said, ..of(strategy) };

            let blocks = choose(&options, &AVAILABLE).blocks;

            assert_eq!(blocks.contains(Memory), memory_in, "{strategy:?} {said:?}");
            assert_eq!(blocks.contains(Runtime), memory_in, "{strategy:?} {said:?}");
        }
    }

    #[test]
    fn each_list_of_names_is_applied_and_exclusion_wins() {
        for (include, exclude, left) in [
            (None, None, vec!["exec", "read", "write"]),
            (list(&["write", "read"]), None, vec!["read", "write"]),
            (None, list(&["exec"]), vec!["read", "write"]),
            (list(&["exec", "read"]), list(&["exec"]), vec!["read"]),
            (list(&[]), None, vec![]),
            (None, list(&[]), vec!["exec", "read", "write"]),
        ] {
            for strategy in [PromptStrategy::Full, PromptStrategy::Custom, PromptStrategy::Lite] {
                let options = ContextOptions {
                    include_tools: include.clone(),
                    exclude_tools: exclude.clone(),
                    ..of(strategy)
                };

                assert_eq!(choose(&options, &AVAILABLE).tools, left, "{options:?}");
            }
        }
        let options = ContextOptions {
            include_skills: list(&["paint", "cook"]),
            exclude_skills: list(&["cook"]),
            ..of(PromptStrategy::Custom)
        };
        assert_eq!(choose(&options, &AVAILABLE).skills, ["paint"]);
    }

    #[test]
    fn a_block_of_nothing_is_left_out() {
        let options = ContextOptions {
            include_tools: list(&[]),
            exclude_skills: list(&["cook", "paint"]),
            ..of(PromptStrategy::Full)
        };

        assert_eq!(blocks(&options), [Identity, Bootstrap, Memory, Time, Runtime, Session]);
        assert!(!blocks(&options).contains(&Tools) && !blocks(&options).contains(&Skills));
    }

    #[test]
    fn the_agents_filter_of_skills_narrows_what_the_message_asks_for() {
        let filter = ["cook".to_owned()];
        let available = Available { skills_filter: Some(&filter), ..AVAILABLE };
        let options =
            ContextOptions { include_skills: list(&["paint", "cook"]), ..of(PromptStrategy::Full) };

        assert_eq!(choose(&options, &available).skills, ["cook"]);
        assert!(choose(&of(PromptStrategy::Lite), &available).skills.is_empty());
    }

    #[test]
    fn names_that_are_not_there_are_told() {
        let options = ContextOptions {
            include_tools: list(&["raed", "read"]),
            include_skills: list(&["sing"]),
            ..of(PromptStrategy::Custom)
        };

        assert_eq!(choose(&options, &AVAILABLE).unknown, ["raed", "sing"]);
    }

    #[test]
    fn skills_are_recommended_unless_someone_chose_them() {
        let filter = ["cook".to_owned()];
        let filtered = Available { skills_filter: Some(&filter), ..AVAILABLE };
        let chosen = ContextOptions { include_skills: list(&["cook"]), ..of(PromptStrategy::Full) };

        assert!(wants_recommendations(true, &of(PromptStrategy::Full), &AVAILABLE));
        assert!(wants_recommendations(true, &of(PromptStrategy::Custom), &AVAILABLE));
        assert!(!wants_recommendations(false, &of(PromptStrategy::Full), &AVAILABLE));
        assert!(!wants_recommendations(true, &of(PromptStrategy::Lite), &AVAILABLE));
        assert!(!wants_recommendations(true, &chosen, &AVAILABLE));
        assert!(!wants_recommendations(true, &of(PromptStrategy::Full), &filtered));
        assert!(!wants_recommendations(true, &of(PromptStrategy::Full), &Available::default()));
    }

    proptest! {
        #[test]
        fn no_choice_offers_what_is_excluded_or_not_available(
            include in prop::option::of(prop::collection::vec("[a-e]", 0..5)),
            exclude in prop::option::of(prop::collection::vec("[a-e]", 0..5)),
        ) {
            let names = ["a", "b", "c", "d"];
            let available = Available { tools: &names, skills: &names, skills_filter: None };
            let options = ContextOptions {
                include_tools: include.clone(),
                exclude_tools: exclude.clone(),
                include_skills: include.clone(),
                exclude_skills: exclude.clone(),
                ..ContextOptions::default()
            };

            let choice = choose(&options, &available);

            prop_assert_eq!(&choice.tools, &choice.skills);
            for name in names {
                let wanted = include.as_ref().is_none_or(|list| list.iter().any(|l| l == name));
                let unwanted = exclude.as_ref().is_some_and(|list| list.iter().any(|l| l == name));
                prop_assert_eq!(choice.tools.contains(&name), wanted && !unwanted);
            }
        }
    }
}
