//! What registries answer, in the shapes that they really have.

use std::{fs, sync::Arc};

use axum::response::IntoResponse as _;
use holdfast_egress::Guard;
use holdfast_types::{Fault as _, Kind};
use serde_json::{Value, json};

use super::{
    fake::{self, Server},
    *,
};

fn slug(name: &str) -> SkillName {
    name.parse().unwrap()
}

/// A ClawHub that says this of one skill, and this of its scan.
async fn hub(page: Value, scan: Option<Value>) -> (Server, ClawHub) {
    let server = Server::start(move |path| match path.split('?').next() {
        Some("/api/v1/skills/gifgrep") => fake::json(&page),
        Some("/api/v1/skills/gifgrep/scan") => match &scan {
            Some(scan) => fake::json(scan),
            None => fake::status(404),
        },
        _ => fake::status(404),
    });
    let server = server.await.unwrap();
    let hub = ClawHub::new("clawhub", &server.url, None).unwrap();
    (server, hub)
}

fn page(moderation: &Value) -> Value {
    json!({
        "skill": { "slug": "gifgrep", "displayName": "GifGrep", "summary": "…",
                   "tags": { "latest": "1.2.3" }, "stats": {}, "createdAt": 0, "updatedAt": 0 },
        "latestVersion": { "version": "1.2.3", "createdAt": 0, "changelog": "…" },
        "metadata": null,
        "owner": { "handle": "x", "displayName": "X", "image": null },
        "moderation": moderation,
    })
}

fn moderation(is_suspicious: bool, is_malware_blocked: bool) -> Value {
    json!({ "isSuspicious": is_suspicious, "isMalwareBlocked": is_malware_blocked,
            "verdict": "…", "reasonCodes": [], "summary": null, "engineVersion": "v2.0.0",
            "updatedAt": 0 })
}

fn scan(status: &str, has_scan_result: bool) -> Option<Value> {
    Some(json!({ "security": { "status": status, "hasScanResult": has_scan_result },
                 "moderation": null }))
}

#[tokio::test]
async fn a_hub_is_searched_and_what_could_not_be_installed_is_left_out() {
    let server = Server::start(|_| {
        fake::json(&json!({ "results": [
            { "score": 0.9, "slug": "gifgrep", "displayName": "GifGrep", "summary": "Finds\nGIFs\u{202e}",
              "version": "1.2.3", "updatedAt": 1_730_000_000_000_i64 },
            { "score": 0.8, "slug": "../etc", "displayName": "x", "summary": "x", "version": "1" },
            { "score": 0.7, "slug": "none", "displayName": "x", "summary": null, "version": null },
            { "score": 0.6, "slug": "plain", "displayName": null, "summary": "y", "version": "a b" },
        ]}))
    });
    let server = server.await.unwrap();
    let hub = ClawHub::new("clawhub", &server.url, Some("clh_x".into())).unwrap();

    let hits = hub.search("find & keep", 5).await.unwrap();

    let hit = |score, slug: &str, title: &str, summary: &str, version: Option<&str>| SkillHit {
        score,
        slug: slug.parse().unwrap(),
        title: title.to_owned(),
        summary: summary.to_owned(),
        version: version.map(str::to_owned),
        registry: "clawhub".to_owned(),
    };
    assert_eq!(
        hits,
        [
            hit(0.9, "gifgrep", "GifGrep", "Finds GIFs", Some("1.2.3")),
            hit(0.6, "plain", "plain", "y", None),
        ]
    );
    let wanted = "/api/v1/search?q=find+%26+keep&limit=5".to_owned();
    assert_eq!(server.asked(), [(wanted, Some("Bearer clh_x".to_owned()))]);
}

#[tokio::test]
async fn a_verdict_is_what_moderation_and_scanners_say_and_silence_is_none() {
    enum Is {
        Clean,
        Suspicious,
        Unavailable,
        Malicious,
    }
    let none = Value::Null;
    for (told, scan, version, is) in [
        (moderation(false, false), None, None, Is::Clean),
        (moderation(false, false), None, Some("1.2.3"), Is::Clean),
        // What is said of the newest version is not said of another one.
        (moderation(false, false), None, Some("1.0.0"), Is::Unavailable),
        (moderation(false, false), scan("clean", true), Some("1.0.0"), Is::Clean),
        (moderation(true, false), scan("clean", true), None, Is::Suspicious),
        (moderation(true, false), None, None, Is::Unavailable),
        (moderation(true, false), scan("malicious", true), None, Is::Malicious),
        (moderation(false, true), scan("clean", true), Some("1.0.0"), Is::Malicious),
        (none.clone(), scan("clean", true), None, Is::Clean),
        (none.clone(), scan("clean", false), None, Is::Unavailable),
        (none.clone(), scan("pending", true), None, Is::Unavailable),
        (none.clone(), scan("suspicious", true), None, Is::Suspicious),
        (none.clone(), scan("malicious", true), None, Is::Malicious),
        (none.clone(), Some(json!({})), None, Is::Unavailable),
        (none.clone(), None, None, Is::Unavailable),
        (json!({}), None, None, Is::Unavailable),
        (json!({ "isMalwareBlocked": false }), None, None, Is::Unavailable),
    ] {
        let case = format!("{told} {scan:?} {version:?}");
        let (_server, hub) = hub(page(&told), scan).await;

        let meta = hub.meta(&slug("gifgrep"), version).await.unwrap();

        assert_eq!(meta.version.as_deref(), version.or(Some("1.2.3")));
        let is_right = match is {
            Is::Clean => meta.verdict == Verdict::Clean,
            Is::Suspicious => matches!(meta.verdict, Verdict::Suspicious(_)),
            Is::Unavailable => matches!(meta.verdict, Verdict::Unavailable(_)),
            Is::Malicious => matches!(meta.verdict, Verdict::Malicious(_)),
        };
        assert!(is_right, "{case}: {:?}", meta.verdict);
    }
}

