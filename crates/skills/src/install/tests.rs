//! What is installed, what is not, and what is left of an old one.

use std::sync::atomic::Ordering;

use holdfast_types::{Fault as _, Kind};

use super::*;
use crate::{
    archive::attack::{Entry, skill, zip},
    registry::fake::Fake,
};

fn fake(entries: &[Entry]) -> Fake {
    Fake { archive: zip(entries), ..Fake::new("hub") }
}

fn wanted<'a>(slug: &'a str, present: &'a [TreePath]) -> InstallRequest<'a> {
    InstallRequest {
        slug,
        version: None,
        force: Force::No,
        present_paths: present,
        now: 1_730_000_000_000,
    }
}

async fn installed(
    fake: Fake,
    wanted: &InstallRequest<'_>,
    policy: &Policy,
) -> (Result<Installation, Error>, usize) {
    let fake = Arc::new(fake);
    let registry = Arc::clone(&fake) as Arc<dyn Registry>;
    let done = prepare_install(&registry, wanted, policy, &Limits::default()).await;
    (done, fake.downloads.load(Ordering::SeqCst))
}

fn paths(list: &[&str]) -> Vec<TreePath> {
    list.iter().map(|path| path.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_clean_skill_becomes_one_commit_with_its_origin() {
    let registry = fake(&[skill("gif-grep"), Entry::new("more/x.sh", "x")]);

    let (done, _) = installed(registry, &wanted("gif-grep", &[]), &Policy::default()).await;

    let done = done.unwrap();
    let written: Vec<&str> = done.files.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        written,
        [
            "skills/gif-grep/SKILL.md",
            "skills/gif-grep/more/x.sh",
            "skills/gif-grep/.skill-origin.json",
        ]
    );
    let origin = Origin {
        version: 1,
        registry: "hub".to_owned(),
        slug: "gif-grep".parse().unwrap(),
        installed_version: "1.2.3".to_owned(),
        installed_at: 1_730_000_000_000,
    };
    assert_eq!(serde_json::from_slice::<Origin>(&done.files[2].1).unwrap(), origin);
    assert_eq!((done.origin, done.warning, done.removed), (origin, None, vec![]));
    assert_eq!(done.sha256.len(), 64);
}

#[tokio::test]
async fn one_that_is_there_stays_unless_it_is_forced_and_then_nothing_of_it_is_left() {
    let present = paths(&[
        "skills/x/SKILL.md",
        "skills/x/old/y.md",
        "skills/x/.skill-origin.json",
        "skills/xy/SKILL.md",
        "skills/X/z.md",
        "notes/skills/x/a.md",
    ]);
    let (refused, downloads) =
        installed(fake(&[skill("x")]), &wanted("x", &present), &Policy::default()).await;
    assert!(matches!(refused, Err(Error::Installed { .. })) && downloads == 0);

    let forced = InstallRequest { force: Force::Yes, ..wanted("x", &present) };
    let (done, _) = installed(fake(&[skill("x")]), &forced, &Policy::default()).await;

    assert_eq!(done.unwrap().removed, paths(&["skills/x/old/y.md", "skills/X/z.md"]));
}

#[tokio::test]
async fn what_does_harm_or_is_not_judged_is_not_even_downloaded() {
    let allowed = Policy { unjudged: UnjudgedPolicy::AllowedByAdmin, ..Policy::default() };
    let why = || "because".to_owned();
    for (verdict, policy, told) in [
        (Verdict::Malicious(why()), Policy::default(), "it is malicious: because"),
        (Verdict::Malicious(why()), allowed.clone(), "it is malicious: because"),
        (Verdict::Unavailable(why()), Policy::default(), "nobody has judged it (because)"),
    ] {
        let registry = Fake { verdict, ..fake(&[skill("x")]) };
        let (refused, downloads) = installed(registry, &wanted("x", &[]), &policy).await;
        let error = refused.unwrap_err();

        assert!(matches!(error, Error::Unsafe { .. }), "{error}");
        assert!(error.to_string().contains(told), "{error}");
        assert_eq!((error.kind(), downloads), (Kind::Forbidden, 0));
    }
    for (verdict, policy, told) in [
        (Verdict::Suspicious(why()), Policy::default(), "flagged as suspicious"),
        (Verdict::Unavailable(why()), allowed, "an administrator allows that"),
    ] {
        let registry = Fake { verdict, ..fake(&[skill("x")]) };
        let (done, _) = installed(registry, &wanted("x", &[]), &policy).await;
        assert!(done.unwrap().warning.unwrap().contains(told));
    }
}

#[tokio::test]
async fn a_tenant_decides_whether_and_from_where() {
    let only = |names: &[&str]| Policy {
        registries: Some(names.iter().map(|&name| name.to_owned()).collect()),
        ..Policy::default()
    };
    for (policy, told) in [
        (Policy { enabled: false, ..Policy::default() }, "may not be installed here"),
        (only(&["other"]), "of the registry `hub` may not"),
        (only(&[]), "of the registry `hub` may not"),
    ] {
        let (refused, downloads) = installed(fake(&[skill("x")]), &wanted("x", &[]), &policy).await;
        let error = refused.unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
        assert_eq!((error.kind(), downloads), (Kind::Forbidden, 0));
    }
    assert!(installed(fake(&[skill("x")]), &wanted("x", &[]), &only(&["hub"])).await.0.is_ok());
    assert!(Policy::default().check("url").is_err() && only(&["url"]).check("url").is_ok());
}

#[tokio::test]
async fn a_slug_or_version_that_is_none_reaches_no_registry() {
    for slug in ["", "..", "a/b", "a\\b", "../x", "x\0", "\u{445}"] {
        let (refused, _) =
            installed(fake(&[skill("x")]), &wanted(slug, &[]), &Policy::default()).await;
        assert!(matches!(refused, Err(Error::Name(_))), "{slug}");
    }
    for version in ["", "../1", "1 2", "1&slug=y", &"1".repeat(65)] {
        let wanted = InstallRequest { version: Some(version), ..wanted("x", &[]) };
        let (refused, _) = installed(fake(&[skill("x")]), &wanted, &Policy::default()).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{version}");
    }
}

#[tokio::test]
async fn an_archive_must_hold_the_skill_that_it_is_asked_for() {
    for (entries, told) in [
        (vec![skill("y")], "`name` is `y`, and it is installed as `x`"),
        (vec![Entry::new("README.md", "")], "no `SKILL.md`"),
        (vec![Entry::new("SKILL.md", "# no head")], "SKILL.md: has no head"),
        (vec![skill("x"), Entry::new("../../SOUL.md", "x")], "cannot be taken"),
    ] {
        let (refused, _) = installed(fake(&entries), &wanted("x", &[]), &Policy::default()).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[tokio::test]
async fn what_counts_no_versions_is_told_apart_by_what_it_holds() {
    let unversioned =
        |text: &str| Fake { version: None, ..fake(&[skill("x"), Entry::new("a", text)]) };
    let version = async |text: &str| {
        let (done, _) = installed(unversioned(text), &wanted("x", &[]), &Policy::default()).await;
        let done = done.unwrap();
        (done.origin.installed_version, done.sha256)
    };

    let (one, hash) = version("one").await;
    assert!(hash.starts_with(&one) && one.len() == 12);
    assert_eq!(version("one").await, (one.clone(), hash));
    assert_ne!(version("two").await.0, one);
}
