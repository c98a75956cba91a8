//! Visibility filters: one test for each use case.

use holdfast_types::SessionKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{catalog, compiled, is_allowed, main, policy, settings, told};
use crate::policy::{CompiledPolicy, Defaults, Error, LocalTime, Settings, Subject, Weekday};

fn member(roles: &[&str]) -> Subject {
    Subject {
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..Subject::new(SessionKind::Dm)
    }
}

fn sees(filters: Value, subject: &Subject, tool: &str) -> bool {
    is_allowed(&policy(json!({"visibility": filters})).view(subject), tool)
}

#[test]
fn an_admin_s_tool_is_shown_to_admins_only() {
    let filters = json!([{"tools": ["gateway"], "roles": ["admin", "owner"]}]);

    assert!(sees(filters.clone(), &member(&["Admin"]), "gateway"));
    assert!(sees(filters.clone(), &main(), "gateway"));
    assert!(!sees(filters.clone(), &member(&["member"]), "gateway"));
    assert!(!sees(filters, &member(&[]), "gateway"));
}

#[test]
fn a_normal_tool_is_shown_to_everyone() {
    let filters = json!([{"tools": ["gateway"], "roles": ["admin"]}]);

    assert!(sees(filters, &member(&[]), "web_search"));
    assert!(sees(json!([]), &member(&[]), "gateway"));
}

#[test]
fn a_tool_for_some_is_shown_by_chat_or_by_group_of_users() {
    let filters = json!([
        {"tools": ["image"], "chats": ["-100"]},
        {"tools": ["image"], "roles": ["vip"]},
        {"tools": ["image"], "users": ["usr_7"]},
    ]);
    let in_chat = Subject { chat: Some("-100".into()), ..member(&[]) };
    let elsewhere = Subject { chat: Some("-101".into()), ..member(&[]) };
    let user = Subject { user: Some("usr_7".into()), ..member(&[]) };

    for (subject, shown) in
        [(in_chat, true), (elsewhere, false), (member(&["vip"]), true), (user, true)]
    {
        assert_eq!(sees(filters.clone(), &subject, "image"), shown, "{subject:?}");
    }
}

#[test]
fn a_channel_s_features_are_shown_on_that_channel() {
    let filters = json!([
        {"tools": ["telegram_*"], "channels": ["telegram"]},
        {"tools": ["group:mcp:slack"], "channels": ["slack"]},
        {"tools": ["wecom_approval", "wecom_meeting"], "channels": ["wecom"]},
    ]);
    let on = |channel: &str| Subject { channel: Some(channel.into()), ..member(&[]) };
    let features = [
        ("telegram", ["telegram_sticker", "telegram_poll"]),
        ("slack", ["slack_huddle", "slack_workflow"]),
        ("wecom", ["wecom_approval", "wecom_meeting"]),
    ];

    for (own, tools) in features {
        for tool in tools {
            for (channel, _) in features {
                let shown = sees(filters.clone(), &on(channel), tool);
                assert_eq!(shown, channel == own, "{tool} on {channel}");
            }
            assert!(sees(filters.clone(), &on(&own.to_uppercase()), tool), "{tool}");
            assert!(!sees(filters.clone(), &member(&[]), tool), "no channel is not every channel");
        }
    }
}

