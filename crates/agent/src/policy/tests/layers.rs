//! Each layer alone: the tools that it removes, and its explanation.

use holdfast_types::{ModelId, SessionKind};
use serde_json::json;

use super::{catalog, compiled, dm, is_allowed, main, policy, settings, told};
use crate::policy::{
    Catalog, CompiledPolicy, Defaults, Error, Explanation, Origin, SandboxMode, Settings, Subject,
    Tool, Warning,
};

const OPEN: &str = "allow: no layer removes it";

fn model(text: &str) -> Option<ModelId> {
    Some(text.parse().unwrap())
}

#[test]
fn nothing_written_leaves_the_owner_everything() {
    let compiled = policy(json!({}));
    let view = compiled.view(&main());

    assert_eq!(view.offered().len(), catalog().len());
    assert!(compiled.warnings().is_empty(), "{:?}", compiled.warnings());
}

#[test]
fn tools_are_offered_sorted_whatever_order_they_were_registered_in() {
    let names = |compiled: &CompiledPolicy| -> Vec<String> {
        compiled.view(&main()).offered().into_iter().map(str::to_owned).collect()
    };
    let of = |tools: &[&str]| {
        let tools = tools.iter().copied().map(Tool::native);
        let catalog = std::sync::Arc::new(Catalog::new(tools).0);
        let none = Settings::default();
        CompiledPolicy::new(catalog, &Defaults::shipped(), &none, &none).unwrap()
    };

    assert_eq!(names(&of(&["write", "exec", "read"])), ["exec", "read", "write"]);
    assert_eq!(names(&of(&["read", "write", "exec"])), ["exec", "read", "write"]);
}

#[test]
fn a_profile_gives_what_its_table_says_and_also_allow_adds_to_it() {
    for (profile, also, tools) in [
        ("minimal", json!([]), "session_status"),
        (
            "coding",
            json!([]),
            "agents_list append_file apply_patch delete_file edit exec git image list_files \
             memory_get memory_search process read session_status sessions_history sessions_list \
             sessions_send sessions_spawn write",
        ),
        (
            "messaging",
            json!([]),
            "email message session_status sessions_history sessions_list sessions_send",
        ),
        (
            "minimal",
            json!(["web_search", "group:mcp:github", "group:mcp:weather"]),
            "mcp_github_issues mcp_weather_今天 \
            session_status web_search",
        ),
    ] {
        let compiled = policy(json!({"profile": profile, "also_allow": also}));
        let expected: Vec<&str> = tools.split_whitespace().collect();

        assert_eq!(compiled.view(&main()).offered(), expected, "{profile}");
    }
    let full = policy(json!({"profile": "full"}));
    assert_eq!(full.view(&main()).offered().len(), catalog().len());
}

#[test]
fn an_agent_s_profile_replaces_its_tenant_s() {
    let compiled = compiled(json!({"profile": "minimal"}), json!({"profile": "messaging"}));
    let view = compiled.view(&main());

    assert!(is_allowed(&view, "message"));
    assert_eq!(told(&view, "exec"), "1: not in agent.tools.profile = messaging");
}

