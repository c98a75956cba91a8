//! Properties of every policy.

use std::collections::BTreeSet;

use holdfast_types::SessionKind;
use proptest::prelude::*;

use super::catalog;
use crate::policy::{
    ChatRule, CompiledPolicy, Decision, Defaults, Policy, Profile, SandboxMode, Settings, Subject,
    VisibilityFilter,
};

const ENTRIES: [&str; 26] = [
    "exec",
    "bash",
    "write",
    "read_file",
    "edit",
    "apply-patch",
    "cron",
    "web_*",
    "*_search",
    "group:fs",
    "group:runtime",
    "group:sessions",
    "group:native",
    "group:mcp:github",
    "group:mcp",
    "group:mcp:jira",
    "group:nothing",
    "jira_search",
    "mcp_*",
    "*",
    "nonsense",
    "spawn",
    "message",
    "append_file",
    "image",
    "ba*",
];

fn entry() -> impl Strategy<Value = String> {
    proptest::sample::select(ENTRIES.to_vec()).prop_map(str::to_owned)
}

fn list() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(entry(), 0..4)
}

fn profile() -> impl Strategy<Value = Option<Profile>> {
    proptest::sample::select(vec![
        None,
        Some(Profile::Minimal),
        Some(Profile::Coding),
        Some(Profile::Messaging),
        Some(Profile::Full),
    ])
}

fn policy() -> impl Strategy<Value = Policy> {
    (profile(), proptest::option::of(list()), list(), list())
        .prop_map(|(profile, allow, also_allow, deny)| Policy { profile, allow, also_allow, deny })
}

fn mode() -> impl Strategy<Value = SandboxMode> {
    use SandboxMode::{Isolated, Off, Pod, Restricted};
    proptest::sample::select(vec![Off, Isolated, Pod, Restricted])
}

fn settings() -> impl Strategy<Value = Settings> {
    let by_model = proptest::sample::select(vec!["openai", "openai/gpt*", "*", "ollama"]);
    (
        policy(),
        proptest::option::of(list()),
        proptest::collection::btree_map(by_model.prop_map(str::to_owned), policy(), 0..3),
        proptest::collection::vec(policy(), 0..2),
        policy(),
        policy(),
        proptest::collection::vec((list(), proptest::option::of(Just("admin"))), 0..2),
        proptest::option::of(mode()),
    )
        .prop_map(|(own, tools, by_provider, chats, sandbox, subagents, filters, mode)| {
            Settings {
                profile: own.profile,
                allow: own.allow,
                also_allow: own.also_allow,
                deny: own.deny,
                tools,
                by_provider,
                chats: chats
                    .into_iter()
                    .map(|policy| ChatRule { policy, ..ChatRule::default() })
                    .collect(),
                sandbox_mode: mode,
                sandbox,
                subagents,
                visibility: filters
                    .into_iter()
                    .map(|(tools, role)| VisibilityFilter {
                        tools,
                        roles: role.map(|role| vec![role.to_owned()]),
                        ..VisibilityFilter::default()
                    })
                    .collect(),
                ..Settings::default()
            }
        })
}

fn subject() -> impl Strategy<Value = Subject> {
    use SessionKind::{Cron, Dm, Group, Main, Subagent, Topic};
    (
        proptest::sample::select(vec![Main, Dm, Group, Topic, Cron, Subagent]),
        proptest::sample::select(vec!["", "openai:gpt-5", "ollama:x", "google:gpt-3.5"]),
        proptest::collection::vec(list(), 0..2),
        proptest::option::of(list()),
    )
        .prop_map(|(kind, model, messages, toolbox)| Subject {
            model: model.parse().ok(),
            messages,
            toolbox,
            ..Subject::new(kind)
        })
}

fn compile(tenant: &Settings, agent: &Settings) -> CompiledPolicy {
    CompiledPolicy::new(catalog(), &Defaults::shipped(), tenant, agent).unwrap()
}

fn offered(compiled: &CompiledPolicy, subject: &Subject) -> BTreeSet<String> {
    compiled.view(subject).offered().into_iter().map(str::to_owned).collect()
}

