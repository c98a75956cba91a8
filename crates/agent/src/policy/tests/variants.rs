//! Both tables of nine: the older one's fixed rules as data, and the engine without them (C-04).

use std::sync::Arc;

use holdfast_types::SessionKind;
use serde_json::{Value, json};

use super::settings;
use crate::policy::{
    Catalog, CompiledPolicy, Decision, DecisionSource, Defaults, GROUP_DENY, NATIVE, SANDBOX_DENY,
    SUBAGENT_DENY, Subject, Tool, canonical,
};

/// Rules of the engine without the older table: it restricts subagents only.
const BARE: Defaults =
    Defaults { providers: &[], groups: &[], sandbox: &[], subagents: SUBAGENT_DENY };

fn compiled(defaults: &Defaults, tenant: Value, agent: Value) -> CompiledPolicy {
    let catalog = Arc::new(Catalog::new(NATIVE.map(Tool::native)).0);
    CompiledPolicy::new(catalog, defaults, &settings(tenant), &settings(agent)).unwrap()
}

/// Removed tools, with the number of the layer.
fn removed(compiled: &CompiledPolicy, subject: &Subject) -> Vec<(u8, String)> {
    let view = compiled.view(subject);
    let mut removed: Vec<(u8, String)> = NATIVE
        .iter()
        .filter_map(|tool| match view.decide(tool) {
            Decision::Deny { layer: DecisionSource::Layer(layer), .. } => {
                Some((layer.number(), (*tool).to_owned()))
            }
            Decision::Deny { .. } | Decision::Allow | Decision::NeedApproval { .. } => None,
        })
        .collect();
    removed.sort();
    removed
}

fn of(layer: u8, tools: &str) -> Vec<(u8, String)> {
    let mut list: Vec<_> =
        tools.split_whitespace().map(|tool| (layer, canonical(tool).into_owned())).collect();
    list.sort();
    list.dedup();
    list
}

fn subject(kind: SessionKind, model: &str) -> Subject {
    Subject { model: model.parse().ok(), is_owner: true, ..Subject::new(kind) }
}

#[test]
fn the_fixed_rules_hold_as_their_table_says() {
    use SessionKind::{Api, Cron, Dm, Global, Group, Heartbeat, Main, Subagent, Topic, Work};
    const GROUP: &str = "bash exec write edit apply_patch sessions_spawn cron";
    const SANDBOX: &str = "bash exec write edit apply_patch";
    const SUBAGENT: &str = "sessions_list sessions_history sessions_send sessions_spawn gateway \
        agents_list session_status cron memory_search memory_get message";

    for (kind, model, mode, layer, tools) in [
        (Main, "", "off", 0, ""),
        (Main, "", "isolated", 0, ""),
        (Dm, "openai:gpt-5", "isolated", 0, ""),
        (Api, "anthropic:claude", "isolated", 0, ""),
        (Heartbeat, "", "isolated", 0, ""),
        (Work, "", "isolated", 0, ""),
        (Global, "", "isolated", 0, ""),
        (Main, "ollama:qwen3:4b", "off", 4, "image canvas"),
        (Main, "google:gemini-3", "off", 0, ""),
        (Main, "openai:gpt-3.5-turbo", "off", 4, "browser canvas"),
        (Main, "azure:my-GPT-3.5", "off", 4, "browser canvas"),
        (Group, "", "isolated", 7, GROUP),
        (Topic, "", "isolated", 7, GROUP),
        (Main, "", "restricted", 8, SANDBOX),
        (Subagent, "", "isolated", 9, SUBAGENT),
        (Cron, "", "isolated", 9, SUBAGENT),
    ] {
        let tenant = json!({ "sandbox_mode": mode });
        let compiled = compiled(&Defaults::shipped(), tenant, json!({}));
        let removed = removed(&compiled, &subject(kind, model));
        assert_eq!(removed, of(layer, tools), "{kind:?} {model} {mode}");
    }
}

#[test]
fn the_fixed_rules_add_up() {
    let tenant = json!({"deny": ["tts"], "sandbox_mode": "restricted"});
    let compiled = compiled(&Defaults::shipped(), tenant, json!({"deny": ["nodes"]}));
    let group = subject(SessionKind::Group, "ollama:gpt-3.5");

    let mut expected = of(3, "tts");
    expected.extend(of(4, "browser canvas image"));
    expected.extend(of(5, "nodes"));
    expected.extend(of(7, "exec write edit apply_patch sessions_spawn cron"));
    assert_eq!(removed(&compiled, &group), expected);
}

