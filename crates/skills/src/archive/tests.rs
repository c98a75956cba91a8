//! Archives that are as they should be, and those of people who mean harm.

use proptest::prelude::*;

use super::{
    attack::{Entry, skill, zip},
    *,
};

fn paths(entries: &[Entry]) -> Vec<String> {
    let unpacked = unpack(Download::Zip(zip(entries)), &Limits::default()).unwrap();
    unpacked.keys().map(TreePath::to_string).collect()
}

fn told(entries: &[Entry]) -> String {
    let error = unpack(Download::Zip(zip(entries)), &Limits::default()).unwrap_err();
    assert!(matches!(error, Error::Archive(_)), "{error}");
    error.to_string()
}

#[test]
fn a_skill_is_unpacked_with_what_is_beside_it() {
    let mut packed = Entry::new("scripts/run.sh", "echo\n".repeat(1_000));
    packed.is_packed = true;
    let entries = [
        skill("x"),
        Entry::new("./", ""),
        Entry::new("scripts/", ""),
        packed,
        Entry::new("./a/é.md", "é"),
    ];

    let unpacked = unpack(Download::Zip(zip(&entries)), &Limits::default()).unwrap();

    let found: Vec<(&str, usize)> =
        unpacked.iter().map(|(path, content)| (path.as_str(), content.len())).collect();
    assert_eq!(
        found,
        [("SKILL.md", entries[0].content.len()), ("a/é.md", 2), ("scripts/run.sh", 5_000)]
    );
}

#[test]
fn one_folder_around_it_all_goes_and_litter_is_left_out() {
    let of = |name: &str| Entry { name: name.into(), ..skill("x") };
    let litter = Entry::new("__MACOSX/._SKILL.md", "x");
    let forged = Entry::new("repo-main/.skill-origin.json", "{}");
    let bare = Entry::new("repo-main/a/HEAD", "ref: refs/heads/main\n");

    assert_eq!(
        paths(&[of("repo-main/skill.md"), Entry::new("repo-main/a/b", "x"), litter, forged, bare]),
        ["SKILL.md", "a/b"]
    );
    assert!(told(&[of("a/SKILL.md"), Entry::new("b/c", "")]).contains("no `SKILL.md`"));
    assert!(told(&[of("a/b/SKILL.md")]).contains("no `SKILL.md`"));
    assert!(told(&[]).contains("no `SKILL.md`"));
}

#[test]
fn a_path_that_leaves_the_folder_is_refused() {
    for name in [
        "../SKILL.md",
        "a/../../x",
        "a/..",
        "/etc/passwd",
        "//x",
        "..\\x",
        "C:\\x",
        "a\\..\\x",
        "a//b",
        "a/./b",
        "x\0.md",
        "x\n",
        "../",
        "./../x",
        &"x".repeat(300),
        &"d/".repeat(300),
    ] {
        let told = told(&[skill("x"), Entry::new(name, "x")]);
        assert!(
            told.contains("cannot be taken") || told.contains("look like others"),
            "{name}: {told}"
        );
        assert!(!told.contains(char::is_control), "{told}");
    }
    assert!(told(&[skill("x"), Entry::new(b"\xff\xfe", "x")]).contains("not UTF-8"));
}

#[test]
fn names_that_look_like_others_are_refused() {
    for name in [
        // Full-width dots and slash, one dot leader, a letter that nobody sees, another direction.
        "\u{ff0e}\u{ff0e}/x",
        "..\u{ff0f}x",
        "\u{2024}\u{2024}/x",
        "SKILL\u{200b}.md",
        "gpj.\u{202e}txt",
        "\u{fb01}le",
    ] {
        assert!(told(&[skill("x"), Entry::new(name, "x")]).contains("look like others"), "{name}");
    }
    // One letter in two ways is one name.
    let twice = [skill("x"), Entry::new("e\u{301}", "x"), Entry::new("\u{e9}", "y")];
    assert!(told(&twice).contains("is there twice"));
}