proptest! {
    #[test]
    fn a_denial_anywhere_only_takes_away(
        tenant in settings(), agent in settings(), subject in subject(), denied in entry(),
    ) {
        let before = offered(&compile(&tenant, &agent), &subject);
        let more = |at: &mut Vec<String>| at.push(denied.clone());
        let mut all = Vec::new();
        for place in 0..5 {
            let (mut tenant, mut agent) = (tenant.clone(), agent.clone());
            match place {
                0 => more(&mut tenant.deny),
                1 => more(&mut agent.deny),
                2 => more(&mut tenant.sandbox.deny),
                3 => more(&mut tenant.subagents.deny),
                _ => agent.chats.push(ChatRule {
                    policy: Policy { deny: vec![denied.clone()], ..Policy::default() },
                    ..ChatRule::default()
                }),
            }
            all.push(offered(&compile(&tenant, &agent), &subject));
        }

        for after in all {
            prop_assert!(after.is_subset(&before), "{:?}", &after - &before);
        }
    }

    #[test]
    fn a_policy_is_the_same_when_it_was_stored_and_each_layer_of_it_only_takes_away(
        tenant in settings(), agent in settings(), subject in subject(), denied in list(),
    ) {
        let stored = |settings: &Settings| {
            Settings::parse(&serde_json::to_string(settings).unwrap()).unwrap()
        };
        let (read, own) = (stored(&tenant), stored(&agent));
        let stricter = Settings { deny: [own.deny.clone(), denied].concat(), ..own.clone() };
        // An agent without settings of its own has exactly the tools that its tenant leaves.
        let silent = Settings { profile: None, also_allow: Vec::new(), ..own.clone() };
        let silent = Settings {
            by_provider: silent.by_provider.into_iter().map(|(key, policy)| {
                (key, Policy { profile: None, also_allow: Vec::new(), ..policy })
            }).collect(),
            chats: Vec::new(),
            subagents: Policy { also_allow: Vec::new(), ..silent.subagents },
            ..silent
        };
        let left = |agent: &Settings| offered(&compile(&read, agent), &subject);

        prop_assert_eq!((&read, &own), (&tenant, &agent));
        prop_assert!(left(&stored(&stricter)).is_subset(&left(&own)));
        prop_assert!(left(&silent).is_subset(&left(&Settings::default())));
    }

    #[test]
    fn what_is_denied_is_not_offered_whatever_is_allowed(
        tenant in settings(), agent in settings(), subject in subject(), denied in entry(),
    ) {
        let mut tenant = tenant;
        tenant.deny.push(denied.clone());
        let alone = Settings { deny: vec![denied], ..Settings::default() };
        let all = offered(&compile(&Settings::default(), &Settings::default()), &open());
        let spared = offered(&compile(&alone, &Settings::default()), &open());
        let left = offered(&compile(&tenant, &agent), &subject);

        prop_assert!(left.is_disjoint(&(&all - &spared)));
    }

    #[test]
    fn a_list_that_comes_with_the_turn_only_takes_away(
        tenant in settings(), agent in settings(), subject in subject(), narrower in list(),
    ) {
        let compiled = compile(&tenant, &agent);
        let before = offered(&compiled, &subject);
        let message = Subject {
            messages: [subject.messages.clone(), vec![narrower.clone()]].concat(),
            ..subject.clone()
        };
        let bundle = Subject { bundle: Some(narrower), ..subject };

        prop_assert!(offered(&compiled, &message).is_subset(&before));
        prop_assert!(offered(&compiled, &bundle).is_subset(&before));
    }

    #[test]
    fn the_order_in_which_a_list_is_written_changes_nothing(
        tenant in settings(), agent in settings(), subject in subject(),
    ) {
        let turned = |settings: &Settings| {
            let mut settings = settings.clone();
            let policies = settings.by_provider.values_mut();
            let policies = policies.chain([&mut settings.sandbox, &mut settings.subagents]);
            for policy in policies.chain(settings.chats.iter_mut().map(|rule| &mut rule.policy)) {
                policy.deny.reverse();
                policy.also_allow.reverse();
                policy.allow.iter_mut().for_each(|list| list.reverse());
            }
            settings.deny.reverse();
            settings.also_allow.reverse();
            settings.allow.iter_mut().chain(settings.tools.iter_mut()).for_each(|l| l.reverse());
            settings.chats.reverse();
            settings.visibility.reverse();
            settings
        };

        prop_assert_eq!(
            offered(&compile(&tenant, &agent), &subject),
            offered(&compile(&turned(&tenant), &turned(&agent)), &subject)
        );
    }

    #[test]
    fn what_is_offered_decided_and_explained_agrees(
        tenant in settings(), agent in settings(), subject in subject(),
    ) {
        let compiled = compile(&tenant, &agent);
        let view = compiled.view(&subject);
        let offered = view.offered();
        let mut sorted = offered.clone();
        sorted.sort_unstable();

        prop_assert_eq!(&offered, &sorted);
        prop_assert_eq!(view.explain_all().len(), catalog().len());
        for told in view.explain_all() {
            let decision = view.decide(&told.tool);
            let is_denied = matches!(decision, Decision::Deny { .. });
            prop_assert_eq!(told.decision == "deny", is_denied);
            prop_assert_eq!(offered.contains(&told.tool.as_str()), !is_denied);
            prop_assert_eq!(told.layer.is_some(), is_denied);
            if let Decision::Deny { rule, .. } = decision {
                prop_assert!(!told.reason.contains("``"), "no entry: {rule:?}");
            }
        }
    }

    #[test]
    fn an_agent_without_a_profile_or_liftings_has_no_more_than_its_tenant(
        tenant in settings(), agent in settings(), subject in subject(),
    ) {
        let mut agent = agent;
        agent.profile = None;
        agent.also_allow.clear();
        agent.subagents.also_allow.clear();
        agent.chats.iter_mut().for_each(|rule| rule.policy.also_allow.clear());
        agent.by_provider.clear();

        let without = offered(&compile(&tenant, &Settings::default()), &subject);
        let with = offered(&compile(&tenant, &agent), &subject);
        prop_assert!(with.is_subset(&without), "{:?}", &with - &without);
    }
}

/// Subject without restrictions by default lists.
fn open() -> Subject {
    Subject { is_owner: true, ..Subject::new(SessionKind::Main) }
}