#[test]
fn a_window_of_time_opens_and_closes_on_the_tenant_s_clock() {
    let office = json!([{
        "tools": ["nodes"], "hours": {"from": "09:00", "to": "17:30"},
        "days": ["mon", "tue", "wed", "thu", "fri"],
    }]);
    let night = json!([{"tools": ["nodes"], "hours": {"from": "22:00", "to": "06:00"}}]);
    let at = |weekday, minute| Subject { now: Some(LocalTime { weekday, minute }), ..member(&[]) };

    for (filters, weekday, minute, shown) in [
        (&office, Weekday::Mon, 539, false),
        (&office, Weekday::Mon, 540, true),
        (&office, Weekday::Fri, 1_049, true),
        (&office, Weekday::Fri, 1_050, false),
        (&office, Weekday::Sun, 600, false),
        (&night, Weekday::Sun, 1_319, false),
        (&night, Weekday::Sun, 1_320, true),
        (&night, Weekday::Mon, 359, true),
        (&night, Weekday::Mon, 360, false),
    ] {
        let subject = at(weekday, minute);
        assert_eq!(sees(filters.clone(), &subject, "nodes"), shown, "{weekday:?} {minute}");
    }
    assert!(!sees(office, &member(&[]), "nodes"), "a clock that is not known opens nothing");
}

#[test]
fn what_is_hidden_is_refused_when_it_is_called_all_the_same() {
    let compiled = policy(json!({"visibility": [{"tools": ["bash"], "roles": ["admin"]}]}));
    let subject = member(&[]);
    let view = compiled.view(&subject);

    assert!(!view.offered().contains(&"exec"));
    for word in ["exec", "bash", "run_command"] {
        assert_eq!(
            told(&view, word),
            "deny: shown by no filter here, now, to this person",
            "{word}"
        );
        let call = view.decide_call(word, &json!({"command": "ls"}));
        assert_eq!(call, view.decide("exec"), "{word}");
    }
}

#[test]
fn an_agent_s_filter_shows_nothing_that_its_tenant_s_hides() {
    let shown = json!({"visibility": [{"tools": ["exec"]}]});
    let hidden = json!({"visibility": [{"tools": ["exec"], "roles": ["admin"]}]});

    for (tenant, agent) in [(hidden.clone(), shown.clone()), (shown, hidden)] {
        let compiled = compiled(tenant, agent);
        assert!(!is_allowed(&compiled.view(&member(&[])), "exec"));
        assert!(is_allowed(&compiled.view(&member(&["admin"])), "exec"));
    }
}

#[test]
fn a_layer_s_denial_is_told_before_a_filter_s() {
    let compiled = compiled(
        json!({"deny": ["exec"], "visibility": [{"tools": ["exec"], "roles": ["admin"]}]}),
        json!({}),
    );

    assert_eq!(told(&compiled.view(&member(&[])), "exec"), "3: denied by `exec` in tools.deny");
}

#[test]
fn a_window_that_is_none_is_refused() {
    for (from, to) in
        [("9:00", "10:00"), ("09:00", "09:00"), ("24:00", "01:00"), ("10:60", "11:00"), ("", "x")]
    {
        let filters = json!({"visibility": [
            {"tools": ["exec"], "hours": {"from": from, "to": to}},
        ]});
        let none = Settings::default();
        let error = CompiledPolicy::new(catalog(), &Defaults::shipped(), &settings(filters), &none);

        assert!(matches!(error.unwrap_err(), Error::Window { .. }), "{from} {to}");
    }
    let midnight = json!([{"tools": ["exec"], "hours": {"from": "00:00", "to": "24:00"}}]);
    let now = Some(LocalTime { weekday: Weekday::Sat, minute: 1_439 });
    assert!(sees(midnight, &Subject { now, ..member(&[]) }, "exec"));
}

proptest! {
    #[test]
    fn a_window_and_the_one_turned_round_share_the_day(
        from in 0_u16..1_440, to in 0_u16..1_440, minute in 0_u16..1_440,
    ) {
        prop_assume!(from != to);
        let text = |at: u16| format!("{:02}:{:02}", at / 60, at % 60);
        let filter = |from, to| json!([
            {"tools": ["exec"], "hours": {"from": text(from), "to": text(to)}},
        ]);
        let now = Some(LocalTime { weekday: Weekday::Mon, minute });
        let subject = Subject { now, ..member(&[]) };

        prop_assert_ne!(
            sees(filter(from, to), &subject, "exec"),
            sees(filter(to, from), &subject, "exec")
        );
    }
}