#[test]
fn the_bare_engine_removes_what_is_written_and_holds_back_subagents_alone() {
    let bare = compiled(&BARE, json!({"sandbox_mode": "restricted"}), json!({}));
    let plain = |kind| subject(kind, "ollama:qwen3");

    assert!(removed(&bare, &plain(SessionKind::Group)).is_empty());
    assert_eq!(removed(&bare, &plain(SessionKind::Subagent)), of(9, &SUBAGENT_DENY.join(" ")));
}

#[test]
fn each_of_the_ten_fields_of_the_engine_has_its_layer() {
    let ui = json!({"deny": ["group:ui"]});
    let main = subject(SessionKind::Main, "openai:gpt-5");
    let subagent = subject(SessionKind::Subagent, "openai:gpt-5");
    let all_but = |kept: &str| -> String {
        let kept: Vec<&str> = kept.split_whitespace().collect();
        NATIVE.iter().copied().filter(|tool| !kept.contains(tool)).collect::<Vec<_>>().join(" ")
    };
    for (tenant, agent, layer, tools) in [
        (json!({"profile": "minimal"}), json!({}), 1, all_but("session_status")),
        (
            json!({"profile": "minimal", "also_allow": ["tts"]}),
            json!({}),
            1,
            all_but("session_status tts"),
        ),
        (
            json!({"by_provider": {"openai": {"profile": "minimal", "also_allow": ["tts"]}}}),
            json!({}),
            2,
            all_but("session_status tts"),
        ),
        (ui.clone(), json!({}), 3, "browser canvas".into()),
        (json!({"allow": ["read"]}), json!({}), 3, all_but("read")),
        (json!({"by_provider": {"openai": ui}}), json!({}), 4, "browser canvas".into()),
        (json!({}), ui.clone(), 5, "browser canvas".into()),
        (json!({}), json!({"allow": ["read"]}), 5, all_but("read")),
        (json!({}), json!({"by_provider": {"openai": ui}}), 6, "browser canvas".into()),
        (json!({"chats": [{"policy": ui}]}), json!({}), 7, "browser canvas".into()),
        (json!({}), json!({"chats": [{"kind": "main", "policy": ui}]}), 7, "browser canvas".into()),
        (json!({"sandbox": ui, "sandbox_mode": "isolated"}), json!({}), 8, "browser canvas".into()),
    ] {
        let shown = format!("{tenant} {agent}");
        assert_eq!(removed(&compiled(&BARE, tenant, agent), &main), of(layer, &tools), "{shown}");
    }
    let own = compiled(&BARE, json!({"subagents": ui}), json!({}));
    let mut expected = of(9, &SUBAGENT_DENY.join(" "));
    expected.extend(of(9, "browser canvas"));
    expected.sort();
    assert_eq!(removed(&own, &subagent), expected);
}

#[test]
fn the_default_lists_are_those_of_the_table() {
    let named = |text: &str| {
        let mut names: Vec<_> =
            text.split_whitespace().map(|tool| canonical(tool).into_owned()).collect();
        names.sort();
        names.dedup();
        names
    };
    for (list, table) in [
        (GROUP_DENY, "bash exec write edit apply_patch sessions_spawn cron"),
        (SANDBOX_DENY, "bash exec write edit apply_patch"),
        (
            SUBAGENT_DENY,
            "sessions_list sessions_history sessions_send sessions_spawn gateway agents_list \
             session_status cron memory_search memory_get message",
        ),
    ] {
        assert_eq!(named(&list.join(" ")), named(table));
    }
}

#[test]
fn the_older_order_of_asking_gives_the_same_tools() {
    let tenant = json!({"profile": "coding", "deny": ["process"], "allow": ["group:fs", "exec"],
        "sandbox_mode": "restricted"});
    let compiled = compiled(&Defaults::shipped(), tenant, json!({}));
    let group = subject(SessionKind::Group, "ollama:x");

    // The older table, read as sets: profile, provider, model, global deny then allow, group,
    // sandbox.
    let mut left: Vec<&str> = NATIVE.to_vec();
    let coding = [
        "read",
        "write",
        "edit",
        "apply_patch",
        "exec",
        "process",
        "sessions_spawn",
        "sessions_send",
        "sessions_list",
        "sessions_history",
        "session_status",
        "agents_list",
        "memory_search",
        "memory_get",
        "image",
    ];
    left.retain(|tool| coding.contains(tool));
    left.retain(|tool| !["image", "canvas"].contains(tool));
    left.retain(|tool| *tool != "process");
    left.retain(|tool| ["read", "write", "edit", "apply_patch", "exec"].contains(tool));
    left.retain(|tool| !GROUP_DENY.contains(tool));
    left.retain(|tool| !SANDBOX_DENY.contains(tool));

    assert_eq!(compiled.view(&group).offered(), left);
}
