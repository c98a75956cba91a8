//! Tests of the cascade's levels, the rules, the keys, and what no message can achieve.

use holdfast_directory::{
    AgentSettings, AgentState, Binding, Identity, Pattern, RoutedAgent, Routing, RoutingRule,
};
use holdfast_types::{
    AgentId, AgentName, DmScope, GroupScope, ModelRoute, Peer, PeerKind, RouteScope, SessionKey,
    SessionKind,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::{MatchedBy, RoutingDecision, RoutingInput, route};

fn card(name: &str) -> RoutedAgent {
    RoutedAgent {
        id: AgentId::from(Uuid::from_bytes(name_bytes(name))),
        name: AgentName::new(name),
        is_default: name == "main",
        settings: AgentSettings::default(),
        state: AgentState::Enabled,
    }
}

/// Derives an agent's id from its name.
fn name_bytes(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (byte, of) in bytes.iter_mut().zip(name.bytes()) {
        *byte = of;
    }
    bytes
}

fn peer(kind: PeerKind, id: &str) -> Peer {
    Peer { kind, id: id.to_owned() }
}

fn binding(agent: &str) -> Binding {
    Binding {
        id: Uuid::now_v7(),
        channel: "telegram".into(),
        account: String::new(),
        peer: None,
        guild: None,
        team: None,
        agent: card(agent).id,
        by_model: None,
        also: Vec::new(),
    }
}

fn rule(agent: &str) -> RoutingRule {
    let agent = card(agent).id;
    RoutingRule {
        channel: None,
        user_id: None,
        pattern: None,
        agent,
        tools: None,
        by_model: None,
        disabled: false,
    }
}

fn inbound() -> RoutingInput {
    RoutingInput {
        channel: "telegram".into(),
        account: String::new(),
        peer: peer(PeerKind::Group, "G1"),
        parent: Some(peer(PeerKind::Channel, "P1")),
        thread: None,
        guild: Some("guild".into()),
        team: Some("team".into()),
        sender: Some("U1".into()),
        text: "when is the exam?".into(),
    }
}

fn direct(id: &str) -> RoutingInput {
    RoutingInput { peer: peer(PeerKind::Direct, id), sender: Some(id.into()), ..inbound() }
}

const AGENTS: [&str; 8] =
    ["main", "peer", "parent", "guild", "team", "account", "channel", "other"];

fn routing(bindings: Vec<Binding>, rules: Vec<RoutingRule>) -> Routing {
    Routing::new(AGENTS.map(card).into(), bindings, rules, Vec::new()).unwrap()
}

fn with_settings(settings: AgentSettings, identities: Vec<Identity>) -> Routing {
    let agent = RoutedAgent { settings, ..card("main") };
    Routing::new(vec![agent], Vec::new(), Vec::new(), identities).unwrap()
}

fn to(routed: &RoutingDecision) -> (&str, String) {
    (routed.agent.name.as_str(), routed.matched_by.to_string())
}

/// One binding for each level, the least specific first: their order does not decide.
fn levels() -> Vec<Binding> {
    vec![
        Binding { account: "*".into(), ..binding("channel") },
        binding("account"),
        Binding { team: Some("team".into()), ..binding("team") },
        Binding { guild: Some("guild".into()), ..binding("guild") },
        Binding { peer: Some(peer(PeerKind::Channel, "P1")), ..binding("parent") },
        Binding { peer: Some(peer(PeerKind::Group, "G1")), ..binding("peer") },
    ]
}

#[test]
fn the_most_specific_of_seven_levels_chooses() {
    let mut bindings = levels();
    for expected in [
        ("peer", "binding.peer"),
        ("parent", "binding.peer.parent"),
        ("guild", "binding.guild"),
        ("team", "binding.team"),
        ("account", "binding.account"),
        ("channel", "binding.channel"),
        ("main", "default"),
    ] {
        let routed = route(&routing(bindings.clone(), Vec::new()), &inbound()).unwrap();

        assert_eq!(to(&routed), (expected.0, expected.1.to_owned()));
        bindings.pop();
    }
}

#[test]
fn each_level_lets_pass_what_it_does_not_name() {
    let chosen = |inbound: &RoutingInput| {
        let routed = route(&routing(levels(), Vec::new()), inbound).unwrap();
        routed.matched_by
    };
    let other_peer = RoutingInput { peer: peer(PeerKind::Group, "G2"), ..inbound() };
    let no_parent = RoutingInput { parent: None, ..other_peer.clone() };
    let other_guild = RoutingInput { guild: Some("elsewhere".into()), ..no_parent.clone() };
    let no_guild = RoutingInput { guild: None, ..no_parent.clone() };
    let no_team = RoutingInput { team: None, ..no_guild.clone() };
    let other_account = RoutingInput { account: "bot2".into(), ..no_team.clone() };
    let other_channel = RoutingInput { channel: "slack".into(), ..inbound() };

    assert_eq!(chosen(&other_peer), MatchedBy::ParentPeer);
    assert_eq!(chosen(&no_parent), MatchedBy::Guild);
    assert_eq!(chosen(&other_guild), MatchedBy::Team);
    assert_eq!(chosen(&no_guild), MatchedBy::Team);
    assert_eq!(chosen(&no_team), MatchedBy::Account);
    assert_eq!(chosen(&other_account), MatchedBy::Channel);
    assert_eq!(chosen(&other_channel), MatchedBy::Default);
}

#[test]
fn on_one_level_the_first_chooses() {
    let bindings = vec![binding("account"), binding("other")];

    assert_eq!(to(&route(&routing(bindings, Vec::new()), &inbound()).unwrap()).0, "account");
}

#[test]
fn case_matters_only_in_the_ids_of_a_platform() {
    let named = |change: fn(&mut RoutingInput)| {
        let mut inbound = inbound();
        change(&mut inbound);
        route(&routing(levels(), Vec::new()), &inbound).unwrap().matched_by
    };

    assert_eq!(named(|inbound| inbound.channel = " Telegram".into()), MatchedBy::Peer);
    assert_eq!(named(|inbound| inbound.account = "Default".into()), MatchedBy::Peer);
    assert_eq!(named(|inbound| inbound.peer.id = " G1 ".into()), MatchedBy::Peer);
    assert_eq!(named(|inbound| inbound.peer.id = "g1".into()), MatchedBy::ParentPeer);
    assert_eq!(named(|inbound| inbound.peer.kind = PeerKind::Channel), MatchedBy::ParentPeer);
}

#[test]
fn an_account_is_the_default_one_a_named_one_or_any() {
    for (wanted, given, matches) in [
        ("", "", true),
        ("", "default", true),
        ("", "bot2", false),
        ("bot2", "bot2", true),
        ("bot2", "Bot2", true),
        ("bot2", "", false),
        ("*", "", true),
        ("*", "anything", true),
    ] {
        let binding = Binding {
            account: wanted.into(),
            peer: Some(peer(PeerKind::Group, "G1")),
            ..binding("peer")
        };
        let inbound = RoutingInput { account: given.into(), ..inbound() };

        let routed = route(&routing(vec![binding], Vec::new()), &inbound).unwrap();

        assert_eq!(routed.matched_by == MatchedBy::Peer, matches, "`{wanted}` and `{given}`");
    }
}

#[test]
fn a_binding_that_names_two_things_needs_both() {
    let both = || Binding {
        peer: Some(peer(PeerKind::Group, "G1")),
        guild: Some("guild".into()),
        ..binding("peer")
    };
    let elsewhere = RoutingInput { guild: Some("elsewhere".into()), ..inbound() };
    let routing = routing(vec![both()], Vec::new());

    assert_eq!(route(&routing, &inbound()).unwrap().matched_by, MatchedBy::Peer);
    assert_eq!(route(&routing, &elsewhere).unwrap().matched_by, MatchedBy::Default);
}

#[test]
fn the_default_agent_stands_in_for_one_that_was_deleted() {
    let gone = vec![binding("deleted")];

    let routed = route(&routing(gone, vec![rule("other")]), &inbound()).unwrap();

    assert_eq!(to(&routed), ("main", "binding.account".to_owned()));
    let routed = route(&routing(Vec::new(), vec![rule("deleted")]), &inbound()).unwrap();
    assert_eq!(to(&routed), ("main", "rule.1".to_owned()));
}

#[test]
fn the_first_rule_that_matches_chooses_agent_and_tools() {
    let tools = Some(vec!["web_search".to_owned()]);
    let rules = vec![
        RoutingRule { channel: Some("slack".into()), ..rule("team") },
        RoutingRule { user_id: Some("U2".into()), ..rule("guild") },
        RoutingRule {
            pattern: Some(Pattern::new("exam|学习")),
            tools: tools.clone(),
            ..rule("other")
        },
        rule("peer"),
    ];
    let routing = routing(Vec::new(), rules);
    let chosen = |inbound: RoutingInput| {
        let routed = route(&routing, &inbound).unwrap();
        (routed.agent.name.to_string(), routed.matched_by.to_string(), routed.tools)
    };

    assert_eq!(chosen(inbound()), ("other".into(), "rule.3".into(), tools));
    let hello = RoutingInput { text: "hello".into(), ..inbound() };
    assert_eq!(chosen(hello.clone()), ("peer".into(), "rule.4".into(), None));
    let by_u2 = RoutingInput { sender: Some("U2".into()), ..hello.clone() };
    assert_eq!(chosen(by_u2), ("guild".into(), "rule.2".into(), None));
    let slack = RoutingInput { channel: "Slack".into(), ..hello };
    assert_eq!(chosen(slack), ("team".into(), "rule.1".into(), None));
}

#[test]
fn an_empty_list_of_tools_is_not_an_absent_one() {
    let rules = vec![RoutingRule { tools: Some(Vec::new()), ..rule("other") }];

    let routed = route(&routing(Vec::new(), rules), &inbound()).unwrap();

    assert_eq!(routed.tools, Some(Vec::new()));
}

#[test]
fn rules_are_asked_only_where_no_binding_matches() {
    let routed =
        route(&routing(vec![binding("account")], vec![rule("other")]), &inbound()).unwrap();

    assert_eq!(to(&routed), ("account", "binding.account".to_owned()));
}

#[test]
fn direct_messages_are_as_separate_as_the_agent_says() {
    for (dm_scope, key) in [
        (DmScope::Main, "agent:main:main"),
        (DmScope::PerPeer, "agent:main:dm:any:U7"),
        (DmScope::PerChannelPeer, "agent:main:dm:telegram:U7"),
        (DmScope::PerAccountChannelPeer, "agent:main:dm:telegram:bot2:U7"),
    ] {
        let routing =
            with_settings(AgentSettings { dm_scope, ..AgentSettings::default() }, Vec::new());
        let inbound = RoutingInput { account: "Bot2".into(), ..direct("U7") };

        let routed = route(&routing, &inbound).unwrap();

        assert_eq!(routed.key.as_str(), key);
        assert_eq!(routed.main_key.as_str(), "agent:main:main");
    }
}

#[test]
fn groups_and_topics_are_as_separate_as_the_agent_says() {
    let thread = |thread: &str| RoutingInput { thread: Some(thread.into()), ..inbound() };
    for (group_scope, inbound, key) in [
        (GroupScope::Group, inbound(), "agent:main:group:telegram:G1"),
        (GroupScope::Group, thread("5"), "agent:main:topic:telegram:G1:5"),
        (GroupScope::Group, thread(" "), "agent:main:group:telegram:G1"),
        (GroupScope::GroupUser, inbound(), "agent:main:group:telegram:G1:user:U1"),
        (GroupScope::GroupUser, thread("5"), "agent:main:group:telegram:G1:user:U1"),
        (
            GroupScope::GroupUser,
            RoutingInput { sender: None, ..inbound() },
            "agent:main:group:telegram:G1",
        ),
    ] {
        let routing =
            with_settings(AgentSettings { group_scope, ..AgentSettings::default() }, Vec::new());

        assert_eq!(route(&routing, &inbound).unwrap().key.as_str(), key);
    }
}

#[test]
fn one_person_with_several_ids_is_one_and_the_channels_own_word_goes_first() {
    let identity = |channel: &str, peer: &str, canonical: &str| Identity {
        channel: channel.into(),
        peer: peer.into(),
        canonical: canonical.into(),
    };
    let identities = || {
        vec![
            identity("", "U7", "anybody"),
            identity("telegram", "U7", "ann"),
            identity("slack", "S9", "ann"),
        ]
    };
    let key = |dm_scope, inbound: RoutingInput| {
        let routing =
            with_settings(AgentSettings { dm_scope, ..AgentSettings::default() }, identities());
        route(&routing, &inbound).unwrap().key.to_string()
    };
    let slack = || RoutingInput { channel: "Slack".into(), ..direct("S9") };
    let other = || RoutingInput { channel: "irc".into(), ..direct("U7") };

    assert_eq!(key(DmScope::PerPeer, direct("U7")), "agent:main:dm:any:ann");
    assert_eq!(key(DmScope::PerPeer, slack()), "agent:main:dm:any:ann");
    assert_eq!(key(DmScope::PerPeer, other()), "agent:main:dm:any:anybody");
    assert_eq!(key(DmScope::PerChannelPeer, slack()), "agent:main:dm:slack:ann");
    assert_eq!(key(DmScope::PerPeer, direct("u7")), "agent:main:dm:any:u7");
    assert_eq!(key(DmScope::Main, direct("U7")), "agent:main:main");
}

#[test]
fn a_linked_account_is_its_person_on_every_channel_and_the_first_one_keeps_its_key() {
    let identity = |channel: &str, peer: &str| Identity {
        channel: channel.into(),
        peer: peer.into(),
        canonical: "=telegram:U7".into(),
    };
    let key = |dm_scope, inbound: &RoutingInput| {
        let identities = vec![identity("telegram", "U7"), identity("irc/net", "ann")];
        let settings = AgentSettings { dm_scope, ..AgentSettings::default() };
        let routing = with_settings(settings, identities);
        let author = super::linked_author(&routing, inbound).map(|(id, _)| id);
        (route(&routing, inbound).unwrap().key.to_string(), author)
    };
    let linked = || Some("telegram:U7".to_owned());
    let first = direct("U7");
    let irc = |account: &str| RoutingInput {
        channel: "irc".into(),
        account: account.into(),
        ..direct("ann")
    };

    for (scope, of_first, of_other) in [
        (DmScope::Main, "agent:main:main", "agent:main:main"),
        (DmScope::PerPeer, "agent:main:dm:any:=telegram%3AU7", "agent:main:dm:any:=telegram%3AU7"),
        (DmScope::PerChannelPeer, "agent:main:dm:telegram:U7", "agent:main:dm:irc:=telegram%3AU7"),
        (
            DmScope::PerAccountChannelPeer,
            "agent:main:dm:telegram:default:U7",
            "agent:main:dm:irc:net:=telegram%3AU7",
        ),
    ] {
        assert_eq!(key(scope, &first), (of_first.to_owned(), linked()));
        assert_eq!(key(scope, &irc("net")), (of_other.to_owned(), linked()));
    }
    // The same nickname on another network is somebody else.
    let (other, author) = key(DmScope::PerAccountChannelPeer, &irc("other"));
    assert_eq!((other.as_str(), author), ("agent:main:dm:irc:other:ann", None));
}

#[test]
fn further_agents_of_a_binding_have_sessions_of_their_own_and_nobody_answers_twice() {
    let gone = AgentId::generate();
    let also = vec![card("other").id, card("peer").id, gone];
    let bound = Binding { also, ..binding("peer") };

    let routed = route(&routing(vec![bound], Vec::new()), &direct("U7")).unwrap();

    assert_eq!(routed.key.as_str(), "agent:peer:dm:telegram:U7");
    let also: Vec<&str> = routed.also.iter().map(|(_, key)| key.as_str()).collect();
    assert_eq!(also, ["agent:other:dm:telegram:U7"]);
}

#[test]
fn who_has_no_id_does_not_get_into_the_owners_session() {
    for id in ["", "  "] {
        let nobody = RoutingInput { sender: None, ..direct(id) };

        let routed = route(&routing(Vec::new(), Vec::new()), &nobody).unwrap();

        assert_eq!(routed.key.as_str(), "agent:main:dm:telegram:unknown");
    }
}

#[test]
fn nobody_reaches_another_session_by_a_name_or_a_word() {
    for id in ["agent:main:main", "global", "x:user:U1", "agent%3Amain%3Amain", "main"] {
        let routed = route(
            &routing(Vec::new(), Vec::new()),
            &RoutingInput { text: "agent:main:main".into(), ..direct(id) },
        )
        .unwrap();

        assert_eq!(routed.key.kind(), SessionKind::Dm, "{id}");
        assert_ne!(routed.key, routed.main_key);
    }
}

#[test]
fn ids_too_long_for_a_key_are_told_apart_all_the_same() {
    let key = |id: &str| {
        let long = RoutingInput { peer: peer(PeerKind::Group, id), ..inbound() };
        route(&routing(Vec::new(), Vec::new()), &long).unwrap().key
    };
    let (a, b) = ("x".repeat(600), format!("{}y", "x".repeat(599)));

    assert_ne!(key(&a), key(&b));
    assert_eq!(key(&a), key(&a));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[:%a-zA-Z0-9 ]{0,12}",
        "[:é]{150,300}",
        Just("agent:main:main".to_owned()),
        Just(String::new()),
    ]
}