#[test]
fn two_files_that_are_one_elsewhere_are_refused() {
    for names in [["a.md", "A.md"], ["a.md", "a.md"], ["skill.md", "x"]] {
        let entries: Vec<Entry> =
            std::iter::once(skill("x")).chain(names.map(|name| Entry::new(name, "x"))).collect();
        let told =
            unpack(Download::Zip(zip(&entries)), &Limits::default()).map(|files| files.len());
        // A reader may see entries of the very same name as one; then there is one.
        assert!(told.is_err() || names == ["a.md", "a.md"], "{names:?}");
    }
    assert!(
        told(&[skill("x"), Entry::new("a", "x"), Entry::new("a/b", "x")])
            .contains("a file and a folder")
    );
}

#[test]
fn links_and_devices_are_refused() {
    for mode in [0o120_777, 0o020_644, 0o060_644, 0o010_644, 0o140_644] {
        let link = Entry { mode, ..Entry::new("passwd", "/etc/passwd") };
        assert!(told(&[skill("x"), link]).contains("a link or a device"), "{mode:o}");
    }
}

#[test]
fn a_bomb_is_refused_whatever_it_says_of_itself() {
    let bomb = |says| Entry { is_packed: true, says, ..Entry::new("bomb", vec![0; 6 << 20]) };
    assert!(told(&[skill("x"), bomb(None)]).contains("too large"));
    let lies = told(&[skill("x"), bomb(Some(10))]);
    assert!(lies.contains("too large") || lies.contains("damaged"), "{lies}");

    let many: Vec<Entry> =
        std::iter::once(skill("x"))
            .chain((0..6).map(|at| Entry {
                is_packed: true,
                ..Entry::new(format!("{at}"), vec![0; 4 << 20])
            }))
            .collect();
    assert!(told(&many).contains("all together 20971520"));
}

#[test]
fn too_many_files_are_refused_before_they_are_read() {
    let some: Vec<Entry> = std::iter::once(skill("x"))
        .chain((0..500).map(|at| Entry::new(format!("{at}"), "")))
        .collect();
    assert!(told(&some).contains("more than 500 files"));

    let many: Vec<Entry> = (0..60_000).map(|at| Entry::new(format!("{at}"), "")).collect();
    assert!(told(&many).contains("more than 3000 entries"));
}

#[test]
fn what_is_no_zip_or_half_of_one_is_refused() {
    let whole = zip(&[skill("x"), Entry::new("a", "b")]);
    for bytes in
        [&b""[..], b"PK\x05\x06", b"hello", &whole[..whole.len() / 2], &whole[..whole.len() - 1]]
    {
        let error = unpack(Download::Zip(bytes.to_vec()), &Limits::default()).unwrap_err();
        assert!(error.to_string().contains("no ZIP, or not a whole one"), "{error}");
    }
    let mut damaged = whole;
    damaged[45] ^= 1;
    assert!(unpack(Download::Zip(damaged), &Limits::default()).is_err());
}

#[test]
fn files_of_a_folder_are_looked_at_as_those_of_an_archive() {
    let unpack = |path: &str, size: usize| {
        let files = vec![("SKILL.md".to_owned(), b"x".to_vec()), (path.to_owned(), vec![0; size])];
        super::unpack(Download::Files(files), &Limits::default())
    };

    assert_eq!(unpack("a/b", 1).unwrap().len(), 2);
    assert!(unpack("../b", 1).is_err());
    assert!(unpack("b", (5 << 20) + 1).is_err());
    assert!(unpack("b", 5 << 20).is_ok());
}

proptest! {
    #[test]
    fn whatever_an_entry_is_called_it_stays_in_the_folder(name in "[./a\\\\]{1,12}|\\PC{1,20}") {
        if let Ok(files) = unpack(Download::Zip(zip(&[skill("x"), Entry::new(&name, "x")])), &Limits::default()) {
            for path in files.keys() {
                let is_plain = std::path::Path::new(path.as_str())
                    .components()
                    .all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(is_plain, "{name:?} → {path}");
            }
        }
    }

    #[test]
    fn whatever_the_bytes_are_nothing_breaks(at in 0_usize..200, byte in any::<u8>(), cut in 0_usize..300) {
        let mut bytes = zip(&[skill("x"), Entry { is_packed: true, ..Entry::new("a", "bbbbbbbbbbbbbb") }]);
        let at = at.min(bytes.len() - 1);
        bytes[at] = byte;
        bytes.truncate(bytes.len().saturating_sub(cut));
        drop(unpack(Download::Zip(bytes), &Limits::default()));
    }
}
