//! Who has which skill, who is told of it, and who may call it.

use super::*;

fn file(scope: Scope, folder: &str, text: &str) -> SkillFile {
    SkillFile { scope, folder: folder.to_owned(), text: text.as_bytes().to_vec() }
}

fn skill(scope: Scope, name: &str, more: &str) -> SkillFile {
    let text = format!("---\nname: {name}\ndescription: of the {scope} <&>\n{more}\n---\nbody");
    file(scope, name, &text)
}

fn skills(files: Vec<SkillFile>) -> SkillSet {
    SkillSet::from_files(
        files,
        &SkillEnvironment { os: "linux".to_owned(), ..SkillEnvironment::default() },
    )
}

fn names(skills: &SkillSet) -> Vec<(&str, Scope)> {
    skills.skills().map(|skill| (skill.name(), skill.scope)).collect()
}

#[test]
fn the_nearer_one_wins_and_what_it_hides_is_reported() {
    let skills = skills(vec![
        skill(Scope::Platform, "plan", ""),
        skill(Scope::Tenant, "plan", ""),
        skill(Scope::Platform, "tidy", ""),
        skill(Scope::Workspace, "Plan", ""),
        skill(Scope::Tenant, "tidy", ""),
        skill(Scope::Platform, "read", ""),
    ]);

    assert_eq!(
        names(&skills),
        [("Plan", Scope::Workspace), ("read", Scope::Platform), ("tidy", Scope::Tenant)]
    );
    let skipped: Vec<String> = skills.unused_files().iter().map(UnusedFile::to_string).collect();
    assert_eq!(
        skipped,
        [
            "tenant: skills/plan/SKILL.md: is not used, for one of the workspace has the same name",
            "platform: skills/plan/SKILL.md: is not used, for one of the workspace has the same name",
            "platform: skills/tidy/SKILL.md: is not used, for one of the tenant has the same name",
        ]
    );
}

#[test]
fn two_of_one_place_that_differ_by_case_are_not_both_there() {
    let skills = skills(vec![skill(Scope::Tenant, "plan", ""), skill(Scope::Tenant, "Plan", "")]);

    assert_eq!(names(&skills), [("Plan", Scope::Tenant)]);
    assert_eq!(
        skills.unused_files()[0].to_string(),
        "tenant: skills/plan/SKILL.md: has the name of another one there, but for upper and lower \
         case: rename it"
    );
}

#[test]
fn a_bad_one_is_left_out_with_its_reason_and_takes_no_other_with_it() {
    let skills = skills(vec![
        skill(Scope::Workspace, "good", ""),
        file(Scope::Workspace, "bad", "no head"),
        file(Scope::Workspace, "other", "---\nname: another\ndescription: x\n---\n"),
        file(Scope::Workspace, "..", "---\nname: x\ndescription: x\n---\n"),
        skill(Scope::Platform, "bad", ""),
    ]);

    assert_eq!(names(&skills), [("bad", Scope::Platform), ("good", Scope::Workspace)]);
    let skipped: Vec<String> = skills.unused_files().iter().map(UnusedFile::to_string).collect();
    assert!(skipped[0].contains("`..` is not a skill's name"), "{skipped:?}");
    assert!(skipped[1].starts_with("workspace: skills/bad/SKILL.md: has no head"), "{skipped:?}");
    assert!(skipped[2].contains("`name` is `another`, and its folder `other`"), "{skipped:?}");
    assert_eq!(skipped.len(), 3);
}

#[test]
fn a_model_is_told_of_those_that_it_may_and_can_use() {
    let skills = skills(vec![
        skill(Scope::Workspace, "one", ""),
        skill(Scope::Tenant, "two", ""),
        skill(Scope::Tenant, "hidden", "disable-model-invocation: true"),
        skill(Scope::Tenant, "lacking", "metadata: { openclaw: { requires: { bins: [x] } } }"),
    ]);

    let all: Vec<&str> = skills.for_prompt(&[]).iter().map(|skill| skill.name).collect();
    assert_eq!(all, ["one", "two"]);
    let some = skills.for_prompt(&["TWO", "hidden", "none"]);
    assert_eq!(
        some,
        [prompt::Skill {
            name: "two",
            description: "of the tenant <&>",
            location: "skills/two/SKILL.md",
        }]
    );
    assert_eq!(skills.for_prompt(&["none"]), []);
}

#[test]
fn people_call_a_skill_by_its_name_and_say_more() {
    let skills = skills(vec![
        skill(Scope::Workspace, "plan-a-trip", "disable-model-invocation: true"),
        skill(Scope::Workspace, "quiet", "user-invocable: false"),
    ]);
    let invoked = |message| {
        let invoked = skills.parse_invocation(message).unwrap();
        invoked.map(|found| (found.skill.name(), found.arguments.to_owned()))
    };

    for message in
        ["/plan-a-trip to  Rome", " /PLAN-A-TRIP\nto  Rome ", "/skill plan-a-trip to  Rome"]
    {
        assert_eq!(invoked(message), Some(("plan-a-trip", "to  Rome".to_owned())), "{message}");
    }
    let found = skills.parse_invocation("/plan-a-trip to Rome").unwrap().unwrap();
    assert_eq!(
        found.request(),
        "Use the skill `plan-a-trip` (skills/plan-a-trip/SKILL.md): read it first.\n\nto Rome"
    );
    assert_eq!(invoked("/plan-a-trip"), Some(("plan-a-trip", String::new())));
    for message in
        ["plan-a-trip", "/quiet", "/none", "/", "/skill", "/plan-a-trip/x", "see /plan-a-trip", ""]
    {
        assert_eq!(invoked(message), None, "{message}");
    }
}

#[test]
fn who_calls_one_that_lacks_something_is_told_what() {
    let skills = skills(vec![skill(
        Scope::Workspace,
        "film",
        "metadata: { openclaw: { requires: { bins: [ffmpeg], env: [KEY] } } }",
    )]);

    assert_eq!(
        skills.parse_invocation("/film x").unwrap_err().to_string(),
        "the skill `film` cannot be used: the command `ffmpeg` is not there: choose an image that \
         has it; the secret `KEY` is not set: an administrator sets it, as by `holdfast skills env \
         set film KEY`"
    );
}