#[tokio::test]
async fn a_skill_by_another_name_is_not_taken_for_the_one_that_was_asked_for() {
    let mut other = page(&moderation(false, false));
    other["skill"]["slug"] = json!("other");
    let (_server, hub) = hub(other, None).await;

    let error = hub.meta(&slug("gifgrep"), None).await.unwrap_err();

    assert!(error.to_string().contains("is now called `other`"), "{error}");
}

#[tokio::test]
async fn an_archive_is_downloaded_in_the_version_that_was_judged() {
    let server = Server::start(|_| b"PK".to_vec().into_response()).await.unwrap();
    let hub = ClawHub::new("clawhub", &format!("{}/base/", server.url), None).unwrap();

    let download = hub.download(&slug("gifgrep"), Some("1.2.3+x")).await.unwrap();

    assert_eq!(download, Download::Zip(b"PK".to_vec()));
    let wanted = "/base/api/v1/download?slug=gifgrep&version=1.2.3%2Bx".to_owned();
    assert_eq!(server.asked(), [(wanted, None)]);
}

#[tokio::test]
async fn each_refusal_of_a_hub_is_told_as_what_to_do() {
    for (code, kind, told) in [
        (404, Kind::NotFound, "has no skill `gifgrep`"),
        (410, Kind::NotFound, "has no skill `gifgrep`"),
        (401, Kind::Unavailable, "does not take the token"),
        (403, Kind::Forbidden, "is blocked or not judged yet"),
        (423, Kind::Forbidden, "is blocked or not judged yet"),
        (500, Kind::Unavailable, "it answered 500"),
        (302, Kind::Unavailable, "it leads elsewhere"),
    ] {
        let server = Server::start(move |_| fake::status(code)).await.unwrap();
        let hub = ClawHub::new("clawhub", &server.url, None).unwrap();

        let error = hub.download(&slug("gifgrep"), None).await.unwrap_err();

        assert_eq!(error.kind(), kind, "{code}");
        assert!(error.to_string().contains(told), "{code}: {error}");
    }
    let busy = Server::start(|_| {
        (axum::http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "34")]).into_response()
    });
    let hub = ClawHub::new("clawhub", &busy.await.unwrap().url, None).unwrap();
    let error = hub.search("x", 5).await.unwrap_err();
    assert!(matches!(error, Error::TooOften { seconds: 34, .. }), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_too_large_or_makes_no_sense_is_refused() {
    let large = Server::start(|_| vec![b' '; (2 << 20) + 1].into_response()).await.unwrap();
    let hub = ClawHub::new("clawhub", &large.url, None).unwrap();
    assert!(hub.search("x", 5).await.unwrap_err().to_string().contains("2097152 bytes"));

    let huge = Server::start(|_| vec![0; (50 << 20) + 1].into_response()).await.unwrap();
    let hub = ClawHub::new("clawhub", &huge.url, None).unwrap();
    let error = hub.download(&slug("gifgrep"), None).await.unwrap_err();
    assert!(error.to_string().contains("52428800 bytes"), "{error}");

    let garbled = Server::start(|_| "<html>".into_response()).await.unwrap();
    let hub = ClawHub::new("clawhub", &garbled.url, None).unwrap();
    let error = hub.search("x", 5).await.unwrap_err();
    assert!(error.to_string().contains("was not understood"), "{error}");
}

#[test]
fn a_token_goes_by_tls_and_an_address_is_one() {
    let told = |base, token: Option<&str>| {
        ClawHub::new("hub", base, token.map(Into::into))
            .map(drop)
            .map_err(|error| error.to_string())
    };

    assert_eq!(told("https://hub.example", Some("t")), Ok(()));
    assert!(told("http://hub.example", Some("t")).unwrap_err().contains("goes by TLS only"));
    assert_eq!(told("http://hub.example", None), Ok(()));
    assert!(told("hub", None).unwrap_err().contains("write `https://host`"));
    assert!(told("file:///etc", None).is_err());
}

#[tokio::test]
async fn a_folder_offers_the_skills_in_it() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("pdf", "---\nname: pdf\ndescription: Reads papers\nversion: \"2\"\ntags: [office]\n---\n"),
        ("paper", "---\nname: paper\ndescription: Writes letters, also as pdf\n---\n"),
        ("bad", "pdf"),
    ] {
        fs::create_dir_all(folder.path().join(name).join("more")).unwrap();
        fs::write(folder.path().join(name).join("SKILL.md"), text).unwrap();
        fs::write(folder.path().join(name).join("more/x.md"), "x").unwrap();
    }
    let registry = DirectoryRegistry::new("house", folder.path());

    let hits = registry.search("PDF", 5).await.unwrap();
    assert_eq!(
        hits.iter().map(|hit| (hit.slug.as_str(), hit.score)).collect::<Vec<_>>(),
        [("pdf", 1.0), ("paper", 0.5)]
    );
    assert_eq!(registry.search("office work", 1).await.unwrap().len(), 1);
    assert_eq!(registry.search("nothing", 5).await.unwrap(), []);

    let meta = registry.meta(&slug("pdf"), None).await.unwrap();
    assert_eq!(meta, SkillVersionMeta { version: Some("2".to_owned()), verdict: Verdict::Clean });
    assert!(matches!(registry.meta(&slug("pdf"), Some("1")).await, Err(Error::NotFound { .. })));
    assert!(matches!(registry.meta(&slug("none"), None).await, Err(Error::NotFound { .. })));
    let Download::Files(mut files) = registry.download(&slug("pdf"), None).await.unwrap() else {
        panic!("no files");
    };
    files.sort();
    assert_eq!(
        files.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(),
        ["SKILL.md", "more/x.md"]
    );
}