#[test]
fn each_layer_names_itself_and_the_entry_that_decided() {
    let tenant = json!({
        "profile": "full",
        "deny": ["group:ui"],
        "by_provider": {
            "openai": {"profile": "coding", "deny": ["process"]},
            "openai/gpt-5*": {"deny": ["image"]},
        },
        "chats": [{"channel": "Telegram", "policy": {"deny": ["memory_get"]}}],
        "sandbox": {"deny": ["sessions_list"]},
        "subagents": {"deny": ["read"]},
    });
    let agent = json!({"deny": ["mem*_search"], "by_provider": {"*": {"deny": ["edit"]}}});
    let compiled = compiled(tenant, agent);
    let subject = Subject {
        channel: Some("telegram".into()),
        model: model("openai:gpt-5-mini"),
        ..Subject::new(SessionKind::Subagent)
    };
    let view = compiled.view(&subject);

    for (tool, told_of) in [
        ("cron", "2: not in tools.by_provider[openai].profile = coding"),
        ("canvas", "2: not in tools.by_provider[openai].profile = coding"),
        ("process", "4: denied by `process` in tools.by_provider[openai].deny"),
        ("image", "4: denied by `image` in tools.by_provider[openai/gpt-5*].deny"),
        ("memory_search", "5: denied by `mem*_search` in agent.tools.deny"),
        ("edit", "6: denied by `edit` in agent.tools.by_provider[*].deny"),
        ("memory_get", "7: denied by `memory_get` in tools.chats[0].policy.deny"),
        ("sessions_list", "8: denied by `sessions_list` in tools.sandbox.deny"),
        ("agents_list", "9: denied by `agents_list` in the default list for subagents"),
        ("read", "9: denied by `read` in tools.subagents.deny"),
        ("exec", OPEN),
        ("nothing", "deny: there is no such tool"),
    ] {
        assert_eq!(told(&view, tool), told_of, "{tool}");
    }
    let without_model = compiled.view(&main());
    assert_eq!(told(&without_model, "canvas"), "3: denied by `group:ui` in tools.deny");
    let json = serde_json::to_value(view.explain("edit")).unwrap();
    assert_eq!(
        json,
        json!({
            "tool": "edit", "decision": "deny", "layer": "agent_provider", "number": 6,
            "entry": "edit", "list": "agent.tools.by_provider[*].deny",
            "reason": "denied by `edit` in agent.tools.by_provider[*].deny",
        })
    );
    let read = view.explain("READ_FILE");
    assert_eq!(
        read.to_string(),
        "read: deny by layer 9 (subagent): denied by `read` in \
        tools.subagents.deny"
    );
}

#[test]
fn the_closest_provider_key_gives_the_profile_and_every_key_denies() {
    let compiled = policy(json!({"by_provider": {
        "openai": {"profile": "minimal", "deny": ["tts"]},
        "openai/gpt-5": {"profile": "full"},
        "anthropic": {"profile": "minimal"},
    }}));
    let subject = Subject { model: model("openai:gpt-5"), ..main() };
    let view = compiled.view(&subject);

    assert!(is_allowed(&view, "exec"));
    assert!(!is_allowed(&view, "tts"));
}

#[test]
fn an_empty_allow_is_all_and_an_empty_list_of_tools_is_none() {
    let all = policy(json!({"allow": []}));
    let none = policy(json!({"tools": []}));
    let agents = compiled(json!({}), json!({"tools": []}));

    assert_eq!(all.view(&main()).offered().len(), catalog().len());
    assert!(none.view(&main()).offered().is_empty());
    assert_eq!(told(&agents.view(&main()), "read"), "5: not in agent.tools.tools");
}

#[test]
fn route_behaviour_and_bundle_narrow_and_never_add() {
    let compiled = policy(json!({"deny": ["exec"]}));
    let offered = |subject: &Subject| -> Vec<String> {
        compiled.view(subject).offered().into_iter().map(str::to_owned).collect()
    };
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();

    let messages = Subject {
        messages: vec![names(&["run_command", "read_file", "cron"]), names(&["group:fs"])],
        ..main()
    };
    assert_eq!(offered(&messages), ["read"]);
    assert!(offered(&Subject { messages: vec![Vec::new()], ..main() }).is_empty());
    assert!(offered(&Subject { toolbox: Some(Vec::new()), ..main() }).is_empty());

    let bundled =
        Subject { bundle: Some(names(&["web_*", "cron"])), ..Subject::new(SessionKind::Subagent) };
    assert_eq!(offered(&bundled), ["web_fetch", "web_search"]);
}

#[test]
fn a_toolbox_leaves_the_basics_and_policy_may_still_remove_them() {
    let compiled = policy(json!({"deny": ["git"]}));
    let subject = Subject { toolbox: Some(vec!["web_fetch".into()]), ..main() };
    let view = compiled.view(&subject);

    for basic in ["bash", "edit_file", "write_file", "read_file", "send_msg", "todo", "web_fetch"] {
        assert!(is_allowed(&view, basic), "{basic}");
    }
    assert!(!is_allowed(&view, "git"));
    assert_eq!(told(&view, "cron"), "5: not in the behaviour's toolbox");
}

