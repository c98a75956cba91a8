//! The choice of agent and session for a message, by bindings and by keys of older forms.

use serde_json::Value;

use crate::installation::Installation;

/// A message of a chat in a thread, server and team, as all bindings could match it.
const MESSAGE: [&str; 14] = [
    "--channel",
    "Slack",
    "--account",
    "work",
    "--peer-kind",
    "group",
    "--peer",
    "C1",
    "--parent-kind",
    "group",
    "--parent",
    "P1",
    "--guild",
    "G1",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_most_specific_of_seven_levels_chooses_the_agent() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    let explain = || {
        let line = [&["routing", "explain"][..], &MESSAGE, &["--team", "T1"]].concat();
        installation.json(&line)
    };
    // The least specific one first; the name of each agent is normalised.
    let levels: [(&str, &str, &[&str]); 6] = [
        ("Any Channel!", "binding.channel", &["--account", "*"]),
        ("Account", "binding.account", &["--account", "work"]),
        ("Team", "binding.team", &["--account", "*", "--team", "T1"]),
        ("Guild", "binding.guild", &["--account", "*", "--guild", "G1"]),
        (
            "Parent",
            "binding.peer.parent",
            &["--account", "work", "--peer-kind", "group", "--peer", "P1"],
        ),
        ("Peer", "binding.peer", &["--account", "work", "--peer-kind", "GROUP", "--peer", "C1"]),
    ];

    let told = explain();
    assert_eq!((&told["agent"], &told["matched_by"]), (&"main".into(), &"default".into()));
    assert_eq!(told["session_key"], "agent:main:group:slack:C1");
    assert_eq!(told["main_session_key"], "agent:main:main");
    let mut names = Vec::new();
    for (name, level, place) in levels {
        let made = installation.json(&["agents", "create", name]);
        let made = made["name"].as_str().unwrap().to_owned();
        let binding = ["routing", "bindings", "add", "--channel", "slack", "--agent", &made];
        installation.run(&[&binding[..], place].concat()).ok();

        let told = explain();
        assert_eq!((&told["agent"], &told["matched_by"]), (&made.as_str().into(), &level.into()));
        assert_eq!(told["session_key"], format!("agent:{made}:group:slack:C1"));
        assert_eq!(told["main_session_key"], format!("agent:{made}:main"));
        names.push(made);
    }
    assert_eq!(names[0], "any-channel");

    // A binding stays when its agent is deleted, and the default agent answers.
    installation.run(&["agents", "update", "account", "--default"]).ok();
    installation.run(&["agents", "delete", "peer"]).ok();
    let told = explain();
    assert_eq!((&told["agent"], &told["matched_by"]), (&"account".into(), &"binding.peer".into()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_an_older_form_names_the_same_session_as_the_canonical_one() -> anyhow::Result<()>
{
    let installation = Installation::new().await?;
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    installation.run(&["agents", "create", "coach"]).ok();

    for (forms, canonical) in [
        (&["telegram:dm:Ua7"][..], "agent:main:dm:telegram:Ua7"),
        (&["slack:group:G1:user:U1"], "agent:main:group:slack:G1:user:U1"),
        (&["agent:Coach:Telegram:Direct:Ua7"], "agent:coach:dm:telegram:Ua7"),
        (&["agent:coach:telegram:Bot:direct:Ua7"], "agent:coach:dm:telegram:bot:Ua7"),
        (&["agent:coach:direct:Ua7"], "agent:coach:dm:any:Ua7"),
        (&["agent:coach:slack:channel:C1"], "agent:coach:group:slack:C1"),
    ] {
        let forms: Vec<&str> = forms.iter().copied().chain([canonical]).collect();
        for form in &forms {
            installation.run(&["chat", "hello", "--session", form]).ok();
        }
        let shown = installation.json(&["sessions", "show", canonical]);
        let sessions = installation.json(&["sessions", "list"]);
        let same: Vec<&Value> = sessions
            .as_array()
            .unwrap()
            .iter()
            .filter(|session| session["key"].as_str().unwrap().eq_ignore_ascii_case(canonical))
            .collect();
        assert_eq!((same.len(), &same[0]["key"]), (1, &canonical.into()), "{sessions}");
        assert_eq!(shown["turns"], forms.len(), "{shown}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_changed_one_by_one_and_nobody_overwrites_another() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    installation.run(&["up", "--detach", "--port-base", "0"]).ok();
    installation.run(&["agents", "create", "coach"]).ok();
    let rules = ["routing", "rules"];
    let run = |words: &[&str]| installation.run(&[&rules[..], words].concat());
    let patterns = || {
        let listed = installation.json(&["routing", "rules", "list"]);
        let patterns = listed.as_array().unwrap().iter();
        patterns.map(|rule| rule["pattern"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    run(&["add", "--agent", "coach", "--pattern", "exam", "--tools", "cron,message"]).ok();
    run(&["add", "--agent", "main", "--pattern", "news", "--disabled"]).ok();
    run(&["add", "--agent", "coach", "--pattern", "study", "--user", "42", "--at", "1"]).ok();
    assert_eq!(patterns(), ["study", "exam", "news"]);
    run(&["move", "3", "1"]).ok();
    assert_eq!(patterns(), ["news", "study", "exam"]);
    let test = |text: &str, user: &str| {
        let line = ["routing", "test", text, "--channel", "telegram", "--user", user];
        installation.json(&line)
    };
    // The first rule is switched off, and counts.
    let told = test("news of the exam", "7");
    assert_eq!((&told["matched_by"], &told["agent"]), (&"rule.3".into(), &"coach".into()));
    assert_eq!(told["rule"]["pattern"], "exam");
    assert_eq!(test("study", "42")["matched_by"], "rule.2");
    assert_eq!(test("study", "7")["matched_by"], "default");
    run(&["enable", "1"]).ok();
    assert_eq!(test("news of the exam", "7")["matched_by"], "rule.1");
    run(&["rm", "2"]).ok();
    assert_eq!(patterns(), ["news", "exam"]);
    let missing = run(&["rm", "3"]).exits_with(3);
    assert!(missing.err.contains("there is no rule at place 3"), "{}", missing.err);
    run(&["add", "--agent", "coach", "--pattern", "("]).exits_with(1);

    // Eight people add a rule at the same moment.
    let added: Vec<_> = (0..8)
        .map(|number| {
            let pattern = format!("rule-{number}");
            let line = ["routing", "rules", "add", "--agent", "main", "--pattern", &pattern];
            installation.command(&line).stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    let added = added.into_iter().map(|mut one| one.wait().unwrap().success());
    let added = added.filter(|is_added| *is_added).count();
    assert_eq!(patterns().len(), 2 + added, "a rule was lost");
    assert!(added > 1, "{added}");
    Ok(())
}