#[tokio::test]
async fn a_link_in_a_folder_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("x")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("x/passwd")).unwrap();
    let registry = DirectoryRegistry::new("house", folder.path());

    let error = registry.download(&slug("x"), None).await.unwrap_err();

    assert!(error.to_string().contains("`passwd` is a link"), "{error}");
}

#[tokio::test]
async fn an_archive_at_an_address_is_fetched_from_the_public_internet_only() {
    let server = Server::start(|path| match path {
        "/onward" => (axum::http::StatusCode::FOUND, [("location", "/x.zip")]).into_response(),
        "/inward" => {
            let to = [("location", "http://169.254.169.254/latest")];
            (axum::http::StatusCode::FOUND, to).into_response()
        }
        "/round" => (axum::http::StatusCode::FOUND, [("location", "/round")]).into_response(),
        "/x.zip" => b"PK".to_vec().into_response(),
        _ => fake::status(404),
    });
    let server = server.await.unwrap();
    let at = |path: &str, guard: Guard| {
        UrlRegistry::new(slug("x"), &format!("{}{path}", server.url), guard)
    };
    let open = || {
        Guard::with_system_resolver([server.url.trim_start_matches("http://").to_owned()]).unwrap()
    };

    for path in ["/x.zip", "/onward"] {
        let there = at(path, open()).unwrap();
        assert_eq!(there.download(&slug("x"), None).await.unwrap(), Download::Zip(b"PK".to_vec()));
    }
    let inward = at("/inward", open()).unwrap().download(&slug("x"), None).await.unwrap_err();
    assert!(matches!(inward, Error::Forbidden(_)), "{inward}");
    let round = at("/round", open()).unwrap().download(&slug("x"), None).await.unwrap_err();
    assert!(round.to_string().contains("more than 5 times"), "{round}");

    let closed = Guard::with_system_resolver([]).unwrap();
    let error = at("/x.zip", closed.clone()).unwrap_err();
    assert!(error.to_string().contains("not on the public internet"), "{error}");
    assert!(UrlRegistry::new(slug("x"), "file:///etc/passwd", closed).is_err());
    let there = at("/x.zip", open()).unwrap();
    assert!(matches!(there.meta(&slug("y"), None).await, Err(Error::NotFound { .. })));
    let meta = there.meta(&slug("x"), None).await.unwrap();
    assert!(matches!(meta.verdict, Verdict::Unavailable(_)) && meta.version.is_none());
}

#[test]
fn registries_come_from_the_settings_and_are_known_by_name() {
    let configs: Vec<RegistryConfig> = serde_json::from_value(json!([
        { "kind": "clawhub", "name": "clawhub", "base_url": "https://clawhub.ai", "token": "t" },
        { "kind": "directory", "name": "house", "path": "/srv/skills" },
    ]))
    .unwrap();
    let registries = Registries::from_configs(&configs).unwrap();

    assert_eq!(registries.get("house").unwrap().name(), "house");
    let error = registries.get("other\u{1b}").unwrap_err().to_string();
    assert_eq!(error, "there is no registry `other\\u{1b}`: it may be one of `clawhub`, `house`");
    let url =
        Arc::new(DirectoryRegistry::new("url", std::path::Path::new("/a"))) as Arc<dyn Registry>;
    assert!(Registries::new(vec![url]).is_err());
    let twice = vec![
        Arc::new(DirectoryRegistry::new("house", std::path::Path::new("/a"))) as Arc<dyn Registry>,
        Arc::new(DirectoryRegistry::new("house", std::path::Path::new("/b"))),
    ];
    assert!(Registries::new(twice).unwrap_err().to_string().contains("two registries `house`"));
}