#[test]
fn whoever_may_run_commands_may_patch_unless_it_is_denied() {
    let only_exec = policy(json!({"allow": ["bash"]}));
    let denied = policy(json!({"allow": ["exec"], "deny": ["apply-patch"]}));

    assert_eq!(only_exec.view(&main()).offered(), ["apply_patch", "exec"]);
    assert_eq!(denied.view(&main()).offered(), ["exec"]);
}

#[test]
fn an_allow_list_of_servers_tools_keeps_the_product_s_own_and_says_so() {
    for allow in [json!(["jira_search"]), json!(["group:mcp:jira"])] {
        let compiled = policy(json!({"allow": allow}));
        let view = compiled.view(&main());

        assert!(is_allowed(&view, "exec") && is_allowed(&view, "jira_search"), "{allow}");
        assert!(!is_allowed(&view, "mcp_github_issues"), "{allow}");
        assert_eq!(compiled.warnings(), [Warning::CoreKept { at: "tools.allow".into() }]);
    }
    let typo = policy(json!({"allow": ["raed"]}));
    assert!(is_allowed(&typo.view(&main()), "read"));
    let warnings: Vec<String> = typo.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings[0], "`raed` in `tools.allow` covers no tool");
    assert_eq!(warnings.len(), 2);
}

#[test]
fn in_the_sandbox_and_for_subagents_an_allow_list_of_servers_tools_is_meant() {
    let compiled = policy(json!({
        "sandbox": {"allow": ["jira_search"]},
        "subagents": {"allow": ["jira_search"]},
    }));

    assert_eq!(compiled.view(&dm()).offered(), ["jira_search"]);
    let subagents = policy(json!({"subagents": {"allow": ["jira_search"]}}));
    let subagent = Subject::new(SessionKind::Subagent);
    assert_eq!(subagents.view(&subagent).offered(), ["jira_search"]);
}

#[test]
fn a_tool_that_is_known_and_not_there_makes_no_allow_list_one_of_servers() {
    let tools = ["read", "write"].map(Tool::native);
    let tenant = settings(json!({"allow": ["browser"]}));
    let catalog = std::sync::Arc::new(Catalog::new(tools).0);
    let compiled =
        CompiledPolicy::new(catalog, &Defaults::shipped(), &tenant, &Settings::default()).unwrap();

    assert!(compiled.view(&main()).offered().is_empty());
    assert!(compiled.warnings().is_empty());
}

#[test]
fn a_denial_in_any_words_denies_all_words() {
    for denied in ["bash", "exec", "Run_Command", "run_*", "ba?h", "group:runtime"] {
        let compiled = policy(json!({"deny": [denied]}));
        let view = compiled.view(&main());

        for word in ["exec", "bash", "run_command", " EXEC ", "Bash"] {
            assert!(!is_allowed(&view, word), "{denied} left {word}");
        }
    }
    let allowed = policy(json!({"allow": ["ba?h", "read"]}));
    assert!(!is_allowed(&allowed.view(&main()), "exec"), "an allowance is for what is named");
}

#[test]
fn a_denial_takes_along_what_does_part_of_the_same() {
    let compiled = policy(json!({"deny": ["write"]}));
    let view = compiled.view(&main());

    for (tool, allowed) in
        [("append_file", false), ("delete_file", false), ("list_files", true), ("edit", true)]
    {
        assert_eq!(is_allowed(&view, tool), allowed, "{tool}");
    }
    let one = policy(json!({"allow": ["write"]}));
    assert_eq!(one.view(&main()).offered(), ["write"]);
}

#[test]
fn nobody_else_s_tool_can_take_a_name_of_ours() {
    let tools = [
        Tool { name: "Bash".into(), origin: Origin::Mcp("evil".into()) },
        Tool { name: "append_file".into(), origin: Origin::Mcp("evil".into()) },
        Tool { name: "notes".into(), origin: Origin::Mcp("a".into()) },
        Tool { name: "Notes".into(), origin: Origin::Mcp("b".into()) },
        Tool { name: "group:fs".into(), origin: Origin::Mcp("c".into()) },
        Tool { name: "web_*".into(), origin: Origin::Mcp("c".into()) },
        Tool { name: "two words".into(), origin: Origin::Mcp("c".into()) },
        Tool { name: "x".into(), origin: Origin::Mcp("browser".into()) },
        Tool::native("exec"),
    ];
    let (catalog, warnings) = Catalog::new(tools);

    assert_eq!(catalog.len(), 3);
    assert_eq!(catalog.find("bash").unwrap().origin, Origin::Native);
    assert_eq!(catalog.find("NOTES").unwrap().origin, Origin::Mcp("a".into()));
    assert_eq!(warnings.len(), 6, "{warnings:?}");
}