fn any_peer() -> impl Strategy<Value = Peer> {
    let kind = prop_oneof![Just(PeerKind::Direct), Just(PeerKind::Group), Just(PeerKind::Channel),];
    (kind, any_text()).prop_map(|(kind, id)| Peer { kind, id })
}

fn any_inbound() -> impl Strategy<Value = RoutingInput> {
    let maybe = || proptest::option::of(any_text());
    (
        (any_text(), any_text(), any_peer(), proptest::option::of(any_peer())),
        (maybe(), maybe(), maybe(), maybe(), any_text()),
    )
        .prop_map(|((channel, account, peer, parent), (thread, guild, team, sender, text))| {
            RoutingInput { channel, account, peer, parent, thread, guild, team, sender, text }
        })
}

fn any_scopes() -> impl Strategy<Value = (DmScope, GroupScope)> {
    let dm = prop_oneof![
        Just(DmScope::Main),
        Just(DmScope::PerPeer),
        Just(DmScope::PerChannelPeer),
        Just(DmScope::PerAccountChannelPeer),
    ];
    (dm, prop_oneof![Just(GroupScope::Group), Just(GroupScope::GroupUser)])
}

proptest! {
    #[test]
    fn every_message_gets_a_key_of_its_agent_that_reads_back(
        inbound in any_inbound(),
        (dm_scope, group_scope) in any_scopes(),
        identity in proptest::option::of((any_text(), "\\PC{1,300}")),
    ) {
        let settings = AgentSettings { dm_scope, group_scope, ..AgentSettings::default() };
        let identities = identity.map(|(peer, canonical)| {
            Identity { channel: String::new(), peer, canonical }
        });
        let routing = with_settings(settings, identities.into_iter().collect());

        let routed = route(&routing, &inbound).unwrap();

        let read: SessionKey = routed.key.as_str().parse().unwrap();
        prop_assert_eq!(&read, &routed.key);
        prop_assert_eq!(routed.key.agent(), Some(&routed.agent.name));
        let kinds: &[SessionKind] = match (inbound.peer.kind, dm_scope) {
            (PeerKind::Direct, DmScope::Main) => &[SessionKind::Main],
            (PeerKind::Direct, _) => &[SessionKind::Dm],
            (PeerKind::Group | PeerKind::Channel, _) => &[SessionKind::Group, SessionKind::Topic],
        };
        prop_assert!(kinds.contains(&routed.key.kind()), "{}", routed.key);
    }

    #[test]
    fn two_people_never_share_their_direct_messages(a in "\\PC{1,80}", b in "\\PC{1,80}") {
        prop_assume!(!a.trim().is_empty() && !b.trim().is_empty());
        let routing = with_settings(AgentSettings::default(), Vec::new());
        let key = |id: &str| route(&routing, &direct(id)).unwrap().key;

        prop_assert_eq!(key(&a) == key(&b), a.trim() == b.trim());
    }
}

#[test]
fn a_model_is_to_choose_where_what_matches_says_so_and_the_agent_has_the_session() {
    let route = |each| Some(ModelRoute { each, ..ModelRoute::default() });
    let bound = Binding { by_model: route(RouteScope::Session), ..binding("coach") };
    let bound = Binding { account: "*".into(), ..bound };
    let ruled = RoutingRule { by_model: route(RouteScope::Message), ..rule("other") };

    let by_binding = route_of(&routing(vec![bound], Vec::new()));
    let by_rule = route_of(&routing(Vec::new(), vec![ruled]));
    let by_nothing = route_of(&routing(Vec::new(), Vec::new()));

    assert_eq!(by_binding.by_model, route(RouteScope::Session));
    assert_eq!(by_rule.by_model, route(RouteScope::Message));
    assert!(by_rule.key.as_str().starts_with("agent:other:"), "{}", by_rule.key);
    assert_eq!(by_nothing.by_model, None);
}

fn route_of(routing: &Routing) -> RoutingDecision {
    route(routing, &inbound()).unwrap()
}