#[test]
fn also_allow_lifts_a_default_and_never_what_is_written() {
    let lifting = json!({"chats": [
        {"channel": "slack", "chat": "G1", "policy": {"also_allow": ["exec"]}},
    ]});
    let group = |chat: &str| Subject {
        channel: Some("slack".into()),
        chat: Some(chat.into()),
        ..Subject::new(SessionKind::Group)
    };
    let lifted = policy(lifting);
    assert!(is_allowed(&lifted.view(&group("G1")), "exec"));
    assert_eq!(
        told(&lifted.view(&group("G2")), "exec"),
        "7: denied by `exec` in the default list for groups"
    );

    let written = policy(json!({"chats": [
        {"policy": {"deny": ["exec"]}},
        {"chat": "G1", "policy": {"also_allow": ["exec"]}},
    ]}));
    assert!(!is_allowed(&written.view(&group("G1")), "exec"));
}

#[test]
fn a_subagent_spawns_none_even_where_the_list_is_lifted() {
    let lifted = policy(json!({"subagents": {"also_allow": ["sessions_spawn", "memory_search"]}}));
    let subagent = lifted.view(&Subject::new(SessionKind::Subagent));

    assert!(is_allowed(&subagent, "memory_search"));
    assert_eq!(told(&subagent, "sessions_spawn"), "9: a subagent spawns none");
    assert!(is_allowed(&lifted.view(&Subject::new(SessionKind::Cron)), "spawn"));
    assert!(is_allowed(&lifted.view(&main()), "spawn"));
}

#[test]
fn the_strictest_mode_of_the_tenant_applies_and_an_agent_can_only_be_stricter() {
    use SandboxMode::{Isolated, Off, Pod, Restricted};
    use SessionKind::{Cron, Group, Heartbeat, Main, Subagent, Topic};
    let chat = |kind: &str, mode: &str| json!([{"kind": kind, "sandbox_mode": mode}]);
    let stranger = Subject::new(Main);
    for (tenant, agent, subject, mode) in [
        (json!({}), json!({}), main(), Off),
        (json!({}), json!({}), stranger, Isolated),
        (json!({}), json!({}), dm(), Isolated),
        (json!({}), json!({}), Subject::new(Heartbeat), Isolated),
        (json!({"sandbox_mode": "isolated"}), json!({}), main(), Isolated),
        (json!({"sandbox_mode": "off"}), json!({}), dm(), Off),
        (json!({"sandbox_mode": "off"}), json!({}), Subject::new(Group), Isolated),
        (json!({"sandbox_mode": "off"}), json!({}), Subject::new(Topic), Isolated),
        (json!({"sandbox_mode": "off"}), json!({}), Subject::new(Subagent), Isolated),
        (json!({"sandbox_mode": "off"}), json!({}), Subject::new(Cron), Isolated),
        (json!({"sandbox_mode": "restricted"}), json!({}), Subject::new(Subagent), Restricted),
        (json!({"sandbox_mode": "off"}), json!({"sandbox_mode": "restricted"}), main(), Restricted),
        (json!({"sandbox_mode": "isolated"}), json!({"sandbox_mode": "off"}), main(), Isolated),
        (json!({"sandbox_mode": "pod"}), json!({"sandbox_mode": "isolated"}), main(), Pod),
        (json!({"sandbox_mode": "pod"}), json!({"sandbox_mode": "restricted"}), main(), Restricted),
        (json!({}), json!({"sandbox_mode": "off"}), dm(), Isolated),
        (json!({}), json!({"chats": chat("dm", "restricted")}), dm(), Restricted),
        (json!({"chats": chat("dm", "off")}), json!({}), dm(), Off),
        (
            json!({"chats": chat("dm", "off"), "sandbox_mode": "restricted"}),
            json!({}),
            dm(),
            Restricted,
        ),
        (json!({"chats": chat("dm", "off")}), json!({}), Subject::new(Main), Isolated),
        (
            json!({"chats": chat("dm", "off")}),
            json!({"chats": chat("dm", "restricted")}),
            dm(),
            Restricted,
        ),
    ] {
        let shown = format!("{tenant} {agent} {:?}", subject.kind);
        assert_eq!(compiled(tenant, agent).view(&subject).sandbox_mode(), mode, "{shown}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_to_write() {
    for (json, says) in [
        (r#"{"alow": []}"#, "unknown field `alow`"),
        (r#"{"profile": "root"}"#, "unknown variant `root`"),
        (r#"{"deny": "exec"}"#, "invalid type"),
        (r#"["#, "EOF"),
    ] {
        let error = Settings::parse(json).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let long = "x".repeat(129);
    for (json, at) in [
        (json!({"allow": [""]}), "tools.allow"),
        (json!({"deny": ["two words"]}), "tools.deny"),
        (json!({"deny": [long]}), "tools.deny"),
        (json!({"also_allow": ["a\u{0}b"]}), "tools.also_allow"),
        (json!({"by_provider": {"x": {"deny": [" "]}}}), "tools.by_provider[x].deny"),
        (json!({"by_provider": {"": {"deny": ["exec"]}}}), "tools.by_provider"),
        (json!({"visibility": [{"tools": [""]}]}), "tools.visibility[0]"),
        (json!({"approvals": {"tools": {"": "always"}}}), "tools.approvals"),
    ] {
        let none = Settings::default();
        let error = CompiledPolicy::new(catalog(), &Defaults::shipped(), &settings(json), &none)
            .unwrap_err();
        assert!(matches!(&error, Error::Entry { at: found, .. } if found == at), "{error}");
    }
    let many = settings(json!({"deny": vec!["exec"; 513]}));
    let error = CompiledPolicy::new(catalog(), &Defaults::shipped(), &many, &Settings::default());
    assert_eq!(error.unwrap_err().to_string(), "`tools.deny` has 513 entries, and 512 is the most");
}

#[test]
fn names_of_any_script_are_names_as_others_are() {
    let compiled = policy(json!({"deny": ["mcp_*_今天", "不存在", "МОСКВА*"]}));
    let view = compiled.view(&main());

    assert!(!is_allowed(&view, "mcp_weather_今天"));
    assert!(is_allowed(&view, "exec"));
    assert_eq!(compiled.warnings().len(), 2);
    for odd in ["", " ", "工具", "\u{202e}exec", "exec\0", "group:fs", "*"] {
        assert!(!is_allowed(&view, odd), "{odd:?}");
    }
}

#[test]
fn what_the_documentation_shows_is_read() {
    let text = include_str!("../../../../../docs/policy.md");
    let mut read = 0;
    for block in text.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        let json = match block.trim_start().starts_with('{') {
            true => block.to_owned(),
            false => format!("{{{block}}}"),
        };
        if json.contains("\"decision\"") {
            serde_json::from_str::<Explanation>(&json).unwrap();
        } else {
            let none = Settings::default();
            let tenant = Settings::parse(&json).unwrap();
            CompiledPolicy::new(catalog(), &Defaults::shipped(), &tenant, &none).unwrap();
        }
        read += 1;
    }
    assert_eq!(read, 5);
}

#[test]
fn settings_read_back_as_they_were_written() {
    let json = json!({
        "profile": "coding", "allow": ["read"], "also_allow": ["tts"], "deny": ["exec"],
        "tools": [], "by_provider": {"ollama/*": {"deny": ["image"]}},
        "chats": [{"channel": "slack", "kind": "group", "policy": {"deny": ["cron"]}},
                  {"kind": "dm", "sandbox_mode": "off"}],
        "sandbox_mode": "restricted",
        "visibility": [{"tools": ["gateway"], "roles": ["admin"]}],
        "approvals": {"tools": {"write": "always"}, "protected": ["plans"]},
        "exec": {"security": "allowlist", "ask": "on-miss",
                 "allowlist": [{"id": "1", "pattern": "ls"}]},
    });
    let read = settings(json);

    let again = serde_json::to_string(&read).unwrap();
    assert_eq!(Settings::parse(&again).unwrap(), read);
    assert_eq!(serde_json::to_string(&Settings::default()).unwrap(), "{}");
}
